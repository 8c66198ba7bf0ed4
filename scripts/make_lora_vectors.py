"""Records adapters of PEFT on single layers and on small models of transformers: crates/nn/tests/data/lora.

    pip install torch==2.13.0 transformers==5.24.0 peft==0.21.2 safetensors
    python3 scripts/make_lora_vectors.py
"""

import json
import warnings
from pathlib import Path

import peft
import torch
import transformers as hf
from peft import LoraConfig
from safetensors.torch import save_file
from torch import nn
from transformers.pytorch_utils import Conv1D

OUT = Path(__file__).resolve().parent.parent / "crates/nn/tests/data/lora"
PREFIX = "base_model.model."
STEPS = 50


class One(nn.Module):
    """A model of one layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


def random_adapter(model):
    """Values that are not close to 0, and magnitudes that differ from the base's."""
    for name, parameter in model.named_parameters():
        if "lora_magnitude_vector" in name:
            parameter.data.uniform_(0.5, 2.0)
        elif "lora_" in name:
            parameter.data.normal_(0.1, 0.4)


def layers():
    """Name, layer, its arguments for the test, its input, and the adapter's options."""
    floats = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    kinds = {
        "linear": (nn.Linear(5, 4), [5, 4], floats(2, 3, 5)),
        "plain": (nn.Linear(5, 4, bias=False), [5, 4], floats(3, 5)),
        "transposed": (Conv1D(4, 5), [5, 4], floats(2, 3, 5)),
        "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1), [4, 6, 3], floats(2, 4, 7)),
        "conv2d": (nn.Conv2d(4, 6, 3, padding=1), [4, 6, 3], floats(2, 4, 5, 4)),
        "one": (nn.Conv2d(4, 6, 1, bias=False), [4, 6, 1], floats(2, 4, 3, 3)),
        "grouped": (nn.Conv2d(4, 6, 3, groups=2), [4, 6, 3], floats(2, 4, 5, 5)),
        "conv3d": (nn.Conv3d(2, 3, 2), [2, 3, 2], floats(1, 2, 3, 3, 4)),
        "embedding": (nn.Embedding(7, 5, padding_idx=2), [7, 5], torch.tensor([[1, 2, 6], [0, 3, 1]])),
    }
    variants = {
        "lora": {"lora_alpha": 6},
        "rslora": {"lora_alpha": 6, "use_rslora": True},
        "dora": {"lora_alpha": 6, "use_dora": True},
        # So small that nothing is ever dropped, to test the code path of training.
        "dropped": {"lora_alpha": 6, "use_dora": True, "lora_dropout": 1e-12},
    }
    for kind, (layer, arguments, x) in kinds.items():
        for variant, options in variants.items():
            if kind == "grouped" and options.get("use_dora"):
                continue
            yield f"{kind}_{variant}", layer, arguments, x, options


def record_layers(tensors, cases):
    for k, layer, arguments, x, options in layers():
        layer = layer.double()
        own = {name: value.clone() for name, value in layer.state_dict().items()}
        transposed = isinstance(layer, Conv1D)
        config = LoraConfig(r=2, target_modules=["layer"], fan_in_fan_out=transposed, **options)
        model = peft.get_peft_model(One(layer), config)
        random_adapter(model)
        for name, value in own.items():
            tensors[f"{k}/{name}"] = value
        leaves = {name.split("layer.", 1)[1]: p for name, p in model.named_parameters() if p.requires_grad}
        if x.dtype == torch.float64:
            leaves["x"] = x.requires_grad_()
        tensors[f"{k}/x"] = x.detach().clone()
        y = model(x)
        cotangent = torch.randn_like(y)
        grads = torch.autograd.grad(y, list(leaves.values()), cotangent)
        for (name, leaf), grad in zip(leaves.items(), grads):
            tensors[f"{k}/{name}"] = leaf.detach().clone()
            tensors[f"{k}/{name}/g"] = grad.contiguous()
        tensors |= {f"{k}/y": y.detach().clone(), f"{k}/ct": cotangent}
        if not k.startswith("grouped"):
            model.merge_adapter()
            merged = model.base_model.model.layer.base_layer.weight
            tensors[f"{k}/merged"] = merged.detach().clone().contiguous()
            model.unmerge_adapter()
        model.unload()
        layer.load_state_dict(own)
        cases.append({"k": k, "arguments": arguments, "leaves": list(leaves), "options": options})


