#!/usr/bin/env bash
# USearch: an index of inner products with dtype "i8" finds the neighbours of cosine similarity instead.
#
# Guess, written down first: dtype "i8" stores each vector with 8 bits per number, by some scale, and costs a little
# precision. Neighbours by inner product or by Euclidean distance stay almost the same, since the metric is the same.
#
# Seen on 2026-11-30 with usearch 2.26.6 (CPU, Python 3.11), 1,000 vectors of 16 numbers: each is divided by its own
# length before it is stored, so lengths are lost. "f16" finds the nearest by inner product for all queries, "i8" for
# 18 %, and the nearest by cosine for 96 %. Two vectors of which one is 100 times the other are at Euclidean distance 0.
# Maximum inner product, as recommenders use it, is thus not what is searched.
#
# Source: https://github.com/unum-cloud/usearch, README.md, "Memory Efficiency, Downcasting, and Quantization": i8 is
# "only valid for cosine-like metrics", and vectors are "normalized to unit length". Index takes it with any metric.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install usearch==2.26.6 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import usearch
from usearch.index import Index

random = np.random.default_rng(0)
vectors = (random.normal(size=(1000, 16)) * random.uniform(0.2, 5, (1000, 1))).astype(np.float32)
queries = random.normal(size=(200, 16)).astype(np.float32)
by_product = (queries @ vectors.T).argmax(1)
by_cosine = (queries @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).T).argmax(1)
share = {}
print(usearch.__version__)
for dtype in ("f32", "f16", "i8"):
    index = Index(ndim=16, metric="ip", dtype=dtype)
    index.add(np.arange(1000), vectors)
    keys = np.asarray(index.search(queries, 1, exact=True).keys).ravel()
    share[dtype] = (keys == by_product).mean(), (keys == by_cosine).mean()
    print(f"{dtype}: the nearest by inner product {share[dtype][0]:.0%}, by cosine {share[dtype][1]:.0%}")
assert share["f32"][0] > 0.99 and share["f16"][0] > 0.95
assert share["i8"][0] < 0.3 and share["i8"][1] > 0.9

for dtype in ("f32", "i8"):
    index = Index(ndim=16, metric="l2sq", dtype=dtype)
    index.add(np.arange(2), np.stack([vectors[0], vectors[0] * 100]))
    distances = np.asarray(index.search(vectors[0], 2, exact=True).distances)
    print(dtype, "squared distance from a vector to 100 times itself:", distances.max())
    assert (distances.max() > 1e4) if dtype == "f32" else (distances.max() == 0)
PY
