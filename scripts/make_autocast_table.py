"""Records which dtype each op gives under PyTorch's CPU autocast, and what small models compute under it.

    python3 scripts/make_autocast_table.py

Writes crates/nn/tests/data/autocast. `table.json`: for each op the operands' shapes and, for the modes bf16 and f16,
the dtypes of its outputs for three kinds of operands: "wide" are all f32, "low" all of the mode's dtype, "mixed" the
first of the mode's dtype and the others f32; "error" if PyTorch refuses them. `models.safetensors`: inputs, parameters,
outputs, losses and gradients of an MLP, a CNN and an attention block in bf16. `scaler.json`: what torch.amp.GradScaler
does when gradients overflow.

Made with PyTorch 2.13.0 and Python 3.11. Any CPU build of PyTorch 2.13 runs it.
"""

import json
import pathlib
import warnings

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "nn" / "tests" / "data" / "autocast"
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
CLASSES = torch.tensor([0, 2])


def r(*shape):
    return torch.rand(*shape) * 0.8 + 0.1


# The operands' shapes and the op.
OPS = {
    "matmul": ([(2, 3), (3, 4)], torch.matmul),
    "mm": ([(2, 3), (3, 4)], torch.mm),
    "bmm": ([(2, 2, 3), (2, 3, 4)], torch.bmm),
    "addmm": ([(4,), (2, 3), (3, 4)], torch.addmm),
    "einsum": ([(2, 3), (3, 4)], lambda a, b: torch.einsum("ij,jk->ik", a, b)),
    "linear": ([(2, 3), (4, 3), (4,)], F.linear),
    "conv1d": ([(1, 2, 5), (3, 2, 3), (3,)], F.conv1d),
    "conv2d": ([(1, 2, 5, 5), (3, 2, 3, 3), (3,)], F.conv2d),
    "conv3d": ([(1, 2, 4, 4, 4), (3, 2, 3, 3, 3), (3,)], F.conv3d),
    "conv_transpose1d": ([(1, 2, 5), (2, 3, 3)], F.conv_transpose1d),
    "conv_transpose2d": ([(1, 2, 5, 5), (2, 3, 3, 3)], F.conv_transpose2d),
    "conv_transpose3d": ([(1, 2, 4, 4, 4), (2, 3, 3, 3, 3)], F.conv_transpose3d),
    "scaled_dot_product_attention": (
        [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)],
        F.scaled_dot_product_attention,
    ),
    "add": ([(2, 3), (2, 3)], torch.add),
    "mul": ([(2, 3), (2, 3)], torch.mul),
    "relu": ([(2, 3)], F.relu),
    "gelu": ([(2, 3)], F.gelu),
    "exp": ([(2, 3)], torch.exp),
    "log": ([(2, 3)], torch.log),
    "softplus": ([(2, 3)], F.softplus),
    "softmax": ([(2, 3)], lambda x: F.softmax(x, -1)),
    "log_softmax": ([(2, 3)], lambda x: F.log_softmax(x, -1)),
    "sum": ([(2, 3)], lambda x: x.sum(-1)),
    "mean": ([(2, 3)], lambda x: x.mean(-1)),
    "prod": ([(2, 3)], lambda x: x.prod(-1)),
    "prod_all": ([(2, 3)], torch.prod),
    "cumsum": ([(2, 3)], lambda x: x.cumsum(-1)),
    "vector_norm": ([(2, 3)], lambda x: torch.linalg.vector_norm(x, dim=-1)),
    "nuclear_norm": ([(2, 3)], lambda x: torch.linalg.matrix_norm(x, "nuc")),
    "cosine_similarity": ([(2, 3), (2, 3)], lambda a, b: F.cosine_similarity(a, b, dim=-1)),
    "cat": ([(2, 3), (2, 3)], lambda *xs: torch.cat(xs)),
    "stack": ([(2, 3), (2, 3)], lambda *xs: torch.stack(xs)),
    "where": ([(2, 3), (2, 3)], lambda a, b: torch.where(torch.ones(2, 3, dtype=torch.bool), a, b)),
    "index_put": ([(2, 3), (1, 3)], lambda x, y: x.index_put((torch.tensor([1]),), y)),
    "layer_norm": ([(2, 3), (3,), (3,)], lambda x, w, b: F.layer_norm(x, (3,), w, b)),
    "rms_norm": ([(2, 3), (3,)], lambda x, w: F.rms_norm(x, (3,), w, 1e-6)),
    "group_norm": ([(2, 4, 3), (4,), (4,)], lambda x, w, b: F.group_norm(x, 2, w, b)),
    "batch_norm": ([(2, 3, 4), (3,), (3,)], lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "instance_norm": ([(2, 3, 4), (3,), (3,)], lambda x, w, b: F.instance_norm(x, None, None, w, b)),
    "prelu": ([(2, 3), (3,)], F.prelu),
    "dropout": ([(2, 3)], lambda x: F.dropout(x, 0.5, True)),
    "max_pool1d": ([(1, 2, 4)], lambda x: F.max_pool1d(x, 2)),
    "max_pool2d": ([(1, 2, 4, 4)], lambda x: F.max_pool2d(x, 2)),
    "max_pool3d": ([(1, 2, 4, 4, 4)], lambda x: F.max_pool3d(x, 2)),
    "avg_pool1d": ([(1, 2, 4)], lambda x: F.avg_pool1d(x, 2)),
    "avg_pool2d": ([(1, 2, 4, 4)], lambda x: F.avg_pool2d(x, 2)),
    "avg_pool3d": ([(1, 2, 4, 4, 4)], lambda x: F.avg_pool3d(x, 2)),
    "adaptive_avg_pool1d": ([(1, 2, 5)], lambda x: F.adaptive_avg_pool1d(x, 2)),
    "adaptive_avg_pool2d": ([(1, 2, 5, 5)], lambda x: F.adaptive_avg_pool2d(x, 2)),
    "adaptive_avg_pool3d": ([(1, 2, 5, 5, 5)], lambda x: F.adaptive_avg_pool3d(x, 2)),
    "adaptive_max_pool1d": ([(1, 2, 5)], lambda x: F.adaptive_max_pool1d(x, 2)),
    "adaptive_max_pool2d": ([(1, 2, 5, 5)], lambda x: F.adaptive_max_pool2d(x, 2)),
    "adaptive_max_pool3d": ([(1, 2, 5, 5, 5)], lambda x: F.adaptive_max_pool3d(x, 2)),
    "pad_constant": ([(1, 2, 4)], lambda x: F.pad(x, (1, 1))),
    "pad_reflect1d": ([(1, 2, 4)], lambda x: F.pad(x, (1, 1), "reflect")),
    "pad_reflect2d": ([(1, 2, 4, 4)], lambda x: F.pad(x, (1, 1, 1, 1), "reflect")),
    "pad_reflect3d": ([(1, 2, 4, 4, 4)], lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "reflect")),
    "pad_replicate1d": ([(1, 2, 4)], lambda x: F.pad(x, (1, 1), "replicate")),
    "pad_replicate2d": ([(1, 2, 4, 4)], lambda x: F.pad(x, (1, 1, 1, 1), "replicate")),
    "pad_replicate3d": ([(1, 2, 4, 4, 4)], lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "replicate")),
    "pad_circular": ([(1, 2, 4)], lambda x: F.pad(x, (1, 1), "circular")),
    "interpolate_nearest": ([(1, 2, 4, 4)], lambda x: F.interpolate(x, scale_factor=2, mode="nearest")),
    "interpolate_bilinear": ([(1, 2, 4, 4)], lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "mse_loss": ([(2, 3), (2, 3)], F.mse_loss),
    "l1_loss": ([(2, 3), (2, 3)], F.l1_loss),
    "smooth_l1_loss": ([(2, 3), (2, 3)], F.smooth_l1_loss),
    "huber_loss": ([(2, 3), (2, 3)], F.huber_loss),
    "nll_loss": ([(2, 3)], lambda x: F.nll_loss(x, CLASSES)),
    "nll_loss_weighted": ([(2, 3), (3,)], lambda x, w: F.nll_loss(x, CLASSES, w)),
    "cross_entropy": ([(2, 3)], lambda x: F.cross_entropy(x, CLASSES)),
    "cross_entropy_of_all": ([(2, 3)], lambda x: F.cross_entropy(x, CLASSES, reduction="none")),
    "cross_entropy_summed": ([(2, 3)], lambda x: F.cross_entropy(x, CLASSES, reduction="sum")),
    "cross_entropy_weighted": ([(2, 3), (3,)], lambda x, w: F.cross_entropy(x, CLASSES, w)),
    "cross_entropy_of_probabilities": ([(2, 3), (2, 3)], F.cross_entropy),
    "binary_cross_entropy": ([(2, 3), (2, 3)], F.binary_cross_entropy),
    "bce_with_logits": ([(2, 3), (2, 3)], F.binary_cross_entropy_with_logits),
    "kl_div": ([(2, 3), (2, 3)], lambda x, y: F.kl_div(x, y, reduction="batchmean")),
    "poisson_nll_loss": ([(2, 3), (2, 3)], F.poisson_nll_loss),
    "gaussian_nll_loss": ([(2, 3), (2, 3), (2, 3)], F.gaussian_nll_loss),
    "cosine_embedding_loss": ([(2, 3), (2, 3), (2,)], F.cosine_embedding_loss),
    "hinge_embedding_loss": ([(2, 3), (2, 3)], F.hinge_embedding_loss),
    "margin_ranking_loss": ([(3,), (3,), (3,)], F.margin_ranking_loss),
    "soft_margin_loss": ([(2, 3), (2, 3)], F.soft_margin_loss),
    "triplet_margin_loss": ([(2, 3), (2, 3), (2, 3)], F.triplet_margin_loss),
    "multi_margin_loss": ([(2, 3)], lambda x: F.multi_margin_loss(x, CLASSES)),
    "multilabel_margin_loss": (
        [(2, 3)],
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, -1, 1], [2, 1, -1]])),
    ),
    "multilabel_soft_margin_loss": ([(2, 3), (2, 3)], F.multilabel_soft_margin_loss),
    "ctc_loss": (
        [(4, 1, 3)],
        lambda x: F.ctc_loss(x, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])),
    ),
    "embedding": ([(5, 3)], lambda w: F.embedding(CLASSES, w)),
}

