"""PyTorch as a peer of `polygrad bench`: eager, or by torch.compile with --compile, and as CUDA graphs with --graphs; on a GPU with --device cuda, where f32 products round
their factors to TF32 only with --tf32. With --ddp it is one of several processes started by torchrun, each with its own batch, of which only the
first one answers: DistributedDataParallel on Gloo.

Fused optimizers, fused attention, images and convolutions in the memory format `channels_last` (by which a step of `cnn` takes two thirds of
the time), and the number of threads that was asked for.
"""

import os
import sys

# Kernels are compiled in this process and not by a pool of processes, which would keep running.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from protocol import INPUT, TARGET, classes, device, noise, serve, threads, weights  # noqa: E402

GRAPHS = "--graphs" in sys.argv
COMPILE = GRAPHS or "--compile" in sys.argv
DDP = "--ddp" in sys.argv
DEVICE = torch.device(device())


def compiled(model):
    return torch.compile(model, mode="reduce-overhead" if GRAPHS else None) if COMPILE else model


def tensor(array):
    return torch.from_numpy(array).to(DEVICE)


def inputs(shape):
    return tensor(noise(int(torch.Size(shape).numel()), INPUT)).reshape(shape)


def images(shape):
    return inputs(shape).to(memory_format=torch.channels_last)


def begin(model):
    model = model.to(DEVICE)
    with torch.no_grad():
        for i, (name, parameter) in enumerate(model.named_parameters()):
            parameter.copy_(torch.from_numpy(weights(i, tuple(parameter.shape), name.endswith("weight"))))
    # Only affects parameters of convolutions.
    return model.to(memory_format=torch.channels_last)


