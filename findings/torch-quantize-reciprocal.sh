#!/usr/bin/env bash
# PyTorch quantizes by a multiplication with 1 / scale, so that every eighth tie is another integer than by division.
#
# Guess, written down first: quantize_per_tensor rounds x / scale to the nearest integer, ties to even, as its page and
# ONNX's QuantizeLinear say. Both take f32, so they give the same integers, bit by bit.
#
# Seen on 2026-11-30 with torch 2.15.0, onnxruntime 1.32.0 and onnx 1.23.2 (CPU, Python 3.11): of 100,000 numbers in the
# middle between two steps of a random scale, over 10,000 differ from ONNX Runtime's by 1. ONNX Runtime gives what NumPy
# gives by division. fake_quantize, by which networks are trained for it, multiplies, too. An activation that is an
# integer times half the scale is no rare case after another quantized layer.
#
# Source: https://docs.pytorch.org/docs/stable/generated/torch.quantize_per_tensor.html and …quantization.html ("Q(x,
# scale, zero_point) = round(x / scale + zero_point)"); aten/src/ATen/native/quantized/AffineQuantizerBase.cpp,
# quantize_val: inv_scale; https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torch==2.15.0 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import onnxruntime
import torch
from onnx import parser

model = parser.parse_model(
    """<ir_version: 9, opset_import: ["": 19]>
    graph (float[100] x, float scale) => (int8[100] y) <int8 zero = {0}> { y = QuantizeLinear (x, scale, zero) }"""
)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
random = np.random.default_rng(0)
differ, by_division, fake = 0, 0, 0
for _ in range(1000):
    scale = np.float32(random.uniform(0.001, 1))
    x = (random.integers(-100, 100, 100) + 0.5).astype(np.float32) * scale
    quantized = torch.quantize_per_tensor(torch.tensor(x), float(scale), 0, torch.qint8).int_repr().numpy()
    trained = torch.fake_quantize_per_tensor_affine(torch.tensor(x), float(scale), 0, -128, 127).numpy()
    (runtime,) = session.run(None, {"x": x, "scale": np.array(scale)})
    differ += int((quantized != runtime).sum())
    assert abs(quantized.astype(int) - runtime).max() <= 1
    by_division += int((np.rint(x / scale) != runtime).sum())
    fake += int((np.rint(trained / scale) != runtime).sum())
print(torch.__version__, onnxruntime.__version__)
print(f"of 100000 ties PyTorch's differ from ONNX Runtime's: {differ}, fake_quantize's {fake}; NumPy's: {by_division}")
assert differ > 10_000 and fake > 10_000 and by_division == 0
PY
