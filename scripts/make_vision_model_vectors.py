"""Records results of PyTorch's image models, with which Polygrad's are compared.

    python3 scripts/make_vision_model_vectors.py

Writes conformance/data/vision, in f64, in the format of scripts/vector_set.py. `op` is "models." and Polygrad's name of
the model, `a` the images, and `kw` has "config", the model's config as JSON, then "state.<name>": the state dict before
the call, and "train": false in evaluation mode. The outputs are the model's, followed by its buffers after the call, in
the order of their names. The images and every parameter have a gradient.

ResNet and VisionTransformer are torchvision's classes, ResNet with fewer channels. MLP and LeNet are defined here, with
torch.nn's layers.

Made with PyTorch 2.13.0, torchvision 0.29.2, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11.
"""

import pathlib

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.models.vision_transformer import VisionTransformer

from vector_set import VectorSet

OUT = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "vision"
LIMIT = 1_500_000


class NarrowResNet(ResNet):
    """torchvision's ResNet with another number of channels, and optionally a stem for small images."""

    def __init__(self, layers, num_classes=1000, in_channels=3, width=64, small_images=False):
        super().__init__(BasicBlock, layers, num_classes)
        self.inplanes = width
        self.conv1 = nn.Conv2d(in_channels, width, kernel_size=7, stride=2, padding=3, bias=False)
        if small_images:
            self.conv1 = nn.Conv2d(in_channels, width, kernel_size=3, stride=1, padding=1, bias=False)
            self.maxpool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(width)
        for i, blocks in enumerate(layers):
            setattr(self, f"layer{i + 1}", self._make_layer(BasicBlock, width << i, blocks, stride=1 + (i > 0)))
        self.fc = nn.Linear(8 * width, num_classes)


class LeNet(nn.Module):
    """The network of PyTorch's tutorial "Neural Networks", with optional padding."""

    def __init__(self, in_channels, image_size, padding, channels, hidden, num_classes):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels[0], 5, padding=padding)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5)
        height, width = [((size + 2 * padding - 4) // 2 - 4) // 2 for size in image_size]
        self.fc1 = nn.Linear(channels[1] * height * width, hidden[0])
        self.fc2 = nn.Linear(hidden[0], hidden[1])
        self.fc3 = nn.Linear(hidden[1], num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


def mlp(sizes, activation="relu", bias=True):
    layers = []
    for fan_in, fan_out in zip(sizes, sizes[1:]):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


MODELS = {"Mlp": mlp, "LeNet": LeNet, "ResNet": NarrowResNet, "VisionTransformer": VisionTransformer}


def cases():
    """(model, config, shape of the input, train) of every case."""
    yield "Mlp", {"sizes": [5, 7, 3]}, (4, 5), True
    yield "Mlp", {"sizes": [5, 3], "bias": False}, (2, 4, 5), True
    for activation in ("tanh", "gelu", "silu"):
        yield "Mlp", {"sizes": [4, 6, 6, 2], "activation": activation}, (1, 4), True
    lenet = {"in_channels": 1, "image_size": [12, 13], "padding": 2, "channels": [2, 3], "hidden": [6, 5], "num_classes": 4}
    yield "LeNet", lenet, (2, 1, 12, 13), True
    yield "LeNet", {**lenet, "in_channels": 3, "image_size": [16, 18], "padding": 0}, (1, 3, 16, 18), True
    small = {"in_channels": 3, "num_classes": 3, "width": 2}
    # In training mode, only one block per stage: batch normalisation amplifies rounding from layer to layer, so
    # PyTorch's own f32 gradients of a narrow ResNet-18 in training differ from its f64 ones by up to 5e-5.
    yield "ResNet", {**small, "layers": [1, 1, 1, 1], "in_channels": 1}, (8, 1, 33, 33), True
    yield "ResNet", {**small, "layers": [2, 2, 2, 2], "width": 1}, (1, 3, 33, 35), False
    yield "ResNet", {**small, "layers": [3, 4, 6, 3], "width": 1}, (2, 3, 24, 24), False
    yield "ResNet", {**small, "layers": [1, 1, 1, 1], "in_channels": 1, "small_images": True}, (4, 1, 16, 16), True
    yield "ResNet", {**small, "layers": [1, 1, 1, 1], "small_images": True}, (2, 3, 9, 8), False
    vit = {"image_size": 8, "patch_size": 4, "num_layers": 2, "num_heads": 2, "hidden_dim": 8, "mlp_dim": 12, "num_classes": 3}
    yield "VisionTransformer", vit, (2, 3, 8, 8), True
    yield "VisionTransformer", {**vit, "image_size": 6, "patch_size": 2, "num_layers": 1, "num_heads": 1}, (1, 3, 6, 6), True
    yield "VisionTransformer", {**vit, "dropout": 0.3, "attention_dropout": 0.3}, (2, 3, 8, 8), False


def randomize(model):
    """Random values for parameters and buffers that are initially zeros or ones."""
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("running_var"):
                value.uniform_(0.5, 2.0)
            elif name.endswith("num_batches_tracked"):
                value.fill_(3)
            elif value.dim() == 1:
                value.add_(torch.randn_like(value) * 0.2)
            elif not value.any():
                value.normal_(std=0.4)


def add_case(vectors, k, name, config, shape, train):
    model = MODELS[name](**config).to(torch.float64).train(train)
    randomize(model)
    kw = {"config": config}
    if not train:
        kw["train"] = False
    for key, value in model.state_dict().items():
        kw[f"state.{key}"] = vectors.encode(value, f"{k}/k.state.{key}")
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    args = [vectors.encode(x, f"{k}/a.0")]
    wanted = [(f"{k}/a.0", x), *((f"{k}/k.state.{key}", p) for key, p in model.named_parameters())]
    output = model(x)
    n = vectors.outputs(k, [output, *(value for _, value in sorted(model.named_buffers()))], wanted)
    vectors.cases.append({"k": k, "op": f"models.{name}", "var": "", "a": args, "kw": kw, "n": n})


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vectors, count = VectorSet(), {}
    for name, *rest in cases():
        index = count[name] = count.get(name, -1) + 1
        add_case(vectors, f"models.{name}/{index}", name, *rest)
    vectors.save(OUT, LIMIT)
    print(", ".join(f"{name} {n + 1}" for name, n in count.items()))


if __name__ == "__main__":
    main()
