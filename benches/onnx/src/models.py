"""The models of models.rs in PyTorch, with the same parameter names. Reads numbers of runs from its standard input, and prints the
nanoseconds that they took."""

import json
import struct
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    types = {"F32": np.float32, "I64": np.int64}
    state = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + start : 8 + size + end], types[entry["dtype"]])
        state[name] = torch.from_numpy(values.copy()).reshape(entry["shape"])
    return state


def mlp():
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        width = 64
        for i, outputs in enumerate([64, 128, 256, 512]):
            blocks = [Block(width, outputs, 1 if i == 0 else 2), Block(outputs, outputs, 1)]
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
            width = outputs
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        _, (hidden, _) = self.lstm(x)
        return self.head(hidden[0])


def module(**parts):
    made = nn.Module()
    for name, part in parts.items():
        made.add_module(name, part)
    return made


class Layer(nn.Module):
    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads = heads

        def output(inputs):
            return module(dense=nn.Linear(inputs, width), LayerNorm=nn.LayerNorm(width, eps=1e-12))

        parts = {name: nn.Linear(width, width) for name in ["query", "key", "value"]}
        self.attention = module(self=module(**parts), output=output(width))
        self.intermediate = module(dense=nn.Linear(width, inner))
        self.output = output(inner)

    def forward(self, x, mask):
        def add(part, y, x):
            return part.LayerNorm(part.dense(y) + x)

        own = getattr(self.attention, "self")
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, k, v = split(own.query(x)), split(own.key(x)), split(own.value(x))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = add(self.attention.output, y, x)
        return add(self.output, F.gelu(self.intermediate.dense(x)), x)


class Bert(nn.Module):
    def __init__(self, width=128, layers=4, heads=4, inner=512, tokens=1000, length=64):
        super().__init__()
        self.bert = module(
            embeddings=module(
                word_embeddings=nn.Embedding(tokens, width, padding_idx=0),
                position_embeddings=nn.Embedding(length, width),
                token_type_embeddings=nn.Embedding(2, width),
                LayerNorm=nn.LayerNorm(width, eps=1e-12),
            ),
            encoder=module(layer=nn.ModuleList(Layer(width, inner, heads) for _ in range(layers))),
            pooler=module(dense=nn.Linear(width, width)),
        )
        self.classifier = nn.Linear(width, 2)

    def forward(self, ids, mask):
        e = self.bert.embeddings
        places = torch.arange(ids.shape[1])
        x = e.word_embeddings(ids) + e.position_embeddings(places) + e.token_type_embeddings.weight[0]
        x = e.LayerNorm(x)
        mask = mask[:, None, None, :] != 0
        for layer in self.bert.encoder.layer:
            x = layer(x, mask)
        return self.classifier(torch.tanh(self.bert.pooler.dense(x[:, 0])))


def main():
    torch.set_num_threads(1)
    models = {"mlp": mlp, "cnn": cnn, "resnet18": ResNet, "lstm": Sequence, "bert": Bert}
    name, weights, *rest = sys.argv[1:]
    model = models[name]()
    model.load_state_dict(load(weights))
    model.eval()
    inputs = []
    for path, dtype, dims in zip(rest[::3], rest[1::3], rest[2::3]):
        values = np.fromfile(path, np.int64 if dtype == "i64" else np.float32)
        inputs.append(torch.from_numpy(values).reshape([int(n) for n in dims.split(",")]))
    with torch.inference_mode():
        model(*inputs)
        print("ready", flush=True)
        for line in sys.stdin:
            line = line.strip()
            if line == "logits":
                print(*[repr(float(v)) for v in model(*inputs).flatten()], flush=True)
            elif line == "version":
                print(torch.__version__, flush=True)
            elif line == "end":
                break
            else:
                start = time.perf_counter_ns(), time.process_time_ns()
                for _ in range(int(line)):
                    model(*inputs)
                print(time.perf_counter_ns() - start[0], time.process_time_ns() - start[1], flush=True)


main()
