"""Records PyTorch's results for edge cases: large, small and equal numbers, NaN, empty averages, and ops that OpInfo's
samples leave out.

    python3 scripts/make_edge_vectors.py

Writes conformance/data/edges, in f64, in the format of scripts/vector_set.py; `scripts/make_own_results.py` adds
PyTorch's results in narrower dtypes.

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6, expecttest 0.3.0 and Python 3.11. Any CPU build of PyTorch 2.13 runs it.
"""

import math
import pathlib

import torch

import make_module_vectors
from make_op_vectors import add_case
from vector_set import VectorSet

OUT = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "edges"
LIMIT = 300_000
NAN, INF = math.nan, math.inf


def t(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def r(*shape):
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def scaled(size, *shape):
    """Normally distributed numbers of this scale."""
    return (torch.randn(shape, dtype=torch.float64) * size).requires_grad_()


def uncovered():
    """Ops of the library that the chosen OpInfo samples leave out."""
    for a, b in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), ())):
        yield "atan2", [r(*a), r(*b)], {}
    yield "atan2", [t([1.0, -1.0, 2.0, -2.0, 0.0, -0.0]), t([0.0, 0.0, -1.0, -1.0, -3.0, -3.0])], {}
    yield "remainder", [scaled(5, 3, 4), t([1.5, -1.5, 2.5, -2.5])], {}
    yield "remainder", [t([7.0, -7.0, 7.0, -7.0]), t([2.0, 2.0, -2.0, -2.0])], {}
    yield "remainder", [t([5.5, -5.5, 0.0]), 2.0], {}
    yield "remainder", [torch.tensor([7, -7, 7, -7]), torch.tensor([3, 3, -3, -3])], {}
    yield "remainder", [torch.tensor([7, -7, 8]), -3], {}
    yield "index_add", [r(4, 3), 0, torch.tensor([2, 0, 2]), r(3, 3)], {}
    yield "index_add", [r(2, 4), 1, torch.tensor([3, 3, 0]), r(2, 3)], {"alpha": 2}
    yield "index_add", [r(5), -1, torch.tensor([1, 1, 1, 4]), r(4)], {}
    yield "nn.functional.adaptive_avg_pool1d", [r(2, 3, 7), 3], {}
    yield "nn.functional.adaptive_avg_pool1d", [r(2, 3, 5), 1], {}
    yield "nn.functional.adaptive_avg_pool1d", [r(3, 4), 6], {}


def sizes():
    """Numbers of ordinary size whose squares or sums overflow f16."""
    yield "norm", [t([200.0, 200.0])], {}
    yield "norm", [t([300.0, 400.0])], {}
    yield "norm", [t([[300.0, -400.0], [3.0, 4.0]])], {"dim": 1}
    yield "norm", [scaled(1e-4, 40)], {}
    yield "norm", [scaled(30, 40)], {"p": 3}
    yield "std", [scaled(20, 300)], {}
    yield "std", [scaled(300, 60)], {}
    yield "std", [scaled(400, 4, 20)], {"dim": 1}
    yield "var", [scaled(20, 300)], {}
    yield "var", [r(300)], {}
    yield "var", [r(4, 20)], {"dim": 1, "keepdim": True}
    yield "var", [t([1e6 - 1, 1e6 + 1, 1e6, 1e6 + 0.5])], {}
    yield "var", [t([1e3 - 1, 1e3 + 1, 1e3, 1e3 + 0.5])], {}
    yield "mean", [t([6e4, 6e4, 5e4, 4e4])], {}
    yield "nn.functional.cosine_similarity", [scaled(300, 2, 150), scaled(300, 2, 150)], {}
    yield "nn.functional.cosine_similarity", [scaled(300, 300), scaled(300, 300)], {"dim": 0}
    yield "nn.functional.cosine_similarity", [scaled(1e-3, 2, 20), scaled(1e-3, 2, 20)], {}
    weight, bias = r(3), r(3)
    for size in (20, 300):
        yield "nn.functional.batch_norm", [scaled(size, 8, 3, 5), None, None, weight, bias], {"training": True}
        yield "nn.functional.layer_norm", [scaled(size, 4, 12), [12]], {}
        yield "nn.functional.group_norm", [scaled(size, 4, 4, 6), 2], {}
        yield "nn.functional.instance_norm", [scaled(size, 2, 3, 12)], {}
        yield "nn.functional.rms_norm", [scaled(size, 4, 12), [12]], {}
    yield "mul", [t([0.5, 0.25, -0.125]), 65536.0], {}
    yield "mul", [t([0.5, 0.01]), 1e5], {}
    yield "mul", [t([1000.0, -50.0]), 1e-8], {}
    yield "div", [t([50.0, -3000.0]), 1e5], {}
    yield "nn.functional.mse_loss", [scaled(200, 30), scaled(200, 30)], {}
    yield "nn.functional.mse_loss", [scaled(300, 4), scaled(1, 4)], {"reduction": "sum"}