# Layers with f32 parameters: their result dtypes for inputs of f32 and of the mode's dtype.
LAYERS = {
    "RNN": ((4, 2, 3), lambda: torch.nn.RNN(3, 4)),
    "LSTM": ((4, 2, 3), lambda: torch.nn.LSTM(3, 4)),
    "GRU": ((4, 2, 3), lambda: torch.nn.GRU(3, 4)),
    "RNNCell": ((2, 3), lambda: torch.nn.RNNCell(3, 4)),
    "LSTMCell": ((2, 3), lambda: torch.nn.LSTMCell(3, 4)),
    "GRUCell": ((2, 3), lambda: torch.nn.GRUCell(3, 4)),
    "MultiheadAttention": ((2, 3, 4), lambda: SelfAttention()),
    "TransformerEncoderLayer": ((2, 3, 4), lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)),
}


class SelfAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def dtypes_of(result):
    """The dtypes of all float tensors in a result, in order."""
    if isinstance(result, torch.Tensor):
        return [NAMES[result.dtype]] if result.is_floating_point() else []
    return [name for part in result for name in dtypes_of(part)]


def tried(run):
    try:
        return dtypes_of(run())
    except (RuntimeError, NotImplementedError, TypeError) as e:
        return "error"


def table():
    entries = {}
    for name, (shapes, op) in OPS.items():
        entries[name] = {"shapes": shapes}
        for mode in (torch.bfloat16, torch.float16):
            kinds = {}
            for kind in ("wide", "low", "mixed"):
                if kind == "mixed" and len(shapes) == 1:
                    continue
                wide = {"wide": len(shapes), "low": 0, "mixed": len(shapes) - 1}[kind]
                operands = [r(*shape) for shape in shapes]
                for i in range(len(shapes) - wide):
                    operands[i] = operands[i].to(mode)
                with torch.autocast("cpu", dtype=mode):
                    kinds[kind] = tried(lambda: op(*operands))
            entries[name][NAMES[mode]] = kinds
    for name, (shape, build) in LAYERS.items():
        entries[name] = {"shapes": [shape]}
        for mode in (torch.bfloat16, torch.float16):
            kinds = {}
            for kind in ("wide", "mixed"):
                x = r(*shape).to(mode if kind == "mixed" else torch.float32)
                with torch.autocast("cpu", dtype=mode):
                    kinds[kind] = tried(lambda: build()(x))
            entries[name][NAMES[mode]] = kinds
    return entries


