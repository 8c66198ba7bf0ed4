#!/usr/bin/env bash
# The gradient of jax.numpy.clip at its bounds is a half; that of jax.nn.hard_tanh, which clips to -1 and 1, is 0 or 1.
#
# Guess, written down first: clip does not change a number that lies on a bound, so its gradient is 1, as in
# torch.clamp. Functions of one library that compute the same values have the same gradients.
#
# Seen on 2026-11-29 with jax 0.10.2 (CPU, Python 3.11): jnp.clip has 0.5 at both bounds, since it takes a maximum and a
# minimum of two numbers, and equal numbers share the gradient. At -1 and 1 hard_tanh has 1, and at 6 relu6 has 0. So
# numbers that an earlier step clipped to the bound learn at half the rate.
#
# Source: jax.numpy.clip's page says that it is equivalent to minimum(a_max, maximum(a, a_min)), and does not mention
# gradients.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install jax==0.10.2 jaxlib==0.10.2
"$folder/venv/bin/python" - <<'PY'
import jax
import jax.numpy as jnp

at = [-1.5, -1.0, 0.5, 1.0, 1.5]
clip = [float(jax.grad(lambda x: jnp.clip(x, -1.0, 1.0))(x)) for x in at]
tanh = [float(jax.grad(jax.nn.hard_tanh)(x)) for x in at]
same = all(float(jnp.clip(x, -1.0, 1.0)) == float(jax.nn.hard_tanh(x)) for x in at)
relu6 = float(jax.grad(jax.nn.relu6)(6.0))
print(jax.__version__, "at", at, "clip", clip, "hard_tanh", tanh, "equal values:", same, "relu6 at 6:", relu6)
assert same and clip == [0.0, 0.5, 1.0, 0.5, 0.0] and tanh == [0.0, 1.0, 1.0, 1.0, 0.0] and relu6 == 0.0
PY