def degenerate():
    """Cases in which a formula divides by 0, or there are no elements."""
    equal = t([[2.5, 2.5, 2.5], [1.0, 2.0, 4.0]])
    yield "std", [equal], {"dim": 1}
    yield "std", [t([3.0, 3.0, 3.0])], {}
    yield "std", [t([3.0])], {"correction": 0}
    yield "var", [equal], {"dim": 1}
    for p in (0.5, 1, 2, 3, -1, -2, INF, 0):
        yield "norm", [t([0.0, 3.0, -4.0, 0.0])], {"p": p}
    yield "norm", [t([[0.0, 0.0], [0.5, 0.0]])], {"p": 0.5, "dim": 1}
    none = torch.tensor([-100, -100, -100])
    for reduction in ("mean", "sum", "none"):
        yield "nn.functional.nll_loss", [r(3, 4), none], {"reduction": reduction}
        yield "nn.functional.cross_entropy", [r(3, 4), none], {"reduction": reduction}
    yield "atan2", [t([0.0, -0.0, 0.0, -0.0]), t([0.0, 0.0, -0.0, -0.0])], {}
    yield "clamp", [t([NAN, -2.0, 0.5, 3.0])], {"min": -1.0, "max": 1.0}
    yield "clamp", [t([NAN, -2.0, 3.0])], {"min": -1.0}
    yield "max", [t([1.0, NAN, 3.0, NAN])], {}
    yield "min", [t([1.0, NAN, 3.0])], {}
    # We define its gradient ourselves: docs/differences.md.
    yield "amax", [t([[1.0, NAN, 3.0], [1.0, 3.0, 3.0]]).detach()], {"dim": 1}
    yield "addmm", [t([[NAN, INF], [1.0, 2.0]]), r(2, 3), r(3, 2)], {"beta": 0}
    yield "addmm", [t([[NAN, INF], [1.0, 2.0]]), r(2, 3), r(3, 2)], {"beta": 0, "alpha": 0.5}
    yield "clamp", [torch.tensor([16777217, -5, 3]), 0], {}
    yield "clamp", [torch.tensor([2**53 + 1, -(2**53) - 1, 3])], {"min": -(2**60), "max": 2**60}
    yield "matmul", [torch.tensor([[2**62, 3], [-7, 11]]), torch.tensor([[4, 1], [2, -5]])], {}
    yield "matmul", [torch.tensor([[100000, 3]], dtype=torch.int32), torch.tensor([[100000], [7]], dtype=torch.int32)], {}
    yield "matmul", [torch.tensor([[200, 3]], dtype=torch.uint8), torch.tensor([[200], [7]], dtype=torch.uint8)], {}


def later():
    """Ops that were added later, at the end, so that the random numbers of earlier cases do not change."""
    for a, b in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), ())):
        yield "logaddexp", [r(*a), r(*b)], {}
    yield "logaddexp", [t([0.5, -0.7, 1e4, -1e4, 800.0, NAN, 2.0]), t([-1.5, -0.7, 9999.0, -1e4, -800.0, 1.0, NAN])], {}
    # PyTorch's gradient is NaN if both are the same infinity; ours is a half.
    yield "logaddexp", [t([INF, -INF, 1.0, -INF]).detach(), t([INF, -INF, INF, 2.0]).detach()], {}


