#!/usr/bin/env bash
# PyTorch: fake quantization takes infinity to the upper end of the range per tensor, and to the lower end per channel.
#
# Guess, written down first: fake_quantize_per_tensor_affine and fake_quantize_per_channel_affine with one channel are
# the same function: round(x / scale) + zero_point, clamped to the range. Infinity becomes the number of quant_max.
#
# Seen on 2026-11-30 with torch 2.15.0, numpy 2.4.6 (CPU, Python 3.11): scale 0.01, zero point 3 and the range -128 to
# 127 make 1.24 of +inf per tensor, and -1.31, the number of quant_min, per channel; of 1e30 likewise. -inf is -1.31
# in both. One conversion to integers comes before the clamp, and yields the smallest integer for whatever is too
# large. A range learnt on activations that overflow once is thus seen from the wrong side, depending on which of the
# two is used.
#
# Source: https://docs.pytorch.org/docs/stable/generated/torch.fake_quantize_per_channel_affine.html (clamps to
# quant_min and quant_max); aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torch==2.15.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import torch

scale, zero, low, high = 0.01, 3, -128, 127
for value, tensor, channel in [
    (1.0, 1.0, 1.0),
    (100.0, 1.24, 1.24),
    (1e30, 1.24, -1.31),
    (float("inf"), 1.24, -1.31),
    (float("-inf"), -1.31, -1.31),
]:
    x = torch.tensor([value])
    whole = torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high).item()
    each = torch.fake_quantize_per_channel_affine(
        x, torch.tensor([scale]), torch.tensor([zero], dtype=torch.int32), 0, low, high
    ).item()
    print(f"{value}: {whole:.2f} per tensor, {each:.2f} per channel")
    assert abs(whole - tensor) < 1e-5 and abs(each - channel) < 1e-5, (whole, each)
PY
