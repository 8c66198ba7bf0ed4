"""Records PyTorch's results for NaN, infinities and tensors without elements, for every recorded op and layer.

    python3 scripts/make_special_vectors.py

Writes conformance/data/specials, in f64, in the format of scripts/vector_set.py; run it after the scripts that write
the sets it reads. For each op, variant and layer it takes the smallest recorded case and changes one argument: an
element becomes NaN, infinity or negative infinity, or one axis becomes empty, alone or with every axis of that extent.
`special` says which: "nan", "inf", "-inf" or "empty". If PyTorch refuses the change, `n` is 0 and `refused` is true.
docs/differences.md is compared with the results.

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6, expecttest 0.3.0 and Python 3.11. Any CPU build of PyTorch 2.13 runs it.
"""

import json
import math
import os
import pathlib
import warnings

import torch
from safetensors.torch import load_file

import make_module_vectors
from make_op_vectors import add_case, tensors
from vector_set import VectorSet

DATA = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data"
LIMIT = 3_500_000
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def decode(value, stored):
    """An argument as PyTorch takes it."""
    if isinstance(value, dict):
        if set(value) == {"t"}:
            return stored[value["t"]].clone().requires_grad_(f"{value['t']}/g" in stored)
        return {name: decode(v, stored) for name, v in value.items()}
    if isinstance(value, list):
        return [decode(v, stored) for v in value]
    if value == "float64":
        return torch.float64
    return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(value, value) if isinstance(value, str) else value


def smallest(folder):
    """The smallest case with a real tensor of every op and variant of a set: (case, its tensors)."""
    stored = load_file(DATA / folder / "tensors.safetensors")
    chosen = {}
    for case in json.loads((DATA / folder / "manifest.json").read_text()):
        keys = [key for key in stored if key.startswith(case["k"] + "/")]
        inputs = tensors([decode(v, stored) for v in [*case["a"], *case["kw"].values()]])
        if not any(t.is_floating_point() and t.numel() > 1 for t in inputs):
            continue
        size = sum(stored[key].numel() for key in keys)
        # A case with more arguments tests more.
        rank = (size - 4 * len(case["kw"]), len(chosen))
        name = (case["op"], case["var"], case["kw"].get("train", True))
        if name not in chosen or rank < chosen[name][0]:
            chosen[name] = (rank, case)
    return [(case, stored) for _, case in chosen.values()]


def replaced(value, target, make):
    """A copy of an argument with its tensors replaced by `make`; `target` is the tensor that changes."""
    if isinstance(value, torch.Tensor):
        changed = make(value.detach(), value is target)
        return changed.clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return [replaced(v, target, make) for v in value]
    return value


