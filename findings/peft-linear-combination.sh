#!/usr/bin/env bash
# PEFT's add_weighted_adapter with "linear" does not add the adapters' changes of a weight.
#
# Guess, written down first: the linear combination of two LoRA adapters with weights 0.5 and 0.5 changes the model's
# weight by half the first adapter's change plus half the second's; with 1 and 1, by their sum.
#
# Seen on 2026-11-29 with peft 0.21.0 and torch 2.15.0 (CPU, Python 3.11): A and B are summed separately, scaled by the
# roots of the weights, so the product also contains B of one adapter times A of the other. For random adapters these
# terms are as large as the sum itself: the result is off by 80 to 102 % of it. "cat" and "svd" (of a sufficient rank)
# give the sum, to rounding; so does "linear" for one adapter, or with weights 1 and 0.
#
# Source: the documentation of add_weighted_adapter (peft.tuners.lora.model) says that adapters are merged with the
# given weights, and that ranks have to be equal; it does not say that A and B are summed separately.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torch==2.15.0 transformers==5.24.0 peft==0.21.0
"$folder/venv/bin/python" -W ignore - <<'PY'
import peft
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return self.linear(x)


config = LoraConfig(r=4, lora_alpha=4, target_modules=["linear"], init_lora_weights=False)
model = get_peft_model(Net(), config, adapter_name="first")
model.add_adapter("second", config)
layer = model.base_model.model.linear
first, second = (layer.get_delta_weight(name).detach() for name in ("first", "second"))

print(peft.__version__, torch.__version__)
for number, weights in enumerate([(1.0, 0.0), (0.5, 0.5), (0.7, 0.3), (1.0, 1.0)]):
    total = weights[0] * first + weights[1] * second
    off = {}
    for kind, options in [("linear", {}), ("cat", {}), ("svd", {"svd_rank": 8})]:
        name = f"{kind}{number}"
        model.add_weighted_adapter(["first", "second"], list(weights), name, combination_type=kind, **options)
        off[kind] = float((layer.get_delta_weight(name).detach() - total).norm() / total.norm())
    print(weights, "relative difference from the sum:", off)
    assert off["cat"] < 1e-5 and off["svd"] < 1e-5
    assert (off["linear"] < 1e-5) if 0.0 in weights else (0.5 < off["linear"] < 1.5)
PY
