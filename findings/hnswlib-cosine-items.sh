#!/usr/bin/env bash
# hnswlib: an index of cosine similarity gives back other vectors than were added; those of the other two spaces are
# kept.
#
# Guess, written down first: get_items returns what add_items was given, in every space, so that an index is also the
# place where vectors are kept, and can be built again from it with other settings.
#
# Seen on 2026-11-30 with hnswlib 0.8.0 (numpy 2.4.6, Python 3.11): in space "cosine" vectors are divided by their
# length when they are added, and only the quotients are stored: [3, 4] comes back as [0.6, 0.8]. Lengths are lost, also
# for an index of inner products that is built from them, whose neighbours are then others. A vector of zeros is at
# distance 1 from all.
#
# Source: the table of spaces in https://github.com/nmslib/hnswlib#supported-distances, and get_items ("returns a numpy
# array … of vectors that have the integer identifiers"), which do not say it; normalize_vector in python_bindings.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install hnswlib==0.8.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import hnswlib
import numpy as np

vectors = np.array([[3, 4], [10, 0], [0, 0]], np.float32)


def index(space, vectors):
    made = hnswlib.Index(space, 2)
    made.init_index(len(vectors))
    made.add_items(vectors, np.arange(len(vectors)))
    return made


kept = {space: np.array(index(space, vectors).get_items([0, 1, 2])) for space in ["l2", "ip", "cosine"]}
for space, found in kept.items():
    print(space, found.tolist())
assert np.array_equal(kept["l2"], vectors) and np.array_equal(kept["ip"], vectors)
np.testing.assert_allclose(kept["cosine"], [[0.6, 0.8], [1, 0], [0, 0]], atol=1e-6)

query = np.array([[3, 4]], np.float32)
own, again = (index("ip", from_).knn_query(query, k=1)[0].item() for from_ in (vectors, kept["cosine"]))
print("largest inner product with", query[0].tolist(), "has", own, "and, built again,", again)
assert (own, again) == (1, 0)
labels, distances = index("cosine", vectors).knn_query(query, k=3)
assert distances[0][labels[0].tolist().index(2)] == 1
PY
