"""Records how PyTorch trains two small models: the trajectories that Polygrad must follow.

    python3 scripts/make_trajectories.py

Writes crates/nn/tests/data/trajectories: `mlp.safetensors` and `cnn.safetensors`, the
initial weights (PyTorch's own, f32), and `losses.json`, for each model and optimizer the
loss before each of 100 steps and a fingerprint of the weights after the last one.

Step i takes the training images (7919 k) mod 20000 for k in [32 i, 32 i + 32) of
data/fashion-mnist, the bytes divided by 255 in f32, of shape [32, 1, 28, 28] for `cnn` and
[32, 784] for `mlp`; the loss is the mean cross entropy. Everything runs from the same f32
weights and pixels, in f32 (`losses`, `final`) and in f64 (`losses_f64`, `final_f64`).

Rounding alone can flip a ReLU or a max pool's choice, and a fast training run amplifies that: the
SGD runs of `cnn` at lr 0.05 end percents away from their own f64 twins. So each run also records how far
f32 can be trusted: `spread[i]` is the largest relative distance from `losses_f64[i]` of the f32 loss and of four
more f32 runs whose initial weights are off by at most one part in 10^7, and `steady` is the number of leading
steps at which the spread is at most 1e-5. The `_slow` runs are steady for all 100 steps. In f64 the
flips are rare enough that `losses_f64` can be followed to the last step of every run.

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11 on x86-64, one thread. Any CPU build
of PyTorch 2.13 with safetensors and NumPy runs it; f32 sums may round differently on another processor.
"""

import gzip
import json
import pathlib

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "data" / "fashion-mnist"
OUT = ROOT / "crates" / "nn" / "tests" / "data" / "trajectories"
BATCH, STEPS, IMAGES, STRIDE = 32, 100, 20000, 7919

OPTIMIZERS = [
    ("sgd", "SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}),
    ("sgd_nesterov", "SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4, "nesterov": True}),
    ("adam", "Adam", {"lr": 1e-3}),
    ("adamw", "AdamW", {"lr": 1e-3, "weight_decay": 1e-2}),
    ("rmsprop", "RMSprop", {"lr": 1e-3}),
    ("sgd_slow", "SGD", {"lr": 0.003, "momentum": 0.9, "weight_decay": 1e-4}),
    ("sgd_nesterov_slow", "SGD", {"lr": 0.003, "momentum": 0.9, "weight_decay": 1e-4, "nesterov": True}),
]
TWINS, NUDGE, STEADY = 4, 1e-7, 1e-5


def mlp():
    nn = torch.nn
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn():
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


MODELS = {"mlp": (mlp, (BATCH, 784)), "cnn": (cnn, (BATCH, 1, 28, 28))}


def load():
    images = gzip.decompress((DATA / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((DATA / "train-labels-idx1-ubyte.gz").read_bytes())[8:]
    pixels = torch.frombuffer(bytearray(images), dtype=torch.uint8).reshape(IMAGES, 784)
    return pixels.to(torch.float32) / 255, torch.tensor(list(labels), dtype=torch.int64)


def train(model, shape, optimizer, options, images, labels, dtype):
    """Returns the losses of one run and {name: {"sum", "sumsq"}} of its final weights."""
    model = model.to(dtype)
    step = getattr(torch.optim, optimizer)(model.parameters(), **options)
    losses = []
    for i in range(STEPS):
        rows = torch.tensor([k * STRIDE % IMAGES for k in range(BATCH * i, BATCH * (i + 1))])
        loss = torch.nn.functional.cross_entropy(
            model(images[rows].reshape(shape).to(dtype)), labels[rows]
        )
        losses.append(loss.item())
        step.zero_grad()
        loss.backward()
        step.step()
    final = {}
    for name, weight in model.state_dict().items():
        w = weight.to(torch.float64)
        final[name] = {"sum": w.sum().item(), "sumsq": (w * w).sum().item()}
    return losses, final


def nudge(state, seed):
    """The same weights, each off by a random factor within 1 ± NUDGE."""
    torch.manual_seed(seed)
    return {k: w * (1 + NUDGE * (2 * torch.rand_like(w) - 1)) for k, w in state.items()}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    OUT.mkdir(parents=True, exist_ok=True)
    images, labels = load()
    runs = []
    for name, (build, shape) in MODELS.items():
        torch.manual_seed(0)
        start = build().state_dict()
        save_file(start, OUT / f"{name}.safetensors")
        for key, optimizer, options in OPTIMIZERS:
            starts = [(start, torch.float32), (start, torch.float64)]
            starts += [(nudge(start, seed), torch.float32) for seed in range(TWINS)]
            results = []
            for weights, dtype in starts:
                model = build()
                model.load_state_dict(weights)
                results.append(train(model, shape, optimizer, options, images, labels, dtype))
            (losses, final), (losses64, final64) = results[:2]
            floats = [losses] + [twin for twin, _ in results[2:]]
            spread = [max(abs(f[i] - t) / abs(t) for f in floats) for i, t in enumerate(losses64)]
            steady = next((i for i, s in enumerate(spread) if s > STEADY), STEPS)
            own = max(abs(a - b) / abs(b) for a, b in zip(losses, losses64))
            print(
                f"{name:4} {key:17} loss {losses[0]:.4f} -> {losses[-1]:.4f}; f32 from f64, relative:"
                f" {own:.1e}, with twins {max(spread):.1e}; steady for {steady} steps"
            )
            runs.append(
                {
                    "model": name,
                    "name": key,
                    "optimizer": optimizer,
                    "init": options,
                    "losses": losses,
                    "final": final,
                    "losses_f64": losses64,
                    "final_f64": final64,
                    "spread": [float(f"{s:.2g}") for s in spread],
                    "steady": steady,
                }
            )
    head = {"batch": BATCH, "steps": STEPS, "images": IMAGES, "stride": STRIDE}
    (OUT / "losses.json").write_text(json.dumps({**head, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