def later_still():
    """As `later`."""
    for a, b in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), ())):
        yield "fmod", [scaled(5, *a), r(*b)], {}
    yield "fmod", [t([7.0, -7.0, 7.0, -7.0, 0.0, 6.0]), t([2.0, 2.0, -2.0, -2.0, 3.0, 1.5])], {}
    yield "fmod", [t([5.5, -5.5, 0.0, 1e3]), -2.25], {}
    yield "fmod", [t([INF, NAN, 1.0, -1.0]).detach(), t([2.0, 2.0, 0.0, INF]).detach()], {}
    yield "fmod", [torch.tensor([7, -7, 7, -7, -6]), torch.tensor([3, 3, -3, -3, 3])], {}
    yield "fmod", [torch.tensor([7, -7, -(2**63)]), -5], {}
    for shape, dim in (((5,), 0), ((3, 4), 1), ((2, 3, 4), -2), ((), 0), ((2, 0), 1)):
        yield "cumprod", [r(*shape), dim], {}
    yield "cumprod", [t([[2.0, 0.0, 3.0, -1.5, 4.0], [0.0, 2.0, 0.0, 1.0, 5.0], [1.0, 0.5, NAN, 2.0, INF]]).detach(), 1], {}
    yield "cumprod", [t([[2.0, 0.0, 3.0, -1.5, 4.0], [0.0, 2.0, 0.0, 1.0, 5.0]]), 1], {}
    yield "cumprod", [torch.tensor([[2, -3, 4], [5, 0, 7]]), 1], {}
    for shape in ((7,), (6,), (3, 4), ()):
        yield "median", [r(*shape)], {}
    for shape, dim in (((3, 5), 1), ((4, 3), 0), ((2, 3, 4), -1)):
        yield "median", [r(*shape), dim], {}
        yield "median", [r(*shape), dim], {"keepdim": True}
    yield "median", [t([[1.0, NAN, 3.0, NAN], [4.0, 1.0, 2.0, 3.0]]), 1], {}
    yield "median", [t([1.0, NAN, 3.0])], {}
    yield "median", [torch.tensor([[4, 1, 3, 2], [9, -7, 5, 0]]), 1], {}


def indexed():
    """As `later`."""
    rows, columns = torch.tensor([0, -1, 1]), torch.tensor([[2], [0]])
    mask = torch.tensor([[True, False, True, True], [False] * 4, [False, True, False, True]])
    yield "index_put", [r(3, 4), [rows], r(4)], {}
    yield "index_put", [r(3, 4), [rows, columns], r(2, 3)], {}
    yield "index_put", [r(3, 4), [mask], r(5)], {}
    yield "index_put", [r(3, 4), [torch.tensor([True, False, True])], r(2, 1)], {}
    yield "index_put", [r(3, 4), [torch.tensor([0, 2, 0, 0]), torch.tensor([1, 3, 1, -1])], r(4)], {"accumulate": True}
    yield "index_put", [r(3, 2), [torch.tensor([1, 1, 1])], r(3, 2)], {"accumulate": True}
    yield "masked_select", [r(3, 4), mask], {}
    yield "masked_select", [r(4), mask], {}
    yield "nonzero", [t([[0.0, -1.0, NAN], [2.0, -0.0, INF]])], {}
    yield "nonzero", [mask], {}


def fused():
    """As `later`."""
    op, labels = "nn.functional.linear_cross_entropy", torch.tensor([0, 5, -100, 2, 1])
    for reduction in ("mean", "sum", "none"):
        yield op, [r(5, 3), r(6, 3), labels], {"reduction": reduction}
        yield op, [r(5, 3), r(6, 3), labels], {"reduction": reduction, "label_smoothing": 0.2, "linear_bias": r(6)}
    yield op, [r(5, 3), r(6, 3), labels.clamp(0)], {"ignore_index": 2}
    yield op, [scaled(40, 5, 3), scaled(40, 6, 3), labels], {}
    weight = t([0.2, 1.0, 3.0, 0.5, 0.0, 2.0]).detach()
    yield op, [r(5, 3), r(6, 3), labels], {"weight": weight}
    yield op, [r(5, 3), r(6, 3), labels], {"weight": weight, "label_smoothing": 0.3}


def modules():
    """(class, init, inputs) of layers."""
    for size in (1, 3, 7, 9):
        yield "AdaptiveAvgPool1d", {"output_size": size}, [r(2, 3, 7).detach()]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vectors, count = VectorSet(), {}

    def add(kind):
        for op, args, kwargs in kind():
            index = count[op] = count.get(op, -1) + 1
            add_case(vectors, op, "edge", index, args, kwargs)

    for kind in (uncovered, sizes, degenerate):
        add(kind)
    for index, (name, init, inputs) in enumerate(modules()):
        make_module_vectors.add_case(vectors, index, name, init, inputs)
    add(later)
    add(later_still)
    add(indexed)
    add(fused)
    vectors.save(OUT, LIMIT)


if __name__ == "__main__":
    main()
