#!/usr/bin/env bash
# OpenVINO: a number of more axes than the tensor loses those axes, if a Transpose, Reshape or Unsqueeze comes before.
#
# Guess, written down first: a matrix and a constant of 1 × 1 × 1 make a tensor of three axes, whatever came before.
#
# Seen on 2026-11-30 with openvino 2026.4.1, onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): for Add, Sub, Mul,
# Div, Max and Pow, 2 × 3 becomes 1 × 2 × 3 in ONNX Runtime, and in OpenVINO if it comes from a Softmax or a Neg.
# After a Transpose, a Reshape or an Unsqueeze it stays a matrix: the model that was read says three axes, the compiled
# one two. The numbers are right, so nothing fails until an axis is counted: here a ReduceSum of axis 1 sums the other
# axis. It is right for a constant of more than one number, and where two ops read the result.
#
# Source: https://onnx.ai/onnx/repo-docs/Broadcasting.html: the rank is the higher one. The pass that moves such an op
# in front of the Transpose (move_eltwise_up_data_movement.cpp) puts a plain number in the constant's place. We found
# no report of it.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install openvino==2026.4.1 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import parser

onnxruntime.set_default_logger_severity(4)
core = openvino.Core()
x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def outputs(before, op, extents="1, 1, 1", numbers="2"):
    """`op` of what `before` makes of x and a constant, and its sum over axis 1, by ONNX Runtime and by OpenVINO."""
    both = [], []
    for last, axes in (("Identity (t)", "a, b, c"), ("ReduceSum <keepdims = 0> (t, axis)", "a, b")):
        model = parser.parse_model(
            f"""<ir_version: 8, opset_import: ["": 13]>
            graph (float[2, 3] x) => (float[{axes}] y) <float[{extents}] constant = {{{numbers}}}> {{
                shape = Constant <value_ints = [3, 2]> ()
                axis = Constant <value_ints = [1]> ()
                moved = {before}
                t = {op} (moved, constant)
                y = {last}
            }}"""
        )
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        read = core.read_model(model.SerializeToString())
        assert read.outputs[0].get_partial_shape().rank.get_length() == len(axes.split())
        compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        both[0].append(session.run(None, {"x": x})[0])
        both[1].append(np.array(compiled([x])[0]))
    np.testing.assert_allclose(both[0][0].ravel(), both[1][0].ravel(), rtol=1e-5)
    return both


for op in ("Add", "Sub", "Mul", "Div", "Max", "Pow"):
    for before in ("Neg (x)", "Softmax (x)", "Transpose (x)", "Reshape (x, shape)"):
        runtime, by_openvino = outputs(before, op)
        shapes = [[value.shape for value in one] for one in (runtime, by_openvino)]
        print(f"{op} after {before}: ONNX Runtime {shapes[0]}, OpenVINO {shapes[1]}")
        rows, columns = (3, 2) if before[0] in "TR" else (2, 3)
        assert shapes[0] == [(1, rows, columns), (1, columns)]
        if before[0] in "TR":
            assert shapes[1] == [(rows, columns), (rows,)]
        else:
            assert shapes[1] == shapes[0]
runtime, by_openvino = outputs("Transpose (x)", "Add", "1, 1, 2", "2, 5")
assert by_openvino[0].shape == runtime[0].shape == (1, 3, 2)
PY
