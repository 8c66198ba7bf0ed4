#!/usr/bin/env bash
# Flax: LayerNorm of numbers that are far from 0 is no normalization: the result's deviation is 1 only near 0.
#
# Guess, written down first: a layer whose first step is to subtract the mean gives the same for x and for x + 1000, but
# for the digits that x + 1000 has lost, some 1e-4. PyTorch's does.
#
# Seen on 2026-11-30 with flax 0.12.8 and jax 0.10.2 (CPU, Python 3.11), 256 features of deviation 1: results are off by
# 0.004 around 100, and by 0.3 around 1,000; around 10,000 their deviation is over 700, not 1, since some variances
# are 0. They are mean(x²) − mean(x)², which cancels. The same holds for flax.nnx, and for a batch in BatchNorm, from
# 10,000 on. With use_fast_variance=False all are right, to what f32 leaves (0.001). Timestamps, depths in
# millimetres and residual streams are such numbers.
#
# Source: https://flax.readthedocs.io/en/latest/api_reference/flax.linen/layers.html ("use_fast_variance: If true, use a
# faster, but less numerically stable, calculation for the variance").
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PY'
import flax
import jax
import numpy as np
from flax import linen, nnx

noise = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
layer, slow = linen.LayerNorm(), linen.LayerNorm(use_fast_variance=False)
batch = linen.BatchNorm(use_running_average=False)
print(flax.__version__)
found = {}
for middle in (0, 100, 1_000, 10_000):
    x = noise + np.float32(middle)
    wide = x.astype(np.float64)
    right = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-6)
    y = np.asarray(layer.apply(layer.init(jax.random.key(0), x), x))
    by_nnx = np.asarray(nnx.LayerNorm(256, rngs=nnx.Rngs(0))(x))
    off = float(abs(np.asarray(slow.apply(slow.init(jax.random.key(0), x), x)) - right).max())
    normed, _ = batch.apply(batch.init(jax.random.key(0), x), x, mutable=["batch_stats"])
    found[middle] = float(abs(y - right).max()), float(y.std()), float(np.asarray(normed).std())
    print(f"around {middle}: off by {found[middle][0]:.2g}, deviation {found[middle][1]:.2f}, of BatchNorm's "
          f"{found[middle][2]:.2f}; without fast variance off by {off:.2g}")
    assert np.allclose(by_nnx, y, rtol=1e-3) and off < 5e-3
assert found[0][0] < 1e-5
assert found[100][0] > 1e-3 and found[1_000][0] > 0.1
assert found[10_000][1] > 100 and found[10_000][2] > 100
PY
