#!/usr/bin/env bash
# ONNX Runtime's Sigmoid in f32: small results are off by more than their own size, and 0 from about -16 on.
#
# Guess, written down first: sigmoid is e^x / (1 + e^x) for negative x, which f32 represents down to -103. So a library
# computes it to a few units of the last place (a relative error of 1e-6 at most), and its logarithm is x.
#
# Seen on 2026-11-28 with ONNX Runtime 1.32.0 (CPU, x86-64 with AVX-512, Python 3.11): relative errors of 2e-4 at -10,
# 6e-3 at -12 and 0.5 at -16; 0 for some numbers from -15.9 on and for all from -18 on. So Log(Sigmoid(x)) is minus
# infinity for a score that a text detector gives for most of a blank page (PP-OCR's heat map ends in this op). Larger
# inputs give smaller results at a third of 200,000 steps from -18 to -8. The absolute error stays below 1.4e-7.
#
# Source: the definition of the op, y = 1 / (1 + exp(-x)), in ONNX's operator documentation.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

nodes = [helper.make_node("Sigmoid", ["x"], ["y"]), helper.make_node("Log", ["y"], ["log"])]
inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])]
outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in ("y", "log")]
graph = helper.make_graph(nodes, "g", inputs, outputs)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

x = np.array([-5, -10, -12, -16, -20], np.float32)
y, log = session.run(None, {"x": x})
right = 1 / (1 + np.exp(-x.astype(np.float64)))
off = np.abs(y / right - 1)
for row in zip(x, y, right, off, log):
    print("sigmoid({:.0f}) = {:.4e}, right is {:.4e}: off by {:.1e} of it; its logarithm is {:.3f}".format(*row))
assert off[1] > 1e-5 and off[2] > 1e-3 and off[3] > 0.1, off
assert y[4] == 0 and np.isneginf(log[4]), (y[4], log[4])

x = np.linspace(-18, -8, 200_001).astype(np.float32)
y = session.run(["y"], {"x": x})[0]
print("absolute error at most", np.abs(y - 1 / (1 + np.exp(-x.astype(np.float64)))).max())
print("steps down:", (np.diff(y) < 0).sum(), "of", len(y) - 1)
assert (np.diff(y) < 0).any()
PY
