"""Records losses of segmentation and their gradients: crates/nn/tests/data/segmentation_losses.json.

The focal loss is torchvision.ops.sigmoid_focal_loss (0.29), the others are segmentation_models_pytorch.losses (0.5),
rewritten in PyTorch from their sources.

    pip install torch==2.13.0
    python3 scripts/make_segmentation_losses.py
"""

import itertools
import json
from pathlib import Path

import torch
import torch.nn.functional as F

OUT = Path(__file__).resolve().parent.parent / "crates/nn/tests/data/segmentation_losses.json"


def focal(x, y, alpha, gamma):
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    p_t = p * y + (1 - p) * (1 - y)
    loss = ce * ((1 - p_t) ** gamma)
    if alpha >= 0:
        loss = (alpha * y + (1 - alpha) * (1 - y)) * loss
    return loss


def overlap(kind, x, y, smooth, eps, logits, ignore, alpha=0.5, beta=0.5):
    """The overlap of each class, over the batch."""
    n, c = x.shape[:2]
    if y.is_floating_point():
        p = F.logsigmoid(x).exp() if logits else x
        p, y = p.view(n, c, -1), y.view(n, c, -1)
    else:
        p = x.log_softmax(dim=1).exp() if logits else x
        p, y = p.view(n, c, -1), y.view(n, -1)
        mask = y != ignore
        p = p * mask.unsqueeze(1)
        y = F.one_hot((y * mask).to(torch.long), c).permute(0, 2, 1) * mask.unsqueeze(1)
        y = y.to(p.dtype)
    dims = (0, 2)
    both = (p * y).sum(dims)
    if kind == "dice":
        score = (2.0 * both + smooth) / ((p + y).sum(dims) + smooth).clamp_min(eps)
    elif kind == "jaccard":
        score = (both + smooth) / ((p + y).sum(dims) - both + smooth).clamp_min(eps)
    else:
        fp, fn = (p * (1.0 - y)).sum(dims), ((1 - p) * y).sum(dims)
        score = (both + smooth) / (both + alpha * fp + beta * fn + smooth).clamp_min(eps)
    return (1.0 - score) * (y.sum(dims) > 0).to(x.dtype)


def main():
    torch.manual_seed(0)
    cases = []

    def record(kind, options, x, y, losses):
        x = x.clone().requires_grad_()
        values = losses(x, y)
        upstream = torch.linspace(0.5, 1.5, values.numel(), dtype=x.dtype).view_as(values)
        (values * upstream).sum().backward()
        case = {"kind": kind, "options": options, "shape": list(x.shape), "x": x.flatten().tolist()}
        case |= {"target": y.flatten().tolist(), "target_shape": list(y.shape), "classes": not y.is_floating_point()}
        cases.append(case | {"losses": values.flatten().tolist(), "gradient": x.grad.flatten().tolist()})

    wide = lambda *shape: (4 * torch.randn(*shape, dtype=torch.float64)).round(decimals=3)
    share = lambda *shape: torch.rand(*shape, dtype=torch.float64).round(decimals=3)
    for alpha, gamma in [(0.25, 2.0), (-1.0, 0.0), (0.6, 1.5), (-1.0, 3.0)]:
        for y in [torch.randint(0, 2, (3, 4)).double(), share(3, 4)]:
            options = {"alpha": alpha, "gamma": gamma}
            record("focal", options, wide(3, 4), y, lambda x, y: focal(x, y, **options))
    for kind, (smooth, eps) in itertools.product(["dice", "jaccard", "tversky"], [(0.0, 1e-7), (1.0, 1e-7), (0.3, 9.0)]):
        more = {"alpha": 0.3, "beta": 0.7} if kind == "tversky" else {}
        options = {"smooth": smooth, "eps": eps, **more}
        call = lambda logits, ignore: lambda x, y: overlap(kind, x, y, logits=logits, ignore=ignore, **options)
        classes = torch.randint(0, 3, (2, 3, 2))  # Class 3 never occurs.
        ignored = classes.clone()
        ignored[0, 1] = 255
        record(kind, options, wide(2, 4, 3, 2), classes, call(True, -100))
        record(kind, options | {"ignore_index": 255}, wide(2, 4, 3, 2), ignored, call(True, 255))
        record(kind, options, wide(2, 1, 3, 2), torch.randint(0, 2, (2, 1, 3, 2)).double(), call(True, -100))
        soft = share(2, 3, 4)
        record(kind, options | {"from_logits": False}, share(2, 3, 4), soft, call(False, -100))
    OUT.write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
    print(len(cases), "cases")


main()
