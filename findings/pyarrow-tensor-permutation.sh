#!/usr/bin/env bash
# pyarrow: a batch of transposed tensors comes back from a FixedShapeTensorArray with other axes, or not at all.
#
# Guess, written down first: from_numpy_ndarray followed by to_numpy_ndarray gives the array back, whatever its strides;
# an element by itself (to_numpy) is that row of the array.
#
# Seen on 2026-11-30 with pyarrow 26.0.1 and numpy 2.4.6 (Python 3.11): the six orders of the three axes of a tensor.
# Where two axes are exchanged, the whole array comes back. In the two orders that turn all three, as channels last to
# channels first and back do, it does not: a view of 2 × 3 × 4 × 2 becomes 2 × 4 × 2 × 3. The type's permutation is the
# inverse of the one that was applied, and is then applied as it is. For images of 4 × 5 × 3, seen as 3 × 4 × 5,
# to_numpy_ndarray raises ArrowInvalid ("strides must not involve buffer over run").
# An element by itself is wrong for four of the six orders, also where the array is right: the transpose of
# [[0, 1, 2], [3, 4, 5]] is [[0, 2], [1, 3], [2, 4]]. np.ascontiguousarray before mends all of it.
#
# Source: https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor (permutation: the
# i-th axis of the logical view is axis permutation[i] of the physical tensor);
# https://arrow.apache.org/docs/python/generated/pyarrow.FixedShapeTensorArray.html.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install pyarrow==26.0.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
from itertools import permutations

import numpy as np
import pyarrow as pa


def same(found, expected):
    return found.shape == expected.shape and bool((found == expected).all())


whole, single = {}, {}
for order in permutations(range(3)):
    x = np.arange(48, dtype=np.int32).reshape(2, 2, 3, 4).transpose(0, *(axis + 1 for axis in order))
    array = pa.FixedShapeTensorArray.from_numpy_ndarray(x)
    assert array.storage.flatten().to_pylist() == list(range(48))
    back = array.to_numpy_ndarray()
    whole[order], single[order] = same(back, x), same(array[1].to_numpy(), x[1])
    print(f"order {order}: {x.shape} comes back as {back.shape}:", end=" ")
    print(f"array {whole[order]}, element {single[order]}; the type's permutation {array.type.permutation}")
    fresh = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(x))
    assert same(fresh.to_numpy_ndarray(), x) and same(fresh[1].to_numpy(), x[1])
assert [order for order in whole if not whole[order]] == [(1, 2, 0), (2, 0, 1)]
assert [order for order in single if single[order]] == [(0, 1, 2), (0, 2, 1)]

kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
flat = pa.FixedSizeListArray.from_arrays(pa.array(range(6), pa.int32()), 6)
array = pa.ExtensionArray.from_storage(kind, flat)
print("the transpose:", array.to_numpy_ndarray()[0].tolist(), "by itself:", array[0].to_numpy().tolist())
assert array.to_numpy_ndarray()[0].tolist() == [[0, 3], [1, 4], [2, 5]]
assert array[0].to_numpy().tolist() == [[0, 2], [1, 3], [2, 4]]

images = np.zeros((2, 4, 5, 3), np.uint8).transpose(0, 3, 1, 2)
try:
    pa.FixedShapeTensorArray.from_numpy_ndarray(images).to_numpy_ndarray()
    raise SystemExit("images come back")
except pa.ArrowInvalid as error:
    print("images:", error)
PY
