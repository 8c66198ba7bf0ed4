"""The models of crates/testing/src/zoo/mod.rs in PyTorch, with the same sizes and the same names in the state dict.

Used by pytorch_exports.py and pytorch_judge.py.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Case:
    name: str
    model: nn.Module
    # Each has a name, extents, and the exclusive upper bound of its integers, or None for floats.
    inputs: list
    outputs: list

    def random(self, round):
        """Random inputs of one of two sizes: batches of 2 and 5, lengths of 11 and 17."""
        size = {"batch": [2, 5][round], "seq": [11, 17][round]}
        for i, (_, dims, below) in enumerate(self.inputs):
            shape = [size.get(dim, dim) for dim in dims]
            torch.manual_seed(100 * round + i)
            yield torch.randn(shape) if below is None else torch.randint(0, below, shape)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        same = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + same)


class ResNet18(nn.Module):
    """torchvision's ResNet-18, for small images."""

    def __init__(self, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for i in range(4):
            before, after = width << max(i - 1, 0), width << i
            stage = nn.Sequential(BasicBlock(before, after, 1 + (i > 0)), BasicBlock(after, after, 1))
            setattr(self, f"layer{i + 1}", stage)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Lstm(nn.LSTM):
    def forward(self, x, h=None, c=None):
        y, (h, c) = super().forward(x, None if h is None else (h, c))
        return y, h, c


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.lstm = nn.LSTM(8, 7)


class LstmPolicy(nn.Module):
    """CleanRL's recurrent policy for one step, with its state as input and output."""

    def __init__(self):
        super().__init__()
        self.trunk = Trunk()
        self.actor = nn.Linear(7, 3)
        self.critic = nn.Linear(7, 1)

    def forward(self, observations, h, c):
        x = self.trunk.network(observations).unsqueeze(0)
        x, (h, c) = self.trunk.lstm(x, (h, c))
        x = x.squeeze(0)
        return self.actor(x), self.critic(x).squeeze(1), h, c


class BertHeads(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.count = count

    def forward(self, x, mask):
        n, length, width = x.shape
        q, k, v = (f(x).view(n, length, self.count, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x.transpose(1, 2).reshape(n, length, width)


class BertOutput(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, part, stream):
        return self.LayerNorm(self.dense(part) + stream)


class BertLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.attention = nn.ModuleDict({"self": BertHeads(width, heads), "output": BertOutput(width, width)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = BertOutput(inner, width)

    def forward(self, x, mask):
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class Bert(nn.Module):
    """As transformers' BertForSequenceClassification."""

    def __init__(self, vocabulary=40, width=24, layers=2, heads=3, inner=32, positions=512, labels=3):
        super().__init__()
        embeddings = {
            "word_embeddings": nn.Embedding(vocabulary, width, padding_idx=0),
            "position_embeddings": nn.Embedding(positions, width),
            "token_type_embeddings": nn.Embedding(2, width),
            "LayerNorm": nn.LayerNorm(width, eps=1e-12),
        }
        stack = nn.ModuleList(BertLayer(width, heads, inner) for _ in range(layers))
        self.bert = nn.ModuleDict(
            {
                "embeddings": nn.ModuleDict(embeddings),
                "encoder": nn.ModuleDict({"layer": stack}),
                "pooler": nn.ModuleDict({"dense": nn.Linear(width, width)}),
            }
        )
        self.classifier = nn.Linear(width, labels)

    def forward(self, ids, mask):
        e = self.bert["embeddings"]
        places = torch.arange(ids.shape[1], device=ids.device)
        x = e["word_embeddings"](ids) + e["token_type_embeddings"](torch.zeros_like(ids)) + e["position_embeddings"](places)
        x = e["LayerNorm"](x)
        mask = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.bert["encoder"]["layer"]:
            x = layer(x, mask)
        return self.classifier(torch.tanh(self.bert["pooler"]["dense"](x[:, 0])))


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.1)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})
        self.heads = heads

    def forward(self, x):
        n, length, width = x.shape
        packed = self.attn["c_attn"](self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(n, length, self.heads, -1).transpose(1, 2) for part in packed)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """As transformers' GPT2LMHeadModel."""

    def __init__(self, vocabulary=40, positions=512, width=24, layers=2, heads=3):
        super().__init__()
        parts = {
            "wte": nn.Embedding(vocabulary, width),
            "wpe": nn.Embedding(positions, width),
            "h": nn.ModuleList(GptBlock(width, heads) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width),
        }
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids):
        t = self.transformer
        x = t["wte"](ids) + t["wpe"](torch.arange(ids.shape[1], device=ids.device))
        for block in t["h"]:
            x = block(x)
        return self.lm_head(t["ln_f"](x))


class RMSNorm(nn.RMSNorm):
    """Written out, since the older exporter does not support it as one op."""

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps) * self.weight


class CausalAttention(nn.Module):
    """PyTorch's own attention with a mask that is created in the forward pass, and a classifier on the last token and
    the mean."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 12)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.norm = RMSNorm(12)
        self.head = nn.Linear(12, 4)

    def forward(self, ids):
        x = self.embedding(ids)
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
        y = self.norm(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])
        return self.head(y[:, -1] + y.mean(dim=1))


def stir(model):
    """Values for all parameters and buffers, so that none is 0 or 1. They have few bits, so that files compress
    well."""
    with torch.no_grad():
        for tensor in {id(t): t for t in model.state_dict(keep_vars=True).values()}.values():
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * 0.3 - 0.1)
                tensor.mul_(128).round_().div_(128)


def cases():
    """All cases, with random weights and in evaluation mode."""
    torch.manual_seed(7)
    image = lambda channels, side: [("images", ("batch", channels, side, side), None)]
    series = ("x", ("batch", "seq", 5), None)
    state = lambda name, layers: (name, (layers, "batch", 7), None)
    ids = ("ids", ("batch", "seq"), 40)
    mlp = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))
    cnn = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=4, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.GroupNorm(2, 8),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1),
        nn.LeakyReLU(),
        nn.ELU(),
    )
    lstm = Lstm(5, 7, num_layers=2, batch_first=True, bidirectional=True)
    carried = Lstm(5, 7, num_layers=2, batch_first=True)
    gru = nn.GRU(5, 7, batch_first=True, bidirectional=True)
    bare = nn.GRU(5, 7, num_layers=2, bias=False, batch_first=True)
    rnn = nn.RNN(5, 7, batch_first=True, bidirectional=True)
    states = [state("h", 1), state("c", 1)]
    all = [
        Case("mlp", mlp, [("x", ("batch", 6), None)], ["y"]),
        Case("lenet", LeNet(), image(1, 28), ["logits"]),
        Case("cnn", cnn, image(3, 16), ["y"]),
        Case("resnet18", ResNet18(4, 10), image(3, 32), ["logits"]),
        Case("lstm", lstm, [series], ["y", "h_n", "c_n"]),
        Case("lstm_with_state", carried, [series, state("h", 2), state("c", 2)], ["y", "h_n", "c_n"]),
        Case("gru", gru, [series], ["y", "h_n"]),
        Case("gru_without_bias", bare, [series, state("h", 2)], ["y", "h_n"]),
        Case("rnn", rnn, [series], ["y", "h_n"]),
        Case("lstm_policy", LstmPolicy(), [("observations", ("batch", 5), None), *states], ["logits", "value", "h_n", "c_n"]),
        Case("bert", Bert(), [ids, ("mask", ("batch", "seq"), 2)], ["logits"]),
        Case("gpt2", Gpt2(), [ids], ["logits"]),
        Case("causal_attention", CausalAttention(), [ids], ["logits"]),
    ]
    for case in all:
        stir(case.model)
        case.model.eval()
    return all
