"""Loads the adapter of a `polygrad finetune` run with PEFT, strictly, and compares the model's outputs (generated text,
classes or vectors) with those of the model that `polygrad merge` wrote. Both are computed in f64, so that they differ
only by the rounding of the merged weights.

    pip install torch transformers==5.24.0 peft==0.21.2 safetensors
    polygrad merge RUN --out MERGED
    python3 scripts/compare_peft.py RUN MERGED
"""

import json
import sys
from pathlib import Path

import torch
from peft import PeftConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

MOST = 1e-5


def said(output):
    return output.logits if "logits" in output else output.last_hidden_state


def kind(merged):
    """The class for the merged folder, and the arguments for building its base model."""
    config = json.loads((merged / "config.json").read_text())
    if config["architectures"] == ["BertForSequenceClassification"]:
        return AutoModelForSequenceClassification, {"num_labels": len(config["id2label"])}
    return (AutoModel if (merged / "modules.json").exists() else AutoModelForCausalLM), {}


def main():
    run, merged = Path(sys.argv[1]), Path(sys.argv[2])
    adapter = run / "adapter"
    base = json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    auto, options = kind(merged)
    load = lambda: auto.from_pretrained(base, dtype=torch.float64, ignore_mismatched_sizes=True, **options).eval()
    # Checks names and shapes one by one, since from_pretrained does not report missing tensors.
    tensors = load_file(adapter / "adapter_model.safetensors")
    wanted = get_peft_model_state_dict(get_peft_model(load(), PeftConfig.from_pretrained(adapter)))
    own = {name: value for name, value in wanted.items() if "base_layer" not in name}
    assert own.keys() == tensors.keys(), own.keys() ^ tensors.keys()
    assert all(own[name].shape == value.shape for name, value in tensors.items())

    ours = PeftModel.from_pretrained(load(), adapter).eval()
    whole = auto.from_pretrained(merged, dtype=torch.float64).eval()
    torch.manual_seed(0)
    ids = torch.randint(0, whole.config.vocab_size, (4, 12))
    with torch.no_grad():
        found, expected, before = (said(model(ids)) for model in (ours, whole, load()))
    error = ((found - expected).abs() / (1 + expected.abs())).max().item()
    changed = (expected - before).abs().max().item()
    print(f"{len(tensors)} tensors; logits differ by {error:.1e} from the merged model's, by {changed:.1e} from the base's")
    assert error <= MOST < changed


main()
