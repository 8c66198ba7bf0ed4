#!/usr/bin/env bash
# NumPy: var and std of float16 numbers are infinite where mean is right.
#
# Guess, written down first: np.mean adds numbers of float16 as float32, so that any number of pixels from 0 to 255 has
# a mean. np.var and np.std begin with the same mean, and are as good.
#
# Seen on 2026-11-30 with numpy 2.4.6 (CPU, Python 3.11): for 10,000 pixels, mean is 127.5; var and std are inf. They
# compute their mean by themselves, in float16, whose largest number is 65,504: 514 pixels of 127.5 are enough. With
# dtype=np.float32 both are right. If NumPy's own mean is handed over (mean=), the squares' sum still overflows.
#
# Source: https://numpy.org/doc/stable/reference/generated/numpy.mean.html ("By default, float16 results are computed
# using float32 intermediates"); the page on var says that the input's precision is used. In numpy/_core/_methods.py,
# _mean has a rule for float16, and _var has none.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np

pixels = np.random.default_rng(0).integers(0, 256, 10_000).astype(np.float16)
right = pixels.astype(np.float32)
print(np.__version__, "mean", np.mean(pixels), "var", np.var(pixels), "std", np.std(pixels))
print("by float32:", np.mean(right), np.var(right), np.std(right))
assert abs(float(np.mean(pixels)) - right.mean()) < 0.1
assert np.isinf(np.var(pixels)) and np.isinf(np.std(pixels))
assert np.isinf(np.var(pixels, mean=np.mean(pixels, keepdims=True)))
assert abs(np.var(pixels, dtype=np.float32) / right.var() - 1) < 1e-5
PY
