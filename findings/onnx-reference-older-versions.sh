#!/usr/bin/env bash
# onnx's reference evaluator runs models of opset 9 to 12 with other formulas: BatchNormalization uses the batch's own
# mean, and Softmax, LogSoftmax and Hardmax take one axis.
#
# Guess, written down first: the evaluator runs each op in the version that the file names. A BatchNormalization of
# opset 9 with one output is in test mode, so it uses the mean and variance that it is given, and an example's result
# does not depend on the others of its batch. A Softmax of opset 11 flattens all axes from its own on, and sums to 1
# over all of them.
#
# Seen on 2026-11-30 with onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): ONNX Runtime does so. The reference
# evaluator mixes the given mean and variance with those of the batch, by the momentum, from opset 9 to 13, so an
# example gives other numbers in another batch. Softmax, LogSoftmax and Hardmax of opset 11 give what those of 13 give
# with the same axis, and without an axis use the last one, where the default is 1. From opset 14 and 13 on, they are
# right. onnxscript's optimizer folds constants with this evaluator.
#
# Source: https://onnx.ai/onnx/operators/text_diff_BatchNormalization_9_14.html and onnx__Softmax.html (version 11);
# https://github.com/onnx/onnx/pull/8442 tells of BatchNormalization; of the others we found no report.
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

random = np.random.default_rng(0)
x = random.standard_normal((3, 2, 4)).astype(np.float32)
channels = [random.standard_normal(2).astype(np.float32) for _ in range(3)] + [np.array([1, 2], np.float32)]


def outputs(op, version, x=x, constants=(), **attributes):
    """By ONNX Runtime and by the reference evaluator."""
    given = [numpy_helper.from_array(array, f"c{i}") for i, array in enumerate(constants)]
    node = helper.make_node(op, ["x"] + [constant.name for constant in given], ["y"], **attributes)
    whole = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([node], "g", [whole], [value], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0], ReferenceEvaluator(model).run(None, {"x": x})[0]


def apart(a, b):
    return float(np.abs(a - b).max())


for version in (9, 13, 14, 15):
    runtime, reference = outputs("BatchNormalization", version, constants=channels)
    alone = outputs("BatchNormalization", version, x[:1], channels)
    shifts = apart(runtime[:1], alone[0]), apart(reference[:1], alone[1])
    print(f"BatchNormalization {version}: apart {apart(runtime, reference):.2g}; in another batch, by {shifts[1]:.2g}")
    assert shifts[0] < 1e-6
    if version < 14:
        mean, variance = [0.9 * c + 0.1 * own for c, own in zip(channels[2:], (x.mean((0, 2)), x.var((0, 2))))]
        mixed = [c[:, None] for c in (channels[0], mean, np.sqrt(variance + 1e-5), channels[1])]
        assert apart(reference, mixed[0] * (x - mixed[1]) / mixed[2] + mixed[3]) < 1e-5
        assert apart(runtime, reference) > 0.01 and shifts[1] > 0.01
    else:
        assert apart(runtime, reference) < 1e-5 and shifts[1] < 1e-6

for op in ("Softmax", "LogSoftmax", "Hardmax"):
    for axis in ({"axis": 1}, {}):
        runtime, reference = outputs(op, 11, **axis)
        print(f"{op} 11, {axis}: apart {apart(runtime, reference):.2g}")
        assert apart(runtime, reference) > 0.1
        assert apart(reference, outputs(op, 13, **axis)[0]) < 1e-5
        flat = outputs(op, 13, x.reshape(3, 8), axis=1)
        assert apart(runtime, flat[0].reshape(x.shape)) < 1e-5 and apart(*flat) < 1e-5
PY