def changes(args):
    """(kind, a function for `replaced`, the tensor that changes) for the arguments of a case."""
    reals = [t for t in tensors(args) if t.is_floating_point() and t.numel()]
    for target in reals:
        for kind, special in SPECIAL.items():
            def put(t, changes, special=special):
                if not changes:
                    return t
                flat = t.clone().flatten()
                flat[flat.numel() // 3] = special
                return flat.reshape(t.shape)

            yield kind, put, target
    seen = set()
    for target in reals[:2]:
        for axis, extent in enumerate(target.shape):
            def alone(t, changes, axis=axis):
                return t.narrow(axis, 0, 0) if changes else t

            def together(t, changes, extent=extent, axis=axis):
                shape = [0 if e == extent and (a == axis or t.dim() != len(target.shape)) else e for a, e in enumerate(t.shape)]
                return t[tuple(slice(0, e) for e in shape)]

            for cut in (alone, together):
                shapes = tuple(tuple(cut(t.detach(), t is target).shape) for t in tensors(args))
                if shapes not in seen:
                    seen.add(shapes)
                    yield "empty", cut, target


def survives(add):
    """Whether PyTorch returns or raises, rather than ending the process."""
    child = os.fork()
    if child == 0:
        try:
            add(VectorSet())
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def attempt(vectors, what, add):
    """Adds a case, or a note that PyTorch refuses it."""
    if what == "empty" and not survives(add):
        return
    trial = VectorSet()
    try:
        add(trial)
        [case] = trial.cases
    except (RuntimeError, ValueError, IndexError, TypeError):
        # Only the arguments.
        trial = VectorSet()
        case = add.refused(trial)
        case.update(k=add.name(), n=0, refused=True)
    case["special"] = what
    vectors.cases.append(case)
    vectors.tensors.update(trial.tensors)


class Op:
    """A case of a function."""

    def __init__(self, case, args, kwargs, index):
        self.case, self.args, self.kwargs, self.index = case, args, kwargs, index

    def __call__(self, vectors):
        add_case(vectors, self.case["op"], self.case["var"], self.index, self.args, self.kwargs)

    def name(self):
        name, variant = self.case["op"], self.case["var"]
        return f"{name}.{variant}/{self.index}" if variant else f"{name}/{self.index}"

    def refused(self, vectors):
        k = self.name()
        args = [vectors.encode(a, f"{k}/a.{i}") for i, a in enumerate(self.args)]
        kwargs = {key: vectors.encode(v, f"{k}/k.{key}") for key, v in self.kwargs.items()}
        return {"op": self.case["op"], "var": self.case["var"], "a": args, "kw": kwargs}


class Layer:
    """A case of a layer or a loss."""

    def __init__(self, case, args, kwargs, index):
        self.case, self.args, self.index = case, args, index
        self.state = {key.removeprefix("state."): v.detach() for key, v in kwargs.items() if key.startswith("state.")}
        self.init = {key: v for key, v in kwargs.items() if not key.startswith("state.") and key != "train"}
        self.train = kwargs.get("train", True)

    def name(self):
        return f"{self.case['op']}/{self.index}"

    def module(self):
        module = getattr(torch.nn, self.case["op"].removeprefix("nn."))(**self.init).to(torch.float64)
        module.load_state_dict(self.state, strict=False)
        return module

    def __call__(self, vectors):
        name = self.case["op"].removeprefix("nn.")
        run = None
        module = self.module()
        if name == "CTCLoss":
            run = lambda x, *others: module(x.log_softmax(-1), *others)
        make_module_vectors.add_module(vectors, self.name(), name, self.init, module, self.args, self.train, run)

    def refused(self, vectors):
        k = self.name()
        kw = {key: vectors.encode(v, f"{k}/k.{key}") for key, v in self.init.items()}
        if not self.train:
            kw["train"] = False
        for key, value in self.state.items():
            kw[f"state.{key}"] = vectors.encode(value, f"{k}/k.state.{key}")
        args = [vectors.encode(x, f"{k}/a.{n}") for n, x in enumerate(self.args)]
        return {"op": self.case["op"], "var": "", "a": args, "kw": kw}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    vectors, count = VectorSet(), {}
    done = set()
    for folder, kind in (("ops", Op), ("edges", Op), ("modules", Layer)):
        for case, stored in smallest(folder):
            layer = case["op"].startswith("nn.") and not case["op"].startswith("nn.functional.")
            if layer != (kind is Layer) or (case["op"], case["var"]) in done and kind is Op:
                continue
            done.add((case["op"], case["var"]))
            if case["op"] == "nn.EmbeddingBag":
                continue
            args = [decode(a, stored) for a in case["a"]]
            kwargs = {key: decode(v, stored) for key, v in case["kw"].items()}
            named = list(kwargs) if kind is Op else []
            every = [*args, *(kwargs[key] for key in named)]
            for what, make, target in changes(every):
                changed = [replaced(v, target, make) for v in every]
                index = count[case["op"], case["var"]] = count.get((case["op"], case["var"]), -1) + 1
                new = kind(case, changed[: len(args)], {**kwargs, **dict(zip(named, changed[len(args):]))}, index)
                attempt(vectors, what, new)
    vectors.save(DATA / "specials", LIMIT)


if __name__ == "__main__":
    main()
