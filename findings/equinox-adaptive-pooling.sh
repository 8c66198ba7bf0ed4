#!/usr/bin/env bash
# Equinox's AdaptiveAvgPool splits an axis into parts without overlap, where PyTorch's windows of that name overlap.
#
# Guess, written down first: AdaptiveAvgPool2d(7) is PyTorch's layer of the same name: output i is the mean from
# floor(i·n/m) up to ceil((i+1)·n/m). So a network that ends in one gives the same numbers in both, with equal weights.
#
# Seen on 2026-11-30 with equinox 0.13.8, jax 0.10.2 and numpy 2.4.6 (CPU, x86-64, Python 3.11): where the output
# divides the input, both agree. Else Equinox splits as numpy.array_split does, the larger parts first: 0 to 4
# in three windows are 0.5, 2.5 and 4 instead of 0.5, 2 and 3.5, and 0 to 6 in four are 0.5, 2.5, 4.5 and 6 instead of
# 0.5, 2, 4 and 5.5. AdaptiveMaxPool splits in the same way: 4 to 0 in three are 4, 2, 0 instead of 4, 3, 1.
# Of 8 × 8 pixels for AdaptiveAvgPool2d(7), as VGG has them for larger images, 48 of 49 numbers differ.
#
# Source: https://docs.kidger.site/equinox/api/nn/pool/ ("downsampling using average for the target shape");
# _adaptive_pool1d in equinox/nn/_pool.py; PyTorch's start_index and end_index in
# aten/src/ATen/native/AdaptivePooling.h.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install equinox==0.13.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PY'
import equinox as eqx
import jax.numpy as jnp
import numpy as np


def windows(n, m):
    return [slice(i * n // m, -((i + 1) * n // -m)) for i in range(m)]


def as_pytorch(x, m, how):
    return [float(how(x[window])) for window in windows(len(x), m)]


for n, m in ((6, 3), (8, 2), (5, 3), (7, 4), (8, 7)):
    x = np.arange(n, dtype=np.float32)
    mean = eqx.nn.AdaptiveAvgPool1d(m)(jnp.array(x[None]))[0].tolist()
    largest = eqx.nn.AdaptiveMaxPool1d(m)(jnp.array(x[None]))[0].tolist()
    print(f"0 to {n - 1} in {m}: mean {mean}, PyTorch's {as_pytorch(x, m, np.mean)};", end=" ")
    print(f"max {largest}, PyTorch's {as_pytorch(x, m, np.max)}")
    parts = np.array_split(x, m)
    assert mean == [float(part.mean()) for part in parts] and largest == [float(part.max()) for part in parts]
    same = n % m == 0
    assert (mean == as_pytorch(x, m, np.mean)) == same

x = np.random.default_rng(0).random((1, 8, 8), np.float32)
found = np.array(eqx.nn.AdaptiveAvgPool2d(7)(jnp.array(x)))[0]
theirs = np.array([[x[0, rows, columns].mean() for columns in windows(8, 7)] for rows in windows(8, 7)])
differ = int((abs(found - theirs) > 1e-6).sum())
print("8 × 8 in 7 × 7:", differ, "of 49 differ")
assert differ == 48

down = np.arange(5, dtype=np.float32)[::-1].copy()
largest = eqx.nn.AdaptiveMaxPool1d(3)(jnp.array(down[None]))[0].tolist()
print("4 to 0 in 3: max", largest, "PyTorch's", as_pytorch(down, 3, np.max))
assert largest == [4, 2, 0] and as_pytorch(down, 3, np.max) == [4, 3, 1]
PY
