#!/usr/bin/env bash
# safetensors.numpy 0.8.0 writes a transposed array in the order of its memory, under the shape of the transposed one.
#
# Guess, written down first: an array whose elements do not lie in row-major order is copied into it, as 0.7.0 does, or
# refused, as safetensors.torch does; what is loaded equals what was saved.
#
# Seen on 2026-11-29 with numpy 2.4.6 (Python 3.11): 0.7.0 loads what was saved. 0.8.0 saves a transposed matrix, one in
# Fortran's order, and every second element of a vector without an error or a warning, and other numbers are loaded,
# with the right shape and dtype. np.ascontiguousarray before saving mends it.
# Matrices of scikit-learn's PCA and solvers of LAPACK are often in Fortran's order.
#
# Source: the docstring of safetensors.numpy.save_file ("Tensors need to be contiguous and dense");
# https://github.com/safetensors/safetensors/issues/825, open on that day.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install numpy==2.4.6
cat >"$folder/round_trip.py" <<'PY'
import numpy as np
import safetensors
from safetensors.numpy import load, save

matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
arrays = {
    "row-major": matrix,
    "transposed": matrix.T,
    "Fortran's order": np.asfortranarray(matrix),
    "every second": np.arange(12, dtype=np.float32)[::2],
}
wrong = []
for name, array in arrays.items():
    loaded = load(save({"x": array}))["x"]
    assert loaded.shape == array.shape and loaded.dtype == array.dtype
    if not np.array_equal(loaded, array):
        wrong.append(name)
        print(f"{safetensors.__version__}: {name}: saved {array.tolist()}, loaded {loaded.tolist()}")
    copied = load(save({"x": np.ascontiguousarray(array)}))["x"]
    np.testing.assert_array_equal(copied, array)
print(f"{safetensors.__version__}: {len(wrong)} of {len(arrays)} are loaded with other numbers")
expected = {"0.7.0": [], "0.8.0": ["transposed", "Fortran's order", "every second"]}
assert wrong == expected[safetensors.__version__], wrong
PY
for version in 0.7.0 0.8.0; do
    "$folder/venv/bin/pip" -q install "safetensors==$version"
    "$folder/venv/bin/python" "$folder/round_trip.py"
done
