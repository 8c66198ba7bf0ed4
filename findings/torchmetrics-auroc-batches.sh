#!/usr/bin/env bash
# TorchMetrics: the area under a ROC curve of logits depends on how they are divided into batches.
#
# Guess, written down first: BinaryAUROC keeps all predictions (thresholds=None) and ranks them at the end. So batches
# do not matter, and neither does a sigmoid, which keeps the order: logits are as good as probabilities.
#
# Seen on 2026-11-30 with torchmetrics 1.9.0 and torch 2.15.0 (CPU, Python 3.11): 2,000 logits have an area of 0.863 at
# once, 0.858 in batches of 4, 0.831 in batches of 2, and 0.791 one by one. scikit-learn's is 0.863. A batch of which
# a logit lies outside of [0, 1] gets a sigmoid, and any other does not; then both kinds are ranked together. Average
# precision has the same.
#
# Source: https://lightning.ai/docs/torchmetrics/stable/classification/auroc.html ("If preds has values outside [0,1]
# range we consider the input to be logits and will auto apply sigmoid per element"), which says nothing of batches.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torchmetrics==1.9.0 torch==2.15.0 scikit-learn==1.9.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
import torchmetrics
from sklearn.metrics import average_precision_score, roc_auc_score
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

generator = torch.Generator().manual_seed(0)
logits = torch.randn(2000, generator=generator)
labels = (torch.rand(2000, generator=generator) < torch.sigmoid(2 * logits)).long()


def found(kind, batch, predicted):
    metric = kind()
    for begin in range(0, 2000, batch):
        metric.update(predicted[begin : begin + batch], labels[begin : begin + batch])
    return float(metric.compute())


print(torchmetrics.__version__)
for kind, judge in ((BinaryAUROC, roc_auc_score), (BinaryAveragePrecision, average_precision_score)):
    right = judge(labels, logits)
    areas = {batch: found(kind, batch, logits) for batch in (1, 2, 4, 2000)}
    print(kind.__name__, "by scikit-learn", right, "in batches of", areas)
    assert abs(areas[2000] - right) < 1e-5
    assert areas[1] < areas[2] - 0.01 and areas[2] < areas[4] - 0.01 and areas[4] < right - 0.002
    assert abs(found(kind, 1, torch.sigmoid(logits)) - right) < 1e-5
PY
