#!/usr/bin/env bash
# MLX: cosine_similarity_loss is 1 for equal vectors and -1 for opposite ones, so that minimizing it drives pairs apart.
#
# Guess, written down first: a loss is small for what it is called after. Like PyTorch's CosineEmbeddingLoss, which is
# 1 − cos for pairs that belong together, and Keras' CosineSimilarity, which is −cos, it brings two vectors into one
# direction if it is minimized.
#
# Seen on 2026-11-30 with mlx 0.32.4 (mlx-cpu, Python 3.11): it is the similarity itself. 200 steps of gradient descent
# on it, from two vectors at almost a right angle, end at opposite ones, of similarity -1. The module's mse_loss of
# equal inputs is 0.
#
# Source: https://ml-explore.github.io/mlx/build/html/python/nn/losses.html, cosine_similarity_loss ("Computes the
# cosine similarity between the two inputs", and the formula of the similarity, without a sign).
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install "mlx[cpu]==0.32.4" numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import importlib.metadata

import mlx.core as mx
from mlx.nn.losses import cosine_similarity_loss, mse_loss

mx.set_default_device(mx.cpu)
one = mx.array([[1.0, 0.0]])
equal, opposite = cosine_similarity_loss(one, one).item(), cosine_similarity_loss(one, -one).item()


def trained(x):
    """A vector that was moved by gradient descent on the loss between it and `one`."""
    loss = mx.grad(lambda x: cosine_similarity_loss(x, one, reduction="sum"))
    for _ in range(200):
        x = x - 0.1 * loss(x)
        mx.eval(x)
    return x


found = trained(mx.array([[0.1, 1.0]]))
similarity = (found[0, 0] / mx.sqrt((found * found).sum())).item()
print("mlx", importlib.metadata.version("mlx"), "equal", equal, "opposite", opposite, "after training", similarity)
assert abs(equal - 1) < 1e-5 and abs(opposite + 1) < 1e-5
assert similarity < -0.99
assert mse_loss(one, one).item() == 0
PY
