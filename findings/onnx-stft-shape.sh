#!/usr/bin/env bash
# onnx's shape inference takes an STFT without the attribute onesided as two-sided, and the op is one-sided by default.
#
# Guess, written down first: an attribute that is left out has its default, in shape inference as in an evaluator. So
# frames of 16 numbers have 9 frequencies, whether onesided=1 is written or not.
#
# Seen on 2026-11-30 with onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): without the attribute, 16 frequencies
# are inferred, and ONNX Runtime and the reference evaluator compute 9. With onesided=1 all say 9. So full_check accepts
# the model, and refuses it once its output is declared as it is computed, and a program that allocates by the inferred
# shape takes nearly twice the size.
#
# Source: https://onnx.ai/onnx/operators/onnx__STFT.html (onesided: "the default value is 1"). The main branch has a
# mended inference (https://github.com/onnx/onnx/pull/7731), which was in no release on that day.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(4)
default = onnx.defs.get_schema("STFT", 17).attributes["onesided"].default_value.i
assert default == 1
x = np.random.default_rng(0).standard_normal((1, 64, 1)).astype(np.float32)


def model(shape=None, **attributes):
    given = [numpy_helper.from_array(np.array(n), name) for name, n in (("step", 8), ("length", 16))]
    graph = helper.make_graph(
        [helper.make_node("STFT", ["x", "step", "", "length"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        given,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


for attributes, expected in (({"onesided": 1}, 9), ({}, 16), ({"onesided": 0}, 16)):
    made = model(**attributes)
    made = onnx.shape_inference.infer_shapes(made)
    onnx.checker.check_model(made, full_check=True)
    inferred = made.graph.output[0].type.tensor_type.shape.dim[2].dim_value
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    computed = session.run(None, {"x": x})[0].shape[2], ReferenceEvaluator(made).run(None, {"x": x})[0].shape[2]
    print(attributes, "inferred", inferred, "computed, by two evaluators", *computed)
    assert inferred == expected
    assert computed == ((16, 16) if attributes == {"onesided": 0} else (9, 9))
onnx.checker.check_model(model((1, 7, 9, 2), onesided=1), full_check=True)
try:
    onnx.checker.check_model(model((1, 7, 9, 2)), full_check=True)
    raise SystemExit("the computed shape is accepted")
except onnx.shape_inference.InferenceError as error:
    print("its computed shape, declared:", str(error)[-90:])
PY
