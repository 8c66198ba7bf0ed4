#!/usr/bin/env bash
# PyTorch: cdist's distances depend on how many rows there are; from 26 on, a row is not at distance 0 from itself.
#
# Guess, written down first: the distance of two rows is a function of these two, so that more rows give more distances,
# and the old ones again. A row's distance from itself is 0, and the nearest of all rows is itself.
#
# Seen on 2026-11-30 with torch 2.15.0 (CPU, Python 3.11): 25 rows of 64 numbers from 100 to 101 are at 0 from
# themselves. 26 are at up to 0.6, where the distances of different rows are about 3.3, and are off by up to 2 %. They
# are then computed as the root of x·x + y·y − 2·x·y, by one matrix product, which cancels. Embeddings with a common
# mean are such rows. compute_mode="donot_use_mm_for_euclid_dist" is right for any number of rows.
#
# Source: https://docs.pytorch.org/docs/stable/generated/torch.cdist.html ("will use matrix multiplication approach to
# calculate euclidean distance (p = 2) if P > 25 or R > 25"), which does not say what that costs.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torch==2.15.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch

torch.manual_seed(0)
x = 100 + torch.rand(26, 64)
few, many = torch.cdist(x[:25], x[:25]), torch.cdist(x, x)
right = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
exact = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
other = ~torch.eye(26, dtype=torch.bool)
off = ((many - right).abs() / right)[other].max()
print(torch.__version__, f"from itself, of 25 rows: {few.diag().max()}, of 26: {many.diag().max()}")
print(f"distances of other rows: {right[other].mean():.2f}, off by up to {off:.1%}")
assert few.diag().max() == 0 and exact.diag().max() == 0 and (exact - right).abs().max() < 1e-4
assert many.diag().max() > 0.1 and off > 0.005
PY