class Attention(torch.nn.Module):
    """A transformer block: attention and an MLP, each after a layer norm and with a residual connection."""

    def __init__(self):
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(16)
        self.attn = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm2 = torch.nn.LayerNorm(16)
        self.fc1 = torch.nn.Linear(16, 32)
        self.fc2 = torch.nn.Linear(32, 16)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 5))


def cnn():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 6, 3, padding=1),
        torch.nn.BatchNorm2d(6),
        torch.nn.Tanh(),
        torch.nn.AvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(54, 5),
    )


def put_model(tensors, name, model, x, loss_of):
    """Stores the model's parameters, an input, and the outputs and gradients, under autocast and in f64."""
    for key, value in model.named_parameters():
        tensors[f"{name}/param/{key}"] = value.detach().clone()
    tensors[f"{name}/x"] = x
    start = {key: value.clone() for key, value in model.state_dict().items()}
    for way in ("bf16", "f64"):
        model.load_state_dict(start)
        model.to(torch.float64 if way == "f64" else torch.float32)
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "bf16"):
            y = model(x.double() if way == "f64" else x)
            loss = loss_of(y)
        loss.backward()
        tensors[f"{name}/{way}/y"] = y.detach()
        tensors[f"{name}/{way}/loss"] = loss.detach()
        for key, value in model.named_parameters():
            assert way == "f64" or value.grad.dtype == torch.float32, key
            tensors[f"{name}/{way}/grad/{key}"] = value.grad.clone()


