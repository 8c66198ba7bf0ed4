#!/usr/bin/env bash
# PyTorch: MultiheadAttention's need_weights decides whether a fully masked row is NaN or a number.
#
# Guess, written down first: need_weights says whether the weights are returned as well, and does not change the output.
# A row of which all keys are masked is NaN either way, as 0 / 0 is, or 0 either way.
#
# Seen on 2026-11-30 with torch 2.15.0 (CPU, Python 3.11): with need_weights=True (the default), such a row is NaN. With
# False, it is the output projection's bias, as if attention had given 0. In evaluation without gradients, both are NaN,
# so that False trains without a sign, and its validation is NaN. Rows with at least one key agree to 1e-6 in all.
#
# Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html (need_weights: "Set
# need_weights=False to use the optimized scaled_dot_product_attention and achieve the best performance"), which says
# nothing of rows that are masked.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torch==2.15.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from torch import nn

torch.manual_seed(0)
attention = nn.MultiheadAttention(8, 2, batch_first=True)
nn.init.normal_(attention.out_proj.bias)
x = torch.randn(2, 3, 8)
padding = torch.tensor([[True, True, True], [False, False, True]])
print(torch.__version__)
for training in (True, False):
    attention.train(training)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            given = {"key_padding_mask": padding}
            weighed = attention(x, x, x, need_weights=True, **given)[0].detach()
            alone = attention(x, x, x, need_weights=False, **given)[0].detach()
        print(f"train {training}, gradients {gradients}: with weights {weighed[0, 0, :2]}, without {alone[0, 0, :2]}")
        assert torch.allclose(weighed[1], alone[1], atol=1e-6)
        assert weighed[0].isnan().all()
        if training or gradients:
            assert torch.allclose(alone[0], attention.out_proj.bias.expand(3, 8))
        else:
            assert alone[0].isnan().all()
PY
