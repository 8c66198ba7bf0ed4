#!/usr/bin/env bash
# PyTorch: ReduceLROnPlateau takes a negative loss that only grows for one that improves.
#
# Guess, written down first: with mode "min", a loss counts as better if it is below the best one so far, by a relative
# threshold of 1e-4. A loss that grows in every epoch never is, whatever its sign, and so the rate is reduced.
#
# Seen on 2026-11-30 with torch 2.15.0 (CPU, Python 3.11): a loss from -100 that grows by 0.009 in each of 200 epochs is
# better every time, the "best" one is the last and worst, and the rate is never reduced. The same numbers plus 1000
# reduce it. Better means below best · (1 − threshold), which for a negative best lies above it. A negative
# log-likelihood of densities or a WGAN's loss is such a loss, and mode "max" has the same with negative scores.
# threshold_mode="abs" is right.
#
# Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html
# ("the dynamic threshold is computed as: … best * (1 - threshold)"), which says nothing of a sign.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torch==2.15.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau


def after(losses, mode, **options):
    """The best loss and the rate after these, beginning at a rate of 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = ReduceLROnPlateau(optimizer, mode=mode, patience=5, factor=0.5, **options)
    for loss in losses:
        optimizer.step()
        schedule.step(loss)
    return schedule.best, optimizer.param_groups[0]["lr"]


worse = [-100 + 0.009 * epoch for epoch in range(200)]
print(torch.__version__)
relative, absolute = after(worse, "min"), after(worse, "min", threshold_mode="abs")
shifted, scores = after([loss + 1000 for loss in worse], "min"), after([-200 - loss for loss in worse], "max")
print(f"the loss from {worse[0]} to {worse[-1]}: best {relative[0]}, rate {relative[1]}")
print(f"absolute threshold: best {absolute[0]}, rate {absolute[1]:.2g}")
print(f"the loss plus 1000: best {shifted[0]}, rate {shifted[1]:.2g}")
print(f"scores that fall from -100, mode max: best {scores[0]}, rate {scores[1]}")
assert relative == (worse[-1], 1.0) and scores[1] == 1.0 and scores[0] == -200 - worse[-1]
assert absolute[0] == -100 and absolute[1] < 1e-3
assert shifted[0] == 900 and shifted[1] < 1e-3
PY