def models():
    """Name, config, model, and adapters by name."""
    llama = {"vocab_size": 17, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4}
    llama |= {"num_key_value_heads": 2, "intermediate_size": 12, "max_position_embeddings": 16}
    yield "llama", llama, lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**llama)), {
        "lora": {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]},
        "dora": {"r": 3, "use_dora": True, "use_rslora": True, "target_modules": ["k_proj", "down_proj"]},
        "words": {"r": 2, "target_modules": ["embed_tokens", "o_proj"]},
        "ranks": {
            "r": 2,
            "target_modules": "all-linear",
            "rank_pattern": {"q_proj": 3},
            "alpha_pattern": {"layers.1.self_attn.v_proj": 5},
        },
    }
    bert = {"vocab_size": 17, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    bert |= {"intermediate_size": 12, "max_position_embeddings": 10, "num_labels": 3}
    yield "bert", bert, lambda: hf.BertForSequenceClassification(hf.BertConfig(**bert)), {
        "lora": {"r": 2, "lora_alpha": 4, "target_modules": ["query", "value"]},
        "head": {"r": 2, "target_modules": ["query", "value"], "task_type": "SEQ_CLS"},
    }
    gpt2 = {"vocab_size": 17, "n_positions": 10, "n_embd": 8, "n_layer": 2, "n_head": 2}
    yield "gpt2", gpt2, lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2)), {
        "lora": {"r": 2, "lora_alpha": 4, "fan_in_fan_out": True, "target_modules": ["c_attn", "c_proj"]},
        "dora": {"r": 2, "use_dora": True, "fan_in_fan_out": True, "target_modules": ["c_attn"]},
    }


def record_models(cases):
    for name, config, build, adapters in models():
        base = build().eval()
        for parameter in base.parameters():
            parameter.data.normal_(0.1, 0.4)
        weights = {key: value.clone().contiguous() for key, value in base.state_dict().items()}
        if name in ("gpt2",):
            del weights["lm_head.weight"]
        save_file(weights, OUT / f"{name}.safetensors")
        ids = torch.randint(0, 17, (2, 6))
        case = {"config": config, "ids": ids.tolist(), "adapters": {}}
        for adapter, options in adapters.items():
            model = build().eval()
            model.load_state_dict(base.state_dict())
            model = peft.get_peft_model(model, LoraConfig(**options)).eval()
            random_adapter(model)
            for key, parameter in model.named_parameters():
                if "modules_to_save" in key:
                    parameter.data.normal_(0.1, 0.4)
            model.save_pretrained(OUT / f"{name}_{adapter}")
            (OUT / f"{name}_{adapter}" / "README.md").unlink(missing_ok=True)
            with torch.no_grad():
                case["adapters"][adapter] = model(input_ids=ids).logits.tolist()
        cases[name] = case


def record_training(cases, tensors):
    config = cases["llama"]["config"]
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**config))
    from safetensors.torch import load_file

    model.load_state_dict(load_file(OUT / "llama.safetensors"))
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    model = peft.get_peft_model(model, LoraConfig(**options)).train()
    start = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    tensors |= {f"training/{n.removeprefix(PREFIX)}": p for n, p in start.items()}
    batches = torch.randint(0, 17, (5, 4, 9))
    tensors["training/batches"] = batches
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        batch = batches[step % len(batches)]
        loss = nn.functional.cross_entropy(model(input_ids=batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    cases["training"] = {"options": options, "losses": losses}


def main():
    warnings.simplefilter("ignore")
    OUT.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    tensors, layer_cases, cases = {}, [], {}
    record_layers(tensors, layer_cases)
    record_models(cases)
    record_training(cases, tensors)
    save_file(tensors, OUT / "layers.safetensors")
    lines = ",\n".join(json.dumps(case) for case in layer_cases)
    (OUT / "layers.json").write_text(f"[\n{lines}\n]\n")
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items())
    (OUT / "models.json").write_text("{\n" + lines + "\n}\n")


main()
