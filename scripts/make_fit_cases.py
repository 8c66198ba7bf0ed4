"""Records losses of PyTorch's training, with which those of `polygrad.Model.fit` are compared.

    python3 scripts/make_fit_cases.py

Writes python/tests/cases/fit.npz. `cases` is JSON: a list of {"name", "network": [constructor, arguments], "settings":
of `fit`}, and arrays by "name/what": `x`, `y`, the first weights "name/weights/…" (or for an ONNX file its bytes,
"name/onnx"), `losses`, one for each step, and `outputs`, the trained model's results for `x`. Batches are rows in
order; the last one of an epoch is smaller.

Made with PyTorch 2.13.0, onnx 1.23.2, onnxscript 0.7.2, NumPy 2.4.6 and Python 3.11, in f32 on one thread.
"""

import io
import json
import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

ROWS, BATCH, EPOCHS = 22, 6, 3
LOSSES = {
    "cross_entropy": F.cross_entropy,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
}
OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(64, 120), nn.Linear(120, 84), nn.Linear(84, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Normalized(nn.Module):
    """Trained in evaluation mode, as recorded in an ONNX file."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(16, 1)
        self.norm.running_mean.uniform_(-0.5, 0.5)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.head(F.gelu(self.norm(self.conv(x))).flatten(1))


def mlp(sizes, activation):
    layers = [nn.Linear(sizes[0], sizes[1])]
    for a, b in zip(sizes[1:], sizes[2:]):
        layers += [activation(), nn.Linear(a, b)]
    return nn.Sequential(*layers)


def targets(loss, outputs):
    if loss == "cross_entropy":
        return torch.randint(outputs, (ROWS,))
    if loss == "bce_with_logits":
        return torch.randint(2, (ROWS, 1)).float()
    # One-dimensional, as in a column of a table.
    return torch.randn(ROWS)


def trained(model, x, y, settings):
    loss, lr = LOSSES[settings["loss"]], settings["learning_rate"]
    rest = {key: settings[key] for key in ("momentum", "weight_decay") if key in settings}
    optimizer = OPTIMIZERS[settings["optimizer"]](model.parameters(), lr=lr, **rest)
    steps, losses = EPOCHS * -(-ROWS // BATCH), []
    schedule = settings.get("schedule")
    scheduler = {
        None: lambda: torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1),
        "linear": lambda: torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, steps),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
    }[schedule]()
    for _ in range(EPOCHS):
        for begin in range(0, ROWS, BATCH):
            output, target = model(x[begin : begin + BATCH]), y[begin : begin + BATCH]
            found = loss(output, target.reshape(output.shape) if target.is_floating_point() else target)
            optimizer.zero_grad()
            found.backward()
            if "clip_grad_norm" in settings:
                nn.utils.clip_grad_norm_(model.parameters(), settings["clip_grad_norm"])
            optimizer.step()
            scheduler.step()
            losses.append(found.item())
    with torch.no_grad():
        return losses, model.eval()(x)


def exported(model, x):
    file = io.BytesIO()
    shapes = ({0: torch.export.Dim("batch")},)
    # Not optimized: an optimizer would fold the normalization into the convolution.
    program = torch.onnx.export(model, (x,), dynamo=True, dynamic_shapes=shapes, optimize=False, verbose=False)
    program.save(file)
    return np.frombuffer(file.getvalue(), np.uint8)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = {"inputs": 5, "hidden": [8, 7]}
    wide = lambda outputs, activation="relu": ["mlp", {**sizes, "outputs": outputs, "activation": activation}]
    cases = [
        ("classes", mlp([5, 8, 7, 3], nn.ReLU), (5,), wide(3),
         dict(loss="cross_entropy", optimizer="adamw", learning_rate=0.02)),
        ("numbers", mlp([5, 8, 7, 1], nn.Tanh), (5,), wide(1, "tanh"),
         dict(loss="mse", optimizer="sgd", learning_rate=0.05, momentum=0.9, weight_decay=0.01, schedule="linear")),
        ("bits", mlp([5, 8, 7, 1], nn.GELU), (5,), wide(1, "gelu"),
         dict(loss="bce_with_logits", optimizer="rmsprop", learning_rate=0.01, clip_grad_norm=0.3)),
        ("robust", mlp([5, 8, 7, 1], nn.SiLU), (5,), wide(1, "silu"),
         dict(loss="huber", optimizer="adam", learning_rate=0.02, schedule="cosine")),
        ("absolute", mlp([5, 8, 7, 1], nn.ReLU), (5,), wide(1),
         dict(loss="l1", optimizer="adagrad", learning_rate=0.05)),
        ("smooth", mlp([5, 8, 7, 1], nn.ReLU), (5,), wide(1),
         dict(loss="smooth_l1", optimizer="adamw", learning_rate=0.02, weight_decay=0.2)),
        ("images", LeNet(), (1, 16, 16), ["lenet", {"outputs": 4, "image_size": [16, 16]}],
         dict(loss="cross_entropy", optimizer="adam", learning_rate=0.005)),
        ("file", Normalized().eval(), (2, 4, 4), None,
         dict(loss="mse", optimizer="sgd", learning_rate=0.05, momentum=0.8)),
    ]  # fmt: skip
    arrays, listed = {}, []
    for name, model, shape, network, settings in cases:
        x, y = torch.randn(ROWS, *shape), targets(settings["loss"], 3)
        if network is None:
            arrays[f"{name}/onnx"] = exported(model, x)
        else:
            for key, value in model.state_dict().items():
                arrays[f"{name}/weights/{key}"] = value.numpy().copy()
        losses, outputs = trained(model, x, y, settings)
        arrays |= {f"{name}/x": x.numpy(), f"{name}/y": y.numpy()}
        arrays |= {f"{name}/losses": losses, f"{name}/outputs": outputs.numpy()}
        settings |= {"batch_size": BATCH, "epochs": EPOCHS}
        listed.append({"name": name, "network": network, "settings": settings})
    path = pathlib.Path(__file__).resolve().parent.parent / "python/tests/cases/fit.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, cases=json.dumps(listed), **arrays)
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
