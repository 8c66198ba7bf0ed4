#!/usr/bin/env bash
# A Keras model with a Normalization layer leaves as ONNX without that layer's mean: it has become an input of the file.
#
# Guess, written down first: `model.export(path, format="onnx")` writes a file that takes what the model takes. What
# `adapt` has learnt, or what `mean` and `variance` give, is stored in it as the weights are.
#
# Seen on 2026-11-30 with keras 3.15.1, tensorflow-cpu 2.21.0, tf2onnx 1.17.0, onnx 1.23.2 and onnxruntime 1.32.0 (CPU,
# Python 3.11), without an error or a warning of the export, and onnx's checker accepts the file:
# - it has three inputs: the own one, the mean (".../Sub/y:0") and the variance (".../Sqrt/x:0"), both without values;
# - no node reads the variance: a factor made of it stands in the file as a constant;
# - a caller who gives only the model's input is refused, and whoever gives another mean gets another result;
# - keras.applications.EfficientNetB0, which begins with this layer, is such a file;
# - BatchNormalization, whose mean and variance are variables, is exported as it should be.
#
# Source: https://keras.io/api/models/model_saving_apis/export/ (format "onnx"); onnxruntime says "Required inputs ...
# are missing". Normalization keeps its statistics as plain tensors, which the traced function captures. We found no
# report of it.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install keras==3.15.1 tensorflow-cpu==2.21.0 tf2onnx==1.17.0 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
"$folder/venv/bin/python" - "$folder/model.onnx" <<'PY'
import sys

import keras
import numpy as np
import onnx
import onnxruntime
from keras import layers

path = sys.argv[1]
random = np.random.default_rng(0)
x = random.normal(3, 2, (50, 4)).astype(np.float32)


def exported(*model):
    """The model, and its file in ONNX Runtime."""
    model = keras.Sequential([keras.Input((4,)), *model])
    model(x)
    model.export(path, format="onnx", verbose=False)
    onnx.checker.check_model(path, full_check=True)
    return np.asarray(model(x)), onnxruntime.InferenceSession(path)


def inputs(session):
    return [entry.name for entry in session.get_inputs()]


batch = layers.BatchNormalization()
batch.build((None, 4))
batch.set_weights([np.ones(4), np.zeros(4), x.mean(0), x.var(0)])
right, session = exported(batch)
print("BatchNormalization:", inputs(session))
assert len(inputs(session)) == 1
assert np.allclose(session.run(None, {inputs(session)[0]: x})[0], right, atol=1e-5)

adapted = layers.Normalization()
adapted.adapt(x)
given = layers.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1.0, 4.0, 9.0, 16.0])
for name, layer in (("adapted", adapted), ("given", given)):
    right, session = exported(layer)
    print(f"Normalization, {name}:", inputs(session))
    own, mean, variance = inputs(session)
    assert mean.endswith("/Sub/y:0") and variance.endswith("/Sqrt/x:0")
    graph = onnx.load(path).graph
    assert not {mean, variance} & {value.name for value in graph.initializer}
    assert variance not in {read for node in graph.node for read in node.input}
    try:
        session.run(None, {own: x})
        raise SystemExit("the file runs by itself")
    except ValueError as error:
        print("refused:", str(error)[:60])
    feeds = {own: x, mean: np.asarray(layer.mean), variance: np.zeros((1, 4), np.float32)}
    assert np.allclose(session.run(None, feeds)[0], right, atol=1e-5)
    feeds[mean] = np.zeros((1, 4), np.float32)
    print("off by, with a mean of 0:", float(np.abs(session.run(None, feeds)[0] - right).max()))
    assert not np.allclose(session.run(None, feeds)[0], right, atol=0.1)
PY