def models():
    tensors = {}
    classes = torch.tensor([0, 3, 1, 4, 2, 2])
    tensors["classes"] = classes
    put_model(tensors, "mlp", mlp(), torch.randn(6, 12), lambda y: F.cross_entropy(y, classes))
    put_model(tensors, "cnn", cnn(), torch.randn(6, 2, 6, 6), lambda y: F.cross_entropy(y, classes))
    put_model(tensors, "attention", Attention(), torch.randn(2, 5, 16), lambda y: y.square().mean())
    return tensors


def trajectory(options, gradients, clip):
    """Steps of a one-element parameter whose scaled gradient is the loss's times the scale, plus an injected value."""
    param = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([param], lr=0.125)
    scaler = torch.amp.GradScaler("cpu", **options)
    steps = []
    for gradient in gradients:
        optimizer.zero_grad()
        scaler.scale((param * 0.75).sum()).backward()
        param.grad += gradient
        before = param.item()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([param], 0.5)
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        steps.append(
            {
                "injected": str(gradient),
                "stepped": param.item() != before,
                "param": param.item(),
                "scale": scaler.get_scale(),
                "tracker": state.get("_growth_tracker", 0),
            }
        )
    return {"options": options, "clip": clip, "steps": steps}


def scaler():
    inf, nan = float("inf"), float("nan")
    mixed = [0.0, inf, 0.0, 0.0, 0.0, nan, -inf, 0.0, 0.0, 0.0, 0.0, inf, 0.0, 0.0, 0.0]
    return [
        trajectory({}, mixed, False),
        trajectory({"growth_interval": 3}, mixed, False),
        trajectory({"growth_interval": 2, "init_scale": 3.0, "growth_factor": 1.7, "backoff_factor": 0.3}, mixed, False),
        trajectory({"growth_interval": 1, "init_scale": 2.0**126}, [0.0] * 6, False),
        trajectory({"growth_interval": 2}, mixed, True),
        trajectory({"enabled": False}, [0.0, 0.0, 0.0], False),
    ]


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    OUT.mkdir(parents=True, exist_ok=True)
    entries = [f'  "{name}": {json.dumps(entry)}' for name, entry in table().items()]
    (OUT / "table.json").write_text("{\n" + ",\n".join(entries) + "\n}\n")
    (OUT / "scaler.json").write_text(json.dumps(scaler(), indent=1) + "\n")
    save_file(models(), OUT / "models.safetensors")


if __name__ == "__main__":
    main()
