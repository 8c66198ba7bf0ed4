#!/usr/bin/env bash
# JAX: fold_in(key, i) is the same key as split(key, n)[i], so that both ways give the same random numbers.
#
# Guess, written down first: split and fold_in derive keys in different ways. Who splits a key for the layers and folds
# the step's number into the same key for dropout breaks the rule of using a key once, and gets away with it, since no
# key derived by one comes from the other.
#
# Seen on 2026-11-30 with jax 0.10.2 (CPU, Python 3.11): all keys are equal. What is drawn for dropout in step 0 is what
# the first layer's weights were drawn from. The beginning of split(key, 8) is split(key, 4), too. With
# jax_threefry_partitionable=False, the default of old versions, all are different.
#
# Source: https://docs.jax.dev/en/latest/_autosummary/jax.random.fold_in.html and …split.html say that new keys are
# made, and nothing of each other; jax/_src/prng.py, threefry_split and threefry_fold_in: both encrypt a counter, which
# is the place in one and the number in the other.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PY'
import jax
import numpy as np


def keys():
    key = jax.random.key(0)
    split = [jax.random.split(key, count) for count in (4, 8)]
    folded = [jax.random.fold_in(key, i) for i in range(4)]
    return *split, folded


def same(one, other):
    return [np.array_equal(jax.random.key_data(a), jax.random.key_data(b)) for a, b in zip(one, other)]


split, longer, folded = keys()
weights, dropout = jax.random.normal(split[0], (4,)), jax.random.normal(folded[0], (4,))
print(jax.__version__, "split and fold_in:", same(split, folded), "split in 4 and in 8:", same(split, longer))
print("a layer's weights", weights, "and what is drawn in step 0", dropout)
assert all(same(split, folded)) and all(same(split, longer))
assert np.array_equal(weights, dropout)

jax.config.update("jax_threefry_partitionable", False)
split, longer, folded = keys()
print("not partitionable:", same(split, folded), same(split, longer))
assert not any(same(split, folded)) and not any(same(split, longer))
PY
