"""Records results of PyTorch's ops, with which Polygrad's are compared.

    python3 scripts/make_op_vectors.py

Writes conformance/data/ops in the format of scripts/vector_set.py. Each case is
    {"k": name, "op": PyTorch's name, "var": variant, "a": [arguments], "kw": {...}, "n": outputs}
with arguments as the public PyTorch function of that name takes them. The cases are samples of PyTorch's own test suite
(OpInfo) in f64 with a fixed seed per op, and a few cases of our own that the samples leave out (NaN, infinities, ties).
At most 16 samples per variant are kept: those that cover the most kinds of arguments.

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11. Any CPU build of PyTorch 2.13 runs it;
PyTorch's test suite also needs `expecttest`, `hypothesis` and `pytest`.
"""

import itertools
import math
import pathlib
import zlib

import torch
from torch.testing._internal.common_methods_invocations import op_db

from vector_set import Unrepresentable, VectorSet

OUT = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "ops"
PER_VARIANT = 16
# The most elements in one sample's inputs and outputs; larger samples are kept only if an op has no smaller one.
ELEMENTS = 1000
LIMIT = 5_000_000

OPS = """add sub mul div pow neg exp log log1p expm1 sqrt rsqrt reciprocal abs sign floor ceil round sin cos tan tanh
sigmoid erf maximum minimum where clamp sum mean var std prod amax amin max min argmax argmin cumsum matmul mm bmm addmm
einsum transpose permute reshape view expand squeeze unsqueeze cat stack split chunk index_select gather scatter
scatter_add masked_fill topk sort flip roll tile repeat_interleave triu tril diagonal softmax log_softmax logsumexp norm
eq ne lt le gt ge logical_and logical_or logical_not isnan isfinite""".split()
OPS += [
    f"nn.functional.{name}"
    for name in """relu gelu silu leaky_relu elu softplus linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool2d batch_norm layer_norm group_norm rms_norm
    instance_norm embedding cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div scaled_dot_product_attention pad one_hot interpolate cosine_similarity
    dropout""".split()
]

# Variants that repeat another one on the CPU, or are complex.
SKIPPED = {
    ("addmm", "decomposed"),
    ("bmm", "triton_optimized"),
    ("nn.functional.batch_norm", "without_cudnn"),
    ("nn.functional.silu", "complex"),
}


def function(name):
    """The public function of this name."""
    where = torch
    for part in name.split("."):
        where = getattr(where, part) if hasattr(where, part) else getattr(torch.Tensor, part)
    return where


def arguments(name, variant, sample):
    """The sample's arguments as the public function takes them, since OpInfo reorders some."""
    args, kwargs = [sample.input, *sample.args], dict(sample.kwargs)
    if name == "where":
        args = [args[1], args[0], args[2]]
    elif name in ("einsum", "nn.functional.embedding"):
        args = [args[1], args[0]]
    elif name == "nn.functional.pad" and len(args) < 3:
        kwargs.setdefault("mode", variant)
    elif name == "round" and variant == "":
        kwargs = {}
    return args, kwargs


def deterministic(name, args, kwargs):
    """Whether the result does not depend on random numbers."""
    if name == "nn.functional.dropout":
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        return p in (0, 1) or not training
    if name == "nn.functional.scaled_dot_product_attention":
        return kwargs.get("dropout_p", 0.0) == 0.0
    return True


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return []


def features(args, kwargs):
    """What this sample exercises: (argument, rank, zero size, dtype) of tensors, (argument, value) of others,
    and pairs of the latter."""
    seen = {("count", len(args), tuple(sorted(kwargs)))}
    for name, value in [*enumerate(args), *kwargs.items()]:
        inner = tensors(value)
        if inner:
            first = inner[0].dim()
            seen |= {(name, t.dim(), t.numel() == 0, str(t.dtype), t.dim() - first) for t in inner}
        else:
            seen.add((name, repr(value)))
    ranks = tuple(t.dim() for v in args for t in tensors(v))
    plain = sorted((f for f in seen if len(f) == 2), key=repr)
    return seen | {("ranks", ranks)} | set(itertools.combinations(plain, 2))


