#!/usr/bin/env bash
# torch.from_dlpack accepts memory that its owner marks as read-only, and writes to it without a warning.
#
# Guess, written down first: since DLPack 1.0 a capsule says whether its memory may be written. NumPy respects that:
# np.from_dlpack of a JAX array cannot be written. torch.from_dlpack of a JAX array, or of a NumPy array that is not
# writeable, then fails, copies, or at least warns, as torch.from_numpy does.
#
# Seen on 2026-11-29 with torch 2.15.0, jax 0.10.2, numpy 2.4.6 (CPU, Python 3.11): no error and no warning. Writing to
# the tensor changes the JAX array, which is immutable: its sum is different afterwards, while a compiled function that
# used the array as a constant keeps using the old numbers. The read-only NumPy array is changed, too.
#
# Source: the DLPack specification's C API (DLPACK_FLAG_BITMASK_READ_ONLY). PyTorch's page on torch.from_dlpack says
# that the tensor shares memory, and does not mention read-only memory.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torch==2.15.0 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PY'
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import torch

array = jnp.arange(16, dtype=jnp.float32)
by_numpy = np.from_dlpack(array).flags.writeable
constant = jax.jit(lambda: array * 1)
before = float(constant().sum())
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    torch.from_dlpack(array)[0] = 100.0
    fixed = np.zeros(4, dtype=np.float32)
    fixed.flags.writeable = False
    torch.from_dlpack(fixed)[0] = 5.0
print(f"np.from_dlpack of a JAX array is writeable: {by_numpy}")
print(f"a JAX array's sum: 120.0, after torch wrote to it {float(array.sum())}; by its compiled function {float(constant().sum())}")
print(f"a read-only NumPy array after torch wrote to it: {fixed}; warnings: {len(warned)}")
assert not by_numpy and before == 120.0
assert float(array.sum()) == 220.0 and float(constant().sum()) == 120.0, "jax"
assert fixed.tolist() == [5.0, 0.0, 0.0, 0.0], "numpy"
assert not warned, [str(warning.message) for warning in warned]
print("as seen")
PY
