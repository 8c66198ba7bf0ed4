"""Records rounding to integers and back, and its gradients: crates/nn/tests/data/fake_quantize.json.

    python3 scripts/make_fake_quantize_vectors.py

Cases with a factor use PyTorch's `_fake_quantize_learnable_…`, which multiplies the gradients of scale and zero point
by it; the others use `fake_quantize_…`. Numbers halfway between two integers are left out: PyTorch multiplies by 1 /
scale, ONNX divides.

Made with PyTorch 2.13.0 and Python 3.11. Any CPU build of PyTorch 2.13 runs it.
"""

import json
from pathlib import Path

import torch

OUT = Path(__file__).resolve().parent.parent / "crates/nn/tests/data/fake_quantize.json"


def cases():
    """Name, shape, scales, zero points, bounds, axis, factor."""
    yield "bytes", (3, 5), [0.02], [0.0], [0, 255], None, None
    yield "bytes with a zero point", (3, 5), [0.017], [131.0], [0, 255], None, None
    yield "cut off on both sides", (4, 6), [0.1], [7.0], [0, 15], None, None
    yield "weights", (4, 3), [0.01, 0.02, 0.013, 0.5], [0.0] * 4, [-127, 127], 0, None
    yield "columns", (3, 4), [0.01, 0.2, 0.013, 0.5], [0.0, 3.0, -2.0, 1.0], [-8, 7], 1, None
    yield "learned bytes", (3, 5), [0.006], [128.0], [0, 255], None, 1.0
    yield "learned with a factor", (4, 6), [0.11], [6.0], [0, 15], None, 0.0625
    yield "learned weights", (4, 3), [0.008, 0.02, 0.013, 0.5], [0.0] * 4, [-127, 127], 0, 0.25
    yield "learned kernels", (2, 3, 2, 2), [0.3, 0.04], [0.0, 0.0], [-8, 7], 0, 1.0
    yield "learned columns", (3, 4), [0.01, 0.2, 0.013, 0.5], [0.0, 3.0, -2.0, 1.0], [-8, 7], 1, 1.0


def values(shape, scale):
    """Normally distributed numbers, none of them close to halfway between two integers."""
    while True:
        x = torch.randn(shape)
        rest = (x / scale).remainder(1.0)
        if ((rest - 0.5).abs() > 0.01).all():
            return x.requires_grad_()


def answer(x, scale, zero, bounds, axis, factor):
    if factor is not None and axis is None:
        return torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, *bounds, factor)
    if factor is not None:
        return torch._fake_quantize_learnable_per_channel_affine(x, scale, zero, axis, *bounds, factor)
    if axis is None:
        return torch.fake_quantize_per_tensor_affine(x, scale.item(), int(zero.item()), *bounds)
    return torch.fake_quantize_per_channel_affine(x, scale.detach(), zero.detach().to(torch.int32), axis, *bounds)


def main():
    torch.manual_seed(0)
    recorded = []
    for name, shape, scale, zero, bounds, axis, factor in cases():
        scale, zero = torch.tensor(scale), torch.tensor(zero)
        spread = [1] * len(shape)
        if axis is not None:
            spread[axis] = -1
        x = values(shape, scale.reshape(spread) if axis is not None else scale)
        scale.requires_grad_(), zero.requires_grad_()
        y = answer(x, scale, zero, bounds, axis, factor)
        cotangent = torch.randn(y.shape)
        wanted = [x, scale, zero] if factor is not None else [x]
        gradients = torch.autograd.grad(y, wanted, cotangent)
        flat = lambda t: t.detach().flatten().tolist()
        recorded.append({
            "name": name, "shape": list(shape), "x": flat(x), "scale": flat(scale), "zero": flat(zero), "bounds": bounds,
            "axis": axis, "factor": factor, "cotangent": flat(cotangent), "y": flat(y),
            "gradients": [flat(g) for g in gradients],
        })
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in recorded) + "\n]\n")


if __name__ == "__main__":
    main()
