#!/usr/bin/env bash
# tinygrad: argmax of numbers that begin with NaN is their count, an index that does not exist; reading there gives 0.
#
# Guess, written down first: argmax returns the index of the first NaN, as PyTorch and NumPy do, or skips NaN; in any
# case an index below the length. Reading an element or an embedding at an index beyond the end raises an error.
#
# Seen on 2026-12-01 with tinygrad 0.14.0 (its PYTHON device, Python 3.11): argmax and argmin of [nan, 1, 3] are 3.
# Three logits of which all are NaN therefore choose class 3. `sort` of the same numbers returns three NaN, so 1 and 3
# are lost, and of [1, 3, nan] it returns [1, 3, inf]. An element or an embedding at index 3 of 3 is 0, without an error:
# a language model whose logits become NaN writes tokens that its vocabulary does not have, and goes on.
#
# Source: tinygrad 0.14.0, tinygrad/mixin/op.py: argmax compares all elements with the maximum and counts down from the
# length, and NaN equals nothing; sort takes maxima and minima of pairs and pads with the dtype's largest number.
# Indexing compares an arange with the indices and adds up the products.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install tinygrad==0.14.0 numpy==2.4.6
XDG_CACHE_HOME="$folder" DEV=PYTHON "$folder/venv/bin/python" - <<'PY'
import importlib.metadata

import numpy as np
from tinygrad import Tensor, nn

nan = float("nan")
print("tinygrad", importlib.metadata.version("tinygrad"))
for numbers in ([nan, 1.0, 3.0], [1.0, 3.0, nan], [nan, nan, nan]):
    values = Tensor(numbers)
    print(numbers, "argmax", values.argmax().item(), "argmin", values.argmin().item(), "sorted", values.sort()[0].numpy())
first = Tensor([nan, 1.0, 3.0])
assert first.argmax().item() == 3 and first.argmin().item() == 3
assert np.isnan(first.sort()[0].numpy()).all()
assert Tensor([1.0, 3.0, nan]).sort()[0].numpy().tolist() == [1.0, 3.0, float("inf")]
assert Tensor([[nan, nan, nan], [1.0, 2.0, 0.0]]).argmax(1).numpy().tolist() == [3, 1]

beyond = Tensor([10.0, 20.0, 30.0])[Tensor([3])].numpy().tolist()
row = nn.Embedding(3, 2)(Tensor([3])).numpy().tolist()
print("element 3 of 3:", beyond, "embedding 3 of 3:", row)
assert beyond == [0.0] and row == [[0.0, 0.0]]
PY