def call(name, args, kwargs):
    """The tensor outputs, as a list, for a copy of the arguments, since some ops modify them."""
    return tensors(tuple_of(function(name)(*args, **kwargs)))


def leaf(value):
    """A copy that shares nothing with the sample and is a leaf of the graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return [leaf(v) for v in value]
    return value


def add_case(vectors, name, variant, index, args, kwargs):
    k = f"{name}.{variant}/{index}" if variant else f"{name}/{index}"
    args, kwargs = [leaf(a) for a in args], {key: leaf(v) for key, v in kwargs.items()}
    case = {
        "k": k,
        "op": name,
        "var": variant,
        "a": [vectors.encode(a, f"{k}/a.{i}") for i, a in enumerate(args)],
        "kw": {key: vectors.encode(v, f"{k}/k.{key}") for key, v in kwargs.items()},
    }
    wanted = [w for i, a in enumerate(args) for w in vectors.leaves(a, f"{k}/a.{i}")]
    wanted += [w for key, v in kwargs.items() for w in vectors.leaves(v, f"{k}/k.{key}")]
    case["n"] = vectors.outputs(k, call(name, args, kwargs), wanted)
    vectors.cases.append(case)


def choose(candidates):
    """Up to PER_VARIANT of the (features, elements, args, kwargs), by how much each adds; small ones first."""
    fitting = [c for c in candidates if c[1] <= ELEMENTS]
    pool = fitting or [min(candidates, key=lambda c: c[1])]
    pool = [(i, *c) for i, c in enumerate(pool)]
    chosen, covered = [], set()
    while pool and len(chosen) < PER_VARIANT:
        best = min(pool, key=lambda c: (-len(c[1] - covered), c[2], c[0]))
        covered = covered | best[1] if best[1] - covered else set(best[1])
        pool.remove(best)
        chosen.append(best)
    return [(args, kwargs) for _, _, _, args, kwargs in sorted(chosen, key=lambda c: c[0])]


def same_as_opinfo(info, sample, outputs):
    """Check that `arguments` kept the meaning of the sample."""
    args = [leaf(a) for a in sample.args]
    kwargs = {key: leaf(v) for key, v in sample.kwargs.items()}
    expected = tensors(tuple_of(info(leaf(sample.input), *args, **kwargs)))
    if len(expected) != len(outputs):
        raise SystemExit(f"{info.full_name}: {len(outputs)} outputs, OpInfo has {len(expected)}")
    for a, b in zip(outputs, expected):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def tuple_of(value):
    return value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)


def opinfo_cases(vectors, info):
    name, variant = info.name, info.variant_test_name
    torch.manual_seed(zlib.crc32(f"{name}.{variant}".encode()))
    candidates = []
    dtype = torch.float64 if torch.float64 in info.dtypes else torch.int64
    grad = info.supports_autograd and dtype == torch.float64
    for sample in info.sample_inputs("cpu", dtype, requires_grad=grad, set_seed=False):
        args, kwargs = arguments(name, variant, sample)
        if not deterministic(name, args, kwargs):
            continue
        try:
            for value in [*args, *kwargs.values()]:
                VectorSet().encode(value, "")
        except Unrepresentable as reason:
            print(f"{name}.{variant}: skipped a sample,{reason}")
            continue
        every = [t for v in [*args, *kwargs.values()] for t in tensors(v)]
        outputs = call(name, [leaf(a) for a in args], {key: leaf(v) for key, v in kwargs.items()})
        same_as_opinfo(info, sample, outputs)
        size = sum(t.numel() for t in every + outputs)
        candidates.append((features(args, kwargs), size, args, kwargs))
    for index, (args, kwargs) in enumerate(choose(candidates)):
        add_case(vectors, name, variant, index, args, kwargs)


def own_cases(vectors):
    """Cases that the samples leave out: NaN and infinities, ties, empty reductions, Python scalars of both signs."""
    nan, inf = math.nan, math.inf

    def t(values, grad=True):
        return torch.tensor(values, dtype=torch.float64, requires_grad=grad)

    odd = [[nan, inf, -inf], [0.0, -0.0, 1.5]]
    ties = [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]
    torch.manual_seed(0)

    def r(*shape):
        return torch.randn(shape, dtype=torch.float64, requires_grad=True)

    attention = "nn.functional.scaled_dot_product_attention"
    mask = torch.tensor([[True, False, True, True], [False, True, False, False], [True] * 4])
    cases = [
        *((op, [t(odd, False)], {}) for op in ("isnan", "isfinite", "logical_not")),
        *((op, [t(odd, False), t(0.0, False)], {}) for op in ("eq", "ne", "lt", "le", "gt", "ge")),
        *((op, [t(odd, False)], {}) for op in ("sign", "abs", "floor", "exp", "tanh", "sigmoid", "erf", "nn.functional.relu")),
        *((op, [t(odd, False), t([[1.0, nan, 2.0]], False)], {}) for op in ("maximum", "minimum")),
        *((op, [t([0.5, 1.5, 2.5, -0.5, -1.5, -2.5])], {}) for op in ("round", "floor", "ceil", "sign")),
        *((op, [t(ties)], {"dim": [1]}) for op in ("amax", "amin")),
        *((op, [t(ties)], {}) for op in ("amax", "amin", "max", "min")),
        *((op, [t([1.0, 2.0, 3.0]), t([1.0, 3.0, 2.0])], {}) for op in ("maximum", "minimum")),
        *((op, [t([[1.0, nan], [2.0, 0.5]], False)], {"dim": [1]}) for op in ("amax", "amin")),
        *((op, [t(ties, False)], {"dim": 1}) for op in ("argmax", "argmin")),
        *((op, [t([[], []])], {"dim": 1}) for op in ("sum", "prod", "var", "std", "logsumexp")),
        ("prod", [t([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0]])], {"dim": 1}),
        ("pow", [t([-2.0, 0.0, 3.0]), 2], {}),
        ("pow", [t([-2.0, 1.0, 3.0]), 3.0], {}),
        ("pow", [2.0, t([-2.0, 0.0, 3.0])], {}),
        ("div", [t([7.0, -7.0, 7.0]), t([2.0, 2.0, -2.0])], {"rounding_mode": "floor"}),
        ("div", [t([7.0, -7.0, 7.0]), t([2.0, 2.0, -2.0])], {"rounding_mode": "trunc"}),
        *(
            ("div", [t([7.5, -7.5, 1.0, -1.0]), t([2.0, 2.0, 0.0, 0.375])], {"rounding_mode": mode})
            for mode in ("floor", "trunc")
        ),
        *(
            ("div", [torch.tensor([7, -7, 7, -8]), torch.tensor([2, 2, -2, 4])], {"rounding_mode": mode})
            for mode in ("floor", "trunc")
        ),
        ("div", [t([7.0, -7.0]), -2.5], {"rounding_mode": "floor"}),
        ("div", [1.5, t([2.0, -4.0])], {}),
        ("add", [2, t([1.0, 2.0])], {"alpha": 3}),
        ("mul", [-1.5, t([1.0, 2.0])], {}),
        *((op, [t([1.0, 2.0, 3.0], False), 2], {}) for op in ("eq", "ne", "lt", "le", "gt", "ge")),
        ("cat", [[t([]), r(2, 3), t([]), r(1, 3)]], {}),
        *(
            ("scatter", [r(3, 4).detach(), 1, torch.tensor([[0, 0, 1], [3, 3, 3]]), 1.5], {"reduce": reduce})
            for reduce in ("add", "multiply")
        ),
        (
            "scatter",
            [r(3, 2).detach(), 0, torch.tensor([[0, 2], [0, 1], [0, 2]]), r(4, 2).detach()],
            {"reduce": "multiply"},
        ),
        *((op, [torch.arange(6).reshape(2, 3), 1], {"dtype": torch.float64}) for op in ("softmax", "log_softmax", "cumsum")),
        *((op, [torch.arange(6).reshape(2, 3)], {"dim": 1, "dtype": torch.float64}) for op in ("sum", "mean", "prod")),
        ("norm", [r(2, 3, 4)], {"p": "nuc", "dim": [0, 2], "keepdim": True}),
        (
            "nn.functional.conv_transpose2d",
            [r(1, 2, 3, 3), r(2, 1, 2, 2)],
            {"stride": [1, 2], "padding": [2, 1], "output_padding": [2, 3], "dilation": [3, 4]},
        ),
        *(
            ("nn.functional.pad", [r(2, 3, 5), border], {"mode": mode})
            for mode in ("reflect", "replicate", "circular")
            for border in ([2, 1], [-1, 2], [3, -2])
        ),
        ("nn.functional.pad", [r(2, 3, 4), [-1, 2, 0, -2, 1, 0]], {"value": 0.5}),
        ("nn.functional.pad", [torch.arange(6).reshape(2, 3), [1, 1]], {"value": 7}),
        ("nn.functional.avg_pool2d", [r(1, 2, 5, 6)], {"kernel_size": 3, "stride": 2, "ceil_mode": True, "divisor_override": -4}),
        ("nn.functional.adaptive_avg_pool2d", [r(2, 5, 7), [3, None]], {}),
        ("nn.functional.embedding", [torch.tensor([1, 0, 1]), r(3, 2)], {"sparse": False, "norm_type": 1.0}),
        ("nn.functional.cosine_similarity", [t([[0.0, 0.0], [3.0, 4.0]]), t([[1.0, 2.0], [-3.0, -4.0]])], {}),
        ("nn.functional.binary_cross_entropy", [t([0.0, 1.0, 1e-300, 0.5]), t([0.0, 0.0, 1.0, 1.0], False)], {"reduction": "none"}),
        ("nn.functional.kl_div", [r(2, 3), t([[0.0, 0.4, 0.6], [1.0, 0.0, 0.0]], False)], {"reduction": "batchmean"}),
        ("nn.functional.smooth_l1_loss", [t([0.0, 1.0, 3.0]), t([0.0, 0.0, 0.0])], {"beta": 1.0, "reduction": "sum"}),
        ("nn.functional.mse_loss", [r(3), r(3)], {"size_average": False}),
        ("nn.functional.l1_loss", [r(3), r(3)], {"reduce": False}),
        ("nn.functional.cross_entropy", [r(2, 3, 4), torch.tensor([[0, 1, 2, -100], [2, 2, 0, 1]])], {"weight": t([0.2, 1.0, 3.0], False), "label_smoothing": 0.3}),
        ("nn.functional.nll_loss", [r(2, 3, 4), torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1]])], {"weight": t([0.2, 1.0, 3.0], False), "ignore_index": 1}),
        ("nn.functional.instance_norm", [r(2, 3, 4), r(3).detach(), r(3).detach().exp(), r(3), r(3), False], {}),
        ("nn.functional.batch_norm", [r(0, 3, 2), r(3).detach(), r(3).detach().exp(), r(3), r(3)], {}),
        ("add", [t([1.0, 2.0]), 3], {"alpha": -2}),
        ("sub", [t([1.0, 2.0]), t([[0.5], [4.0]])], {}),
        ("mul", [t([1.0, 2.0]), -1.5], {}),
        ("clamp", [t([-2.0, 0.5, 3.0, 1.0])], {"min": -1.0, "max": 1.0}),
        ("clamp", [t([-2.0, 0.5, 3.0, 1.0])], {"min": 1.0}),
        ("clamp", [t([-2.0, 0.5, 3.0, 1.0])], {"max": 1.0}),
        ("where", [torch.tensor([[True], [False]]), t([1.0, nan]), t(2.0)], {}),
        ("softmax", [t([[1000.0, 999.0, -inf], [0.0, -1000.0, 1.0]])], {"dim": 1}),
        ("log_softmax", [t([[1000.0, 999.0, 998.0], [0.0, -1000.0, 1.0]])], {"dim": 1}),
        ("logsumexp", [t([[1000.0, 999.0, 998.0], [-inf, -1000.0, 1.0]])], {"dim": [1]}),
        ("nn.functional.softplus", [t([-1000.0, -30.0, 0.0, 19.0, 21.0, 1000.0])], {}),
        ("nn.functional.gelu", [t([-40.0, -3.0, 0.0, 3.0, 40.0])], {}),
        ("nn.functional.gelu", [t([-40.0, -3.0, 0.0, 3.0, 40.0])], {"approximate": "tanh"}),
        ("nn.functional.elu", [t([-50.0, -1.0, 0.0, 1.0])], {"alpha": 0.7}),
        ("nn.functional.leaky_relu", [t([-2.0, 0.0, 3.0])], {"negative_slope": 0.2}),
        ("nn.functional.binary_cross_entropy_with_logits", [t([-800.0, 800.0, 0.5]), t([0.0, 1.0, 0.3], False)], {}),
        ("nn.functional.l1_loss", [t([1.0, 2.0, 3.0]), t([1.0, 1.0, 5.0], False)], {}),
        (
            "nn.functional.embedding",
            [torch.tensor([[0, 2], [2, 1]]), r(4, 3)],
            {"padding_idx": 2},
        ),
        (
            "nn.functional.cross_entropy",
            [r(4, 3), torch.tensor([0, 2, -100, 1])],
            {"label_smoothing": 0.1},
        ),
        (
            "nn.functional.cross_entropy",
            [
                r(4, 3),
                torch.softmax(torch.randn(4, 3, dtype=torch.float64), 1).requires_grad_(),
            ],
            {"label_smoothing": 0.2, "reduction": "sum"},
        ),
        (attention, [r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4)], {"is_causal": True}),
        (attention, [r(2, 1, 3, 4), r(2, 1, 4, 4), r(2, 1, 4, 2)], {"attn_mask": mask}),
        (attention, [r(1, 2, 3, 4), r(1, 2, 4, 4), r(1, 2, 4, 4)], {"attn_mask": r(3, 4), "scale": 0.3}),
        (attention, [r(1, 4, 3, 2), r(1, 2, 3, 2), r(1, 2, 3, 2)], {"enable_gqa": True}),
        (attention, [r(3, 2), r(2, 4, 2), r(1, 4, 5)], {"is_causal": True}),
        (
            "nn.functional.interpolate",
            [r(1, 2, 3, 4)],
            {"scale_factor": 2.0, "mode": "bilinear", "align_corners": False},
        ),
        *(
            (
                "nn.functional.interpolate",
                [r(1, 2, 3, 4)],
                {"scale_factor": [1.7, 0.6], "mode": mode, "recompute_scale_factor": recompute},
            )
            for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
            for recompute in (True, False)
        ),
    ]
    count = {}
    for op, args, kwargs in cases:
        index = count[op] = count.get(op, -1) + 1
        add_case(vectors, op, "own", index, args, kwargs)


def main():
    torch.set_num_threads(1)
    vectors = VectorSet()
    infos = {name: [i for i in op_db if i.name == name] for name in OPS}
    for name, variants in infos.items():
        if not variants:
            raise SystemExit(f"PyTorch's op_db has no '{name}'")
        for info in variants:
            if (name, info.variant_test_name) not in SKIPPED:
                opinfo_cases(vectors, info)
    own_cases(vectors)
    vectors.save(OUT, LIMIT)
    for name in OPS:
        cases = [c for c in vectors.cases if c["op"] == name]
        grads = sum(f"{c['k']}/ct.0" in vectors.tensors for c in cases)
        print(f"{name} {len(cases)} ({grads} with gradients)")


if __name__ == "__main__":
    main()
