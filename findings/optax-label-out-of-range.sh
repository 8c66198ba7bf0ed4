#!/usr/bin/env bash
# optax's cross entropy with a label of -100 is NaN, but its gradient is finite; a label of -1 means the last class.
#
# Guess, written down first: a label outside of 0 to C-1 is either ignored, as -100 is in PyTorch, or it spoils both the
# loss and the gradient, so that a check of the loss and a check of the gradients (optax.apply_if_finite) see the same.
# -1, which scikit-learn gives to what has no label, is no class either.
#
# Seen on 2026-11-30 with optax 0.2.8 and jax 0.10.2 (CPU, x86-64, Python 3.11): for 3 classes the labels 3, 100 and
# -100 give NaN, and a gradient of softmax(logits), finite, as if no class were right: each step lowers the largest
# logits of the padding, and only the printed loss shows it. apply_if_finite, which looks at gradients, accepts it.
# -1, -2 and -3 count from the end and give a plausible loss. The same labels as rows of jax.nn.one_hot (zeros) in
# softmax_cross_entropy give a loss of 0 and a gradient of 0.
#
# Source: https://optax.readthedocs.io/en/latest/api/losses.html ("Integers specifying the correct class for each
# input"); https://docs.jax.dev/en/latest/notebooks/Common_Gotchas_in_JAX.html#out-of-bounds-indexing.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
import optax

logits = jnp.array([0.0, 1.0, 2.0])
probabilities = np.array(jax.nn.softmax(logits))


def loss(logits, label):
    return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.array(label))


for label in (0, 1, 2, -1, -2, -3, 3, 100, -100):
    value, gradient = jax.value_and_grad(loss)(logits, label)
    print(f"label {label}: loss {value}, gradient {gradient}")
    gradient = np.array(gradient)
    if -3 <= label < 3:
        np.testing.assert_allclose(value, -np.log(probabilities[label]), rtol=1e-5)
        np.testing.assert_allclose(gradient, probabilities - np.eye(3)[label], atol=1e-6)
    else:
        assert np.isnan(value)
        np.testing.assert_allclose(gradient, probabilities, atol=1e-6)

step = optax.apply_if_finite(optax.sgd(0.1), max_consecutive_errors=1)
_, state = step.update(jax.grad(loss)(logits, -100), step.init(logits))
print("apply_if_finite accepts it:", bool(state.last_finite))
assert state.last_finite

value, gradient = jax.value_and_grad(optax.softmax_cross_entropy)(logits, jax.nn.one_hot(-100, 3))
print("a row of zeros instead:", value, gradient)
assert value == 0 and not np.array(gradient).any()
PY
