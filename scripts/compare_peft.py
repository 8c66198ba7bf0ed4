"""Loads the adapter of a `polygrad finetune` run with PEFT, strictly, and compares logits with those of what
`polygrad merge` made of the run. Both are computed in f64, so that only the rounding of the merged weights counts.

    pip install torch transformers==5.24.0 peft==0.21.2 safetensors
    polygrad merge RUN --out MERGED.safetensors
    python3 scripts/compare_peft.py RUN MERGED.safetensors
"""

import json
import sys
from pathlib import Path

import torch
from peft import PeftConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

MOST = 1e-5


def main():
    run, merged = Path(sys.argv[1]), sys.argv[2]
    adapter = run / "adapter"
    base = json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    load = lambda: AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64).eval()
    # Names and shapes one by one: from_pretrained alone says nothing of what it misses.
    tensors = load_file(adapter / "adapter_model.safetensors")
    wanted = get_peft_model_state_dict(get_peft_model(load(), PeftConfig.from_pretrained(adapter)))
    own = {name: value for name, value in wanted.items() if "base_layer" not in name}
    assert own.keys() == tensors.keys(), own.keys() ^ tensors.keys()
    assert all(own[name].shape == value.shape for name, value in tensors.items())

    ours = PeftModel.from_pretrained(load(), adapter).eval()
    whole = load()
    result = whole.load_state_dict(load_file(merged), strict=False)
    assert not result.unexpected_keys, result
    torch.manual_seed(0)
    ids = torch.randint(0, whole.config.vocab_size, (4, 12))
    with torch.no_grad():
        found, expected, before = (model(ids).logits for model in (ours, whole, load()))
    error = ((found - expected).abs() / (1 + expected.abs())).max().item()
    changed = (expected - before).abs().max().item()
    print(f"{len(tensors)} tensors; logits differ by {error:.1e} from the merged model's, by {changed:.1e} from the base's")
    assert error <= MOST < changed


main()
