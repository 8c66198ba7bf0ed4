"""PyTorch's half of `cargo xtask cross`. See judges/ours/src/bin/crossing.rs.

    python3 scripts/cross_pytorch.py DIR

Loads each state dict in DIR/polygrad into the class of PyTorch, torchvision or transformers that the model is named
after, strictly and as it is, and compares outputs (to 1e-5) and gradients (to 1e-4) with Polygrad's. Then writes the
same files with new random weights to DIR/pytorch.

Needs PyTorch 2.13, transformers 5, torchvision 0.29 and safetensors.
"""

import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.models import resnet18
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel


def models():
    """(name, model, its call, the shapes of its inputs or a number of tokens)"""
    recurrent = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    layer = {"dim_feedforward": 64, "dropout": 0.0, "activation": "gelu", "batch_first": True}
    drop = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    gpt2 = GPT2Config(vocab_size=101, n_positions=32, n_embd=48, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0, **drop)
    bert = BertConfig(
        vocab_size=101,
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=96,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=32,
        num_labels=5,
    )
    first = lambda m, x: m(*x)[0]
    whole = lambda m, x: m(*x)
    logits = lambda m, x: m(input_ids=x[0]).logits
    yield "LSTM", nn.LSTM(24, 32, **recurrent), first, [(3, 9, 24)]
    yield "GRU", nn.GRU(24, 32, **recurrent), first, [(3, 9, 24)]
    yield "MultiheadAttention", nn.MultiheadAttention(32, 4, batch_first=True), first, [(2, 7, 32), (2, 5, 32), (2, 5, 32)]
    yield "TransformerEncoderLayer", nn.TransformerEncoderLayer(32, 4, **layer), whole, [(2, 7, 32)]
    decoder = nn.TransformerDecoderLayer(32, 4, norm_first=True, **layer)
    yield "TransformerDecoderLayer", decoder, whole, [(2, 7, 32), (2, 5, 32)]
    yield "ResNet18", resnet18(num_classes=10).eval(), whole, [(2, 3, 64, 64)]
    yield "GPT2", GPT2LMHeadModel(gpt2).train(), logits, (2, 17)
    yield "BERT", BertForSequenceClassification(bert).train(), logits, (3, 19)


def answers(model, call, inputs, weights=None):
    model.zero_grad()
    inputs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    output = call(model, inputs)
    weights = torch.randn_like(output) if weights is None else weights
    (output * weights).sum().backward()
    out = {"output": output.detach(), "weights": weights}
    for i, x in enumerate(inputs):
        out[f"input.{i}"] = x.detach()
        if x.grad is not None:
            out[f"gradient.input.{i}"] = x.grad
    for name, parameter in model.named_parameters():
        out[f"gradient.{name}"] = parameter.grad
    return {name: value.contiguous() for name, value in out.items()}


def off(a, b):
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-3)).item()


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    (folder / "pytorch").mkdir(parents=True, exist_ok=True)
    fine = True
    for name, model, call, shapes in models():
        model.load_state_dict(load_file(folder / "polygrad" / f"{name}.safetensors"), strict=True)
        given = load_file(folder / "polygrad" / f"{name}.answers.safetensors")
        inputs = [given[f"input.{i}"] for i in range(len(shapes) if isinstance(shapes, list) else 1)]
        truth = answers(model, call, inputs, given["weights"])
        same = truth.keys() == given.keys()
        output = off(given["output"], truth["output"])
        gradient = max(off(given[key], truth[key]) for key in truth if key.startswith("gradient."))
        holds = same and output <= 1e-5 and gradient <= 1e-4
        fine &= holds
        verdict = "ok" if holds else "FAIL"
        print(f"Polygrad -> PyTorch  {name:<24} output {output:.1e}, gradients {gradient:.1e}  {verdict}")

        with torch.no_grad():
            for value in model.parameters():
                value.add_(torch.randn_like(value) * 0.02)
        if isinstance(shapes, list):
            inputs = [torch.randn(shape) for shape in shapes]
        else:
            inputs = [torch.randint(0, 101, shapes)]
        # A tied weight is listed under both names, and safetensors requires two separate tensors.
        state = {key: value.clone() for key, value in model.state_dict().items()}
        save_file(state, folder / "pytorch" / f"{name}.safetensors")
        save_file(answers(model, call, inputs), folder / "pytorch" / f"{name}.answers.safetensors")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