def training(model, optimizer, x, rows, of):
    begin(model)
    optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, 0.01, fused=True),
        "momentum": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, fused=True),
        "adam": lambda p: torch.optim.Adam(p, 1e-3, fused=True),
        "adamw": lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.01, fused=True),
    }[optimizer](model.parameters())
    target = tensor(classes(rows, of, TARGET))
    forward = compiled(model)
    if DDP:
        forward = nn.parallel.DistributedDataParallel(model)
    if COMPILE:
        # Compiles and records both passes before the first step, which takes minutes the first time. No weight changes.
        for _ in range(3 if GRAPHS else 1):
            F.cross_entropy(forward(x), target).backward()
            model.zero_grad(set_to_none=True)

    def step():
        loss = F.cross_entropy(forward(x), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def mlp(sizes, activation):
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        layers += ([activation()] if i else []) + [nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


def act():
    model = begin(mlp([4, 64, 64, 2], nn.Tanh))
    model = compiled(model)
    x = inputs([1, 4])

    def step():
        with torch.inference_mode():
            model(x)

    if COMPILE:
        step()
    return step


def cnn():
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return training(model, "adam", images([64, 1, 28, 28]), 64, 10)


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
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class ResNet18(nn.Module):
    """torchvision's ResNet, for images of 32x32."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        blocks = []
        for stage in range(4):
            outputs = 64 << stage
            blocks += [BasicBlock(outputs // 2 if stage else 64, outputs, 2 if stage else 1), BasicBlock(outputs, outputs, 1)]
        self.layers = nn.Sequential(*blocks)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = self.layers(F.relu(self.bn1(self.conv1(x)), inplace=True))
        return self.fc(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        split = (batch, context, self.heads, width // self.heads)
        heads = [part.view(split).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, context, width))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


SMALL, GPT2 = (16, 64, 128, 4, 4, 1024), (8, 1024, 768, 12, 12, 50304)


class Gpt(nn.Module):
    """Other sizes than the small one multiply by the embeddings instead of a head, as GPT-2 does."""

    def __init__(self, size):
        super().__init__()
        _, context, width, heads, blocks, vocabulary = size
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary) if size == SMALL else None

    def forward(self, tokens):
        x = self.ln(self.blocks(self.tokens(tokens) + self.positions.weight))
        logits = F.linear(x, self.tokens.weight) if self.head is None else self.head(x)
        return logits.flatten(0, 1)


def gpt(size):
    batch, context, *_, vocabulary = size
    tokens = tensor(classes(batch * context, vocabulary, INPUT)).view(batch, context)
    return training(Gpt(size), "adamw", tokens, batch * context, vocabulary)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 128)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])


def dispatch(which):
    a, b = inputs([64]), tensor(noise(64, TARGET))

    def backward():
        a.grad = None
        (a + b).sum().backward()

    def add():
        a + b

    a.requires_grad_(which != "add")
    return backward if which == "backward" else add


def elementwise(op, size):
    x = inputs([size // 1024, 1024])
    other = tensor(noise(size, TARGET)).reshape(x.shape) if op == "add" else None
    weight, bias = torch.ones(1024, device=DEVICE), torch.zeros(1024, device=DEVICE)
    calls = {
        "add": lambda: x + other,
        "exp": lambda: torch.exp(x),
        "tanh": lambda: torch.tanh(x),
        "gelu": lambda: F.gelu(x),
        "layer_norm": lambda: F.layer_norm(x, (1024,), weight, bias),
        "softmax": lambda: F.softmax(x, -1),
        "sum": lambda: x.sum(),
    }
    call = calls[op]

    def step():
        call()

    return step


def gemm(extents, dtype):
    m, n, k = map(int, extents.split("x"))
    a, b = inputs([m, k]).to(dtype), tensor(noise(k * n, TARGET)).reshape(k, n).to(dtype)

    def step():
        a @ b

    return step


def attention(extents, dtype, backward=False):
    batch, heads, queries, keys, width = map(int, extents.split("x"))

    def rows(count, seed):
        return tensor(noise(batch * heads * count * width, seed)).reshape(batch, heads, count, width).to(dtype)

    q, k, v = rows(queries, INPUT), rows(keys, TARGET), rows(keys, INPUT)

    def call():
        return F.scaled_dot_product_attention(q, k, v, is_causal=queries == keys)

    def step():
        if backward:
            torch.autograd.grad(call(), (q, k, v), gradient)
        else:
            with torch.inference_mode():
                call()

    gradient = call()
    for x in (q, k, v):
        x.requires_grad_(backward)
    return step


TRAINED = {"mlp-rl", "mlp-small", "mlp-big", "cnn", "resnet", "gpt", "lstm"}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def make(case):
    match case.split():
        case ["mlp-act"]:
            return act()
        case ["mlp-rl", optimizer]:
            return training(mlp([4, 64, 64, 2], nn.ReLU), optimizer, inputs([32, 4]), 32, 2)
        case ["mlp-small", optimizer]:
            return training(mlp([784, 128, 10], nn.ReLU), optimizer, inputs([64, 784]), 64, 10)
        case ["mlp-big", optimizer]:
            return training(mlp([784, 512, 512, 10], nn.ReLU), optimizer, inputs([128, 784]), 128, 10)
        case ["cnn"]:
            return cnn()
        case ["resnet"]:
            return training(ResNet18(), "momentum", images([16, 3, 32, 32]), 16, 10)
        case ["gpt"]:
            return gpt(SMALL)
        case ["gpt", "124m"]:
            return gpt(GPT2)
        case ["gpt", size] if size.count("x") == 5:
            return gpt(tuple(map(int, size.split("x"))))
        case ["lstm"]:
            return training(Lstm(), "adam", inputs([64, 32, 64]), 32, 10)
        case ["dispatch", which] if not COMPILE:
            return dispatch(which)
        case ["elementwise", op, size] if not COMPILE:
            return elementwise(op, int(size))
        case ["gemm", extents, *dtype] if not COMPILE:
            return gemm(extents, DTYPES["".join(dtype) or "f32"])
        case ["attention", "backward", extents, *dtype] if not COMPILE:
            return attention(extents, DTYPES["".join(dtype) or "f32"], backward=True)
        case ["attention", extents, *dtype] if not COMPILE:
            return attention(extents, DTYPES["".join(dtype) or "f32"])
        case [*rest, ("bf16" | "f16") as dtype] if rest and rest[0] in TRAINED:
            return mixed(" ".join(rest), DTYPES[dtype])
    return None


def mixed(case, dtype):
    """The same step under autocast. Compiling belongs to it."""
    with torch.autocast(DEVICE.type, dtype):
        step = make(case)

    def cast():
        with torch.autocast(DEVICE.type, dtype):
            return step()

    return step and cast


def asked():
    """The questions that the first process reads, sent to all processes."""
    while True:
        line = [sys.stdin.readline() if torch.distributed.get_rank() == 0 else None]
        torch.distributed.broadcast_object_list(line, src=0)
        if not line[0]:
            return
        yield line[0]


torch.set_num_threads(threads())
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "--tf32" in sys.argv
torch.backends.cudnn.benchmark = True
name = f"torch{'.compile' if COMPILE else ''}{' as CUDA graphs' if GRAPHS else ''} {torch.__version__}"
if DDP:
    torch.distributed.init_process_group("gloo")
    count = torch.distributed.get_world_size()
    serve(f"torch-ddp {torch.__version__} of {count}", make, questions=asked(), speaks=torch.distributed.get_rank() == 0)
elif DEVICE.type == "cpu":
    serve(name, make)
else:
    serve(f"{name} on {torch.cuda.get_device_name()}", make, torch.cuda.synchronize)
