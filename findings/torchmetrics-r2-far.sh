#!/usr/bin/env bash
# TorchMetrics: R2Score is far too good for targets that are far from 0.
#
# Guess, written down first: R² is at most 1, and does not change if the same number is added to targets and
# predictions. PearsonCorrCoef in the same package does not change then, either.
#
# Seen on 2026-11-30 with torchmetrics 1.9.0 and torch 2.15.0 (CPU, Python 3.11): for targets of deviation 1, and
# predictions that are off by 0.5, R² is 0.777 around 0, as scikit-learn has it, 0.795 around 1,000 and 0.990 around
# 10,000, where scikit-learn still has 0.777; above 1 for other random numbers. ExplainedVariance has the same. The
# metric keeps the sums of y and of y² in f32, and their difference cancels. Prices and years are such targets. Sums in
# f64 (set_dtype before the first update) are right.
#
# Source: https://lightning.ai/docs/torchmetrics/stable/regression/r2_score.html, which defines R² by squared distances
# from the mean; src/torchmetrics/functional/regression/r2.py, _r2_score_compute: sum_squared_obs − sum_obs · mean_obs.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torchmetrics==1.9.0 torch==2.15.0 scikit-learn==1.9.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
import torchmetrics
from sklearn.metrics import r2_score
from torchmetrics import ExplainedVariance, PearsonCorrCoef, R2Score

torch.manual_seed(0)
targets = torch.randn(1000)
predicted = targets + 0.5 * torch.randn(1000)


def found(metric, middle, dtype=torch.float32):
    metric = metric.set_dtype(dtype)
    for begin in range(0, 1000, 100):
        part = slice(begin, begin + 100)
        metric.update((predicted[part] + middle).to(dtype), (targets[part] + middle).to(dtype))
    return float(metric.compute())


print(torchmetrics.__version__)
off, far = {}, {}
for middle in (0, 1_000, 10_000):
    right = r2_score((targets + middle).double(), (predicted + middle).double())
    far[middle] = found(R2Score(), middle), found(ExplainedVariance(), middle)
    off[middle] = abs(far[middle][0] - right)
    wide = found(R2Score(), middle, torch.float64)
    print(f"around {middle}: R2Score {far[middle][0]:.4f}, ExplainedVariance {far[middle][1]:.4f}, right {right:.4f}")
    print(f"    in f64 {wide:.4f}, Pearson's {found(PearsonCorrCoef(), middle):.4f}")
    assert abs(wide - right) < 1e-4 and abs(found(PearsonCorrCoef(), middle) - 0.9) < 0.03
assert off[0] < 1e-4 and off[1_000] > 0.002 and off[10_000] > 0.1
PY
