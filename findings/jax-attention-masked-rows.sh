#!/usr/bin/env bash
# JAX's dot_product_attention: a query that may see nothing gets the mean of all values, padding included; one that is
# beyond query_seq_lengths gets 0.
#
# Guess, written down first: a query whose keys are all masked gets 0, as in PyTorch and in ONNX's Attention 24, or NaN,
# which is what a softmax of nothing but minus infinity is; and no value beyond key_value_seq_lengths is ever read.
#
# Seen on 2026-11-30 with jax 0.10.2, flax 0.12.8 and numpy 2.4.6 (CPU, x86-64, Python 3.11): masked keys get a large
# negative number instead of minus infinity, so that they are all equal again: the result is the mean of all values.
# With a length of 2 of 4, it is the mean of all 4, where the last two are padding: another content of the padding gives
# another output. A row of padding (length 0) gets that mean, too. By query_seq_lengths the row is 0. Flax's
# dot_product_attention gives the mean as well, and jax.nn.softmax with where=False everywhere gives 0.
#
# Source: https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html (mask and
# key_value_seq_lengths, with no word on rows without a key); _apply_masks in jax/_src/nn/functions.py.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

query, key = jnp.ones((1, 2, 1, 1)), jnp.ones((1, 4, 1, 1))
values = {"padding of 0": [10.0, 20.0, 0.0, 0.0], "padding of 99": [10.0, 20.0, 99.0, 99.0]}
# The first query may see all keys, the second none.
mask = jnp.array([[True] * 4, [False] * 4])[None, None]


def attend(value, **options):
    value = jnp.array(value).reshape(1, 4, 1, 1)
    return np.array(jax.nn.dot_product_attention(query, key, value, **options)).ravel()


lengths = jnp.array([2])
for name, value in values.items():
    found = attend(value, mask=mask, key_value_seq_lengths=lengths)
    print(f"{name}, 2 of 4 keys, the second query masked: {found}")
    np.testing.assert_allclose(found, [15, np.mean(value)], rtol=1e-6)
    found = attend(value, key_value_seq_lengths=jnp.array([0]))
    print(f"{name}, 0 of 4 keys: {found}")
    np.testing.assert_allclose(found, [np.mean(value)] * 2, rtol=1e-6)
    found = attend(value, key_value_seq_lengths=lengths, query_seq_lengths=jnp.array([1]))
    print(f"{name}, 2 of 4 keys, 1 of 2 queries: {found}")
    np.testing.assert_allclose(found, [15, 0], rtol=1e-6)
    found = linen.dot_product_attention(query, key, jnp.array(value).reshape(1, 4, 1, 1), mask=mask)
    np.testing.assert_allclose(np.array(found).ravel()[1], np.mean(value), rtol=1e-6)
assert jax.nn.softmax(jnp.zeros(2), where=jnp.array([False, False])).tolist() == [0, 0]
PY
