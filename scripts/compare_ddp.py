"""Record how PyTorch's DistributedDataParallel trains small models on Gloo.

    python3 scripts/compare_ddp.py

Writes crates/train/tests/data/ddp: `ddp.safetensors`, the initial weights and the data of each model, and
`losses.json`, for 2 and 3 ranks the mean loss of the joined batch in each of 50 steps.
crates/train/tests/all/ddp_values.rs starts from the same weights and data and must reproduce the losses.

A step takes 4 examples for each rank, in order, the first part for rank 0; at the end of the data the rest is split as
evenly as possible (`lstm`), and each rank's loss is weighted by its number of examples. `gpt` accumulates two such
batches per step and clips gradients. PyTorch's SyncBatchNorm does not support CPU tensors, so `cnn_sync` uses its
definition: plain batch normalisation in one process on the joined batch.

Made with PyTorch 2.13.0, safetensors 0.8.0 and Python 3.11 on x86-64, one thread per rank; any CPU build of PyTorch
with Gloo runs it.
"""

import contextlib
import json
import pathlib
import tempfile

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "train" / "tests" / "data" / "ddp"
STEPS, EACH, RANKS = 50, 4, [2, 3]


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 4),
    )


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(16, 16)
        self.wpe = nn.Embedding(8, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, 16)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(8))
        mask = nn.Transformer.generate_square_subsequent_mask(8)
        return self.head(self.encoder(x, mask=mask, is_causal=True)).flatten(0, 1)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return self.head(self.lstm(x.transpose(0, 1))[0][-1])


MODELS = {"mlp": mlp, "cnn": cnn, "cnn_sync": cnn, "gpt": Gpt, "lstm": Lstm}


def data(name):
    """Inputs and targets that can be learned, but not within a few steps."""
    shape = {"mlp": [48, 16], "cnn": [48, 1, 8, 8], "cnn_sync": [48, 1, 8, 8], "gpt": [48, 9], "lstm": [29, 6, 3]}[name]
    if name == "gpt":
        tokens = (torch.arange(9) * torch.randint(1, 5, [48, 1]) + torch.randint(0, 16, [48, 1])) % 16
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    x = torch.randn(shape)
    return x, (x.flatten(1) @ torch.randn(x[0].numel(), 4)).argmax(1)


def batches(x, y, joined):
    """An endless iterator of joined batches."""
    while True:
        for begin in range(0, len(x), joined):
            yield x[begin : begin + joined], y[begin : begin + joined]


def part(tensor, rank, ranks):
    return tensor.tensor_split(ranks)[rank]


def train(name, model, x, y, rank, ranks, joined):
    """The mean loss of the joined batch in each step, as trained by one of several ranks."""
    count = 2 if name == "gpt" else 1
    if name == "gpt":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    stream, losses = batches(x, y, joined), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        seen = torch.zeros(())
        for i in range(count):
            xs, ys = next(stream)
            own = part(ys, rank, ranks)
            share = len(own) / len(ys)
            waits = i + 1 < count and ranks > 1
            with model.no_sync() if waits else contextlib.nullcontext():
                loss = F.cross_entropy(model(part(xs, rank, ranks)), own.flatten())
                # DDP takes the mean over the ranks.
                (loss * share * ranks / count).backward()
            seen += loss.detach() * share / count
        if ranks > 1:
            dist.all_reduce(seen)
        if name == "gpt":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(seen.item())
    return losses


def run(rank, ranks, folder, sets, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{ranks}", rank=rank, world_size=ranks)
    for name, (state, x, y) in sets.items():
        model = MODELS[name]()
        model.load_state_dict(state)
        if name == "cnn_sync":
            # On one rank, without communication.
            losses = train(name, model, x, y, 0, 1, EACH * ranks) if rank == 0 else None
        else:
            losses = train(name, DistributedDataParallel(model), x, y, rank, ranks, EACH * ranks)
        if rank == 0:
            results[name, ranks] = losses
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    sets, stored = {}, {}
    for seed, (name, make) in enumerate(MODELS.items()):
        torch.manual_seed(seed)
        state = {key: value.clone() for key, value in make().state_dict().items()}
        sets[name] = (state, *data(name))
        stored.update({f"{name}.weights.{key}": value for key, value in state.items()})
        stored.update({f"{name}.{kind}": value for kind, value in zip("xy", sets[name][1:])})
    context = torch.multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, context.Manager() as manager:
        results = manager.dict()
        for ranks in RANKS:
            torch.multiprocessing.spawn(run, (ranks, folder, sets, results), nprocs=ranks)
        losses = {name: {str(ranks): results[name, ranks] for ranks in RANKS} for name in MODELS}
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(stored, OUT / "ddp.safetensors")
    (OUT / "losses.json").write_text(json.dumps(losses, indent=0) + "\n")
    for name, of in losses.items():
        print(name, *(f"{ranks} ranks: {seen[0]:.4f} to {seen[-1]:.4f}" for ranks, seen in of.items()), sep="  ")


if __name__ == "__main__":
    main()
