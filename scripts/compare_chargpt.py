"""Trains the model of `polygrad train chargpt` with PyTorch, on the same batches, and lets transformers write with it.

    cargo build --release
    for seed in 0 1 2; do target/release/polygrad train chargpt --epochs 1 --threads 2 --seed $seed --out chargpt-$seed; done
    pip install torch transformers safetensors numpy
    python3 scripts/compare_chargpt.py chargpt-0 chargpt-1 chargpt-2

Prints for each run the validation loss and the characters per second of training, of Polygrad and of PyTorch. Then
prints the characters per second of greedy generation with a cache, one text at a time, with the weights of the last
run. For Polygrad this is the time of a whole process, including loading the model.
"""

import csv
import gzip
import json
import math
import pathlib
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent.parent
EVALUATED = 64


def philox(seed, counters):
    """The first 64 bits of Philox-4x32-10 for counters under a key, each an array of 64 bits."""
    low = np.uint64(0xFFFFFFFF)
    seed, counters = np.broadcast_arrays(np.asarray(seed, np.uint64), np.asarray(counters, np.uint64))
    key = [seed & low, seed >> np.uint64(32)]
    state = [counters & low, counters >> np.uint64(32), np.zeros_like(counters), np.zeros_like(counters)]
    for _ in range(10):
        a, b = state[0] * np.uint64(0xD2511F53), state[2] * np.uint64(0xCD9E8D57)
        high = np.uint64(32)
        state = [(b >> high) ^ state[1] ^ key[0], b & low, (a >> high) ^ state[3] ^ key[1], a & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return (state[0] << np.uint64(32)) | state[1]


def below(bits, bound):
    return int(bits) * bound >> 64


def windows(seed, epoch, count, bound):
    """Start positions of an epoch's sequences, drawn for each example as in crates/data/src/rng.rs."""
    counter = 1 << 63 | epoch << 33
    keys = philox(seed, np.arange(count, dtype=np.uint64) + np.uint64(counter + (1 << 32)))
    return [below(bits, bound) for bits in philox(keys, np.zeros(count, np.uint64))]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        qkv = self.attention(self.ln_1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(n, length, width))
        return x + self.outer(F.gelu(self.inner(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2, with GPT-2's initialization."""

    def __init__(self, settings):
        super().__init__()
        width, layers = settings["width"], settings["layers"]
        self.tokens = nn.Embedding(len(settings["characters"]), width)
        self.places = nn.Embedding(settings["context"], width)
        self.blocks = nn.ModuleList(Block(width, settings["heads"]) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() > 1:
                residual = ".projection." in name or ".outer." in name
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.ln(x) @ self.tokens.weight.t()


def factor(step, steps):
    """The learning rate schedule of crates/cli/src/chargpt."""
    warm_up = steps // 20
    if step < warm_up:
        return 1 / 3 + (1 - 1 / 3) * step / warm_up
    return (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up))) / 2


def trained(settings, tokens):
    """The final validation loss, and the seconds of training."""
    context, batch = settings["context"], settings["batch_size"]
    end = len(tokens) - len(tokens) // 10
    count = end // context
    steps = -(-count // batch)
    torch.manual_seed(settings["seed"])
    model = Gpt(settings)
    optimizer = torch.optim.AdamW(model.parameters(), settings["lr"], (0.9, 0.99), weight_decay=0.1, fused=True)

    def loss(begins):
        rows = torch.stack([tokens[begin : begin + context + 1] for begin in begins])
        logits = model(rows[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    begins = windows(settings["seed"], 0, count, end - context)
    started = time.perf_counter()
    for step, at in enumerate(range(0, count, batch)):
        for group in optimizer.param_groups:
            group["lr"] = settings["lr"] * factor(step, steps)
        optimizer.zero_grad()
        loss(begins[at : at + batch]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - started
    begins, total = list(range(end, len(tokens) - context, context)), 0.0
    with torch.no_grad():
        for at in range(0, len(begins), EVALUATED):
            part = begins[at : at + EVALUATED]
            total += loss(part).item() * len(part)
    return total / len(begins), seconds, count * context


def written_by_transformers(run, settings, prompt, count):
    """Returns characters per second, and the text."""
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(settings["characters"]),
        n_positions=settings["context"],
        n_embd=settings["width"],
        n_layer=settings["layers"],
        n_head=settings["heads"],
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config).eval()
    missing, unexpected = model.load_state_dict(load_file(run / "model.safetensors"), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    ids = torch.tensor([[settings["characters"].index(c) for c in prompt]])
    mask, best = torch.ones_like(ids), math.inf
    for _ in range(3):
        started = time.perf_counter()
        row = model.generate(ids, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0)[0].tolist()
        best = min(best, time.perf_counter() - started)
    return count / best, "".join(settings["characters"][id] for id in row)


def written_here(run, threads, prompt, count):
    """As above; the time is that of the whole process, including loading the model."""
    program = HERE / "target/release/polygrad"
    line = [program, "generate", run, "--prompt", prompt, "--tokens", str(count), "--temperature", "0"]
    best = math.inf
    for _ in range(10):
        started = time.perf_counter()
        text = subprocess.run([*line, "--threads", str(threads)], check=True, capture_output=True, text=True).stdout
        best = min(best, time.perf_counter() - started)
    return count / best, text.removesuffix("\n")


def main():
    with gzip.open(HERE / "data/shakespeare/shakespeare.txt.gz", "rt", encoding="utf-8", newline="") as file:
        text = file.read()
    ratios = []
    for run in map(pathlib.Path, sys.argv[1:]):
        settings = json.loads((run / "config.json").read_text())
        # The seconds in metrics.csv include the evaluations in between.
        assert settings["epochs"] == 1, "give runs of one epoch"
        threads = settings["threads"] or torch.get_num_threads()
        torch.set_num_threads(threads)
        places = {c: i for i, c in enumerate(settings["characters"])}
        theirs, seconds, characters = trained(settings, torch.tensor([places[c] for c in text]))
        rows = list(csv.DictReader((run / "metrics.csv").open()))
        own = float([row for row in rows if row["split"] == "validation"][-1]["loss"])
        own_seconds = float([row for row in rows if row["split"] == "train"][-1]["seconds"])
        ratios.append(own / theirs)
        print(
            f"seed {settings['seed']}, {threads} threads: validation loss {own:.4f} here, {theirs:.4f} with PyTorch;"
            f" {characters / own_seconds:,.0f} and {characters / seconds:,.0f} characters/s: {seconds / own_seconds:.2f} times",
            flush=True,
        )
    mean = sum(ratios) / len(ratios)
    print(f"validation loss: {100 * (mean - 1):+.2f} % of PyTorch's on average")
    prompt, count = "To be", 120
    theirs, their_text = written_by_transformers(run, settings, prompt, count)
    own, own_text = written_here(run, threads, prompt, count)
    print(
        f"generation: {own:,.0f} characters/s here, {theirs:,.0f} with transformers: {own / theirs:.1f} times;"
        f" the same text: {'yes' if own_text == their_text else 'no'}"
    )


main()
