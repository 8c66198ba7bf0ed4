"""Records PyTorch's own result in each dtype if it is inaccurate, as proof that the dtype is too narrow for the op.

    python3 scripts/make_own_results.py

Run it after the other make_*_vectors.py scripts. It adds to sets in conformance/data, beside the truth at `<key>`, the
tensor `<key>@<dtype>`: PyTorch's own result on a CPU in f32, f16 or bf16, for inputs rounded to it, if its distance
from PyTorch's f64 result for the same inputs is more than half of what the suite allows near 0. In f64, if the truth
itself is only a rounding error, it is the farthest of the results for inputs that differ in their last place.

Made with PyTorch 2.13.0, transformers 5.23.0, safetensors 0.8.0, NumPy 2.4.6, expecttest 0.3.0 and Python 3.11, on a CPU with AVX2.
"""

import json
import math
import pathlib

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.t5.modeling_t5 import T5LayerNorm

from make_language_model_vectors import exact
from make_op_vectors import call, tensors

DATA = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data"
SETS = ("ops", "edges", "modules", "language")
# A share of the largest value: what conformance/src/tolerance.rs allows at most near 0.
ALLOWED = {"f64": 1e-10, "f32": 1e-5, "f16": 1e-2, "bf16": 5e-2}
DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Rounding errors in f64 of terms of ordinary size are smaller than this; a larger change means that a step was crossed.
LEFT_OVER = 1e-11
RUNS = 8


class Replay:
    """A case with its inputs rounded to one dtype, computed in another."""

    def __init__(self, case, file, inputs_in, dtype, shift=None):
        self.case, self.file, self.inputs_in, self.dtype, self.shift = case, file, inputs_in, dtype, shift
        self.leaves = {}

    def tensor(self, key):
        x = self.file[key]
        if x.is_floating_point():
            x = x.to(self.inputs_in).to(self.dtype)
            if self.shift is not None:
                x = x * (1 + 2.0**-52 * torch.randint(-1, 2, x.shape, generator=self.shift).double())
            if f"{key}/g" in self.file:
                x = self.leaves.setdefault(key, x.clone().requires_grad_())
        return x

    def value(self, value, name=""):
        if isinstance(value, dict) and set(value) == {"t"}:
            return self.tensor(value["t"])
        if name in ("size", "scale_factor") and isinstance(value, list):
            return tuple(value)
        if isinstance(value, list):
            return [self.value(v) for v in value]
        if isinstance(value, str) and value.lstrip("-") in ("inf", "nan"):
            return float(value)
        if name == "dtype" and isinstance(value, str):
            return self.dtype if value == "float64" else getattr(torch, value)
        return value

    def outputs(self):
        case = self.case
        args = [self.value(a) for a in case["a"]]
        if not any(key.startswith("state.") for key in case["kw"]) and not case["op"].startswith("nn.") or "functional" in case["op"]:
            return call(case["op"], args, {name: self.value(v, name) for name, v in case["kw"].items()})
        kw = dict(case["kw"])
        state = {name.removeprefix("state."): kw.pop(name) for name in list(kw) if name.startswith("state.")}
        train = kw.pop("train", True)
        if case["op"].startswith("nn."):
            init = {name: self.value(v, name) for name, v in kw.items()}
            module = getattr(nn, case["op"].removeprefix("nn."))(**init)
            run, fixed = module, {name for name, v in init.items() if isinstance(v, torch.Tensor)}
        else:
            module, run, fixed = self.language(kw, args), None, set()
        module = module.to(self.dtype).train(train)
        module.load_state_dict({name: self.file[v["t"]] for name, v in state.items()}, strict=False)
        for name, p in module.named_parameters():
            with torch.no_grad():
                p.copy_(self.tensor(state[name]["t"]))
            self.leaves[state[name]["t"]] = p
        for name, b in module.named_buffers():
            if b.is_floating_point() and name in state:
                b.copy_(self.tensor(state[name]["t"]))
        if run is None:
            named = {"decoder_input_ids": args[1]} if len(args) > 1 else {}
            more = {name: self.value(v) for name, v in kw.items() if name != "config"}
            return [module(input_ids=args[0], **named, **more).logits]
        kept = module.state_dict()
        out = tensors(run(*args))
        return out + [b for name, b in sorted(module.named_buffers()) if name in kept and name not in fixed]

    def language(self, kw, args):
        name, config = self.case["op"], kw["config"]
        if name == "GPT2LMHeadModel":
            return hf.GPT2LMHeadModel(hf.GPT2Config(**config, use_cache=False))
        if name == "BertForSequenceClassification":
            return hf.BertForSequenceClassification(hf.BertConfig(**config))
        model = hf.T5ForConditionalGeneration(hf.T5Config(**config, use_cache=False))
        if config.get("tie_word_embeddings") is False:
            model.lm_head.weight = nn.Parameter(torch.empty(config["vocab_size"], config["d_model"]))
        for part in model.modules():
            if isinstance(part, T5LayerNorm):
                part.forward = exact(part)
        return model

    def results(self):
        """Returns outputs and gradients by their keys in the file."""
        k, outputs = self.case["k"], self.outputs()
        found = {f"{k}/o.{i}": out.detach() for i, out in enumerate(outputs)}
        pairs = [(out, self.file[f"{k}/ct.{i}"]) for i, out in enumerate(outputs) if f"{k}/ct.{i}" in self.file]
        pairs = [(out, ct.to(self.inputs_in).to(out.dtype)) for out, ct in pairs if out.requires_grad]
        leaves = [(key, x) for key, x in self.leaves.items() if f"{key}/g" in self.file]
        if pairs and leaves:
            grads = torch.autograd.grad([p[0] for p in pairs], [x for _, x in leaves], [p[1] for p in pairs], allow_unused=True)
            found |= {f"{key}/g": g for (key, _), g in zip(leaves, grads) if g is not None}
        return found


def off(own, truth):
    """The largest difference, which is infinite if only one of the two is a number."""
    own, truth = own.double(), truth.double()
    same = (own == truth) | (own.isnan() & truth.isnan())
    return torch.where(same, 0.0, (own - truth).abs()).nan_to_num(nan=math.inf, posinf=math.inf)


def largest(x):
    x = x.double().abs()
    return float(torch.where(x.isfinite(), x, 0.0).max()) if x.numel() else 0.0


def of_case(case, file):
    """The keys and tensors to store for this case."""
    kept = {}
    f64 = torch.float64
    truth = Replay(case, file, f64, f64).results()
    for key, x in truth.items():
        if x.is_floating_point() and float(off(x, file[key]).max() if x.numel() else 0) > 1e-9 * (1 + largest(file[key])):
            raise ValueError(f"{key} is not what the set has")
    shift = torch.Generator().manual_seed(0)
    farthest = {key: x.clone() for key, x in truth.items()}
    for _ in range(RUNS):
        try:
            moved = Replay(case, file, f64, f64, shift).results()
        except RuntimeError:  # An input at the edge of the op's domain has left it.
            continue
        for key, x in moved.items():
            where = off(x, file[key]) > off(farthest[key], file[key])
            farthest[key] = torch.where(where, x, farthest[key])
    for key, x in farthest.items():
        if x.is_floating_point() and x.numel():
            worst = float(off(x, file[key]).max())
            if ALLOWED["f64"] * largest(file[key]) / 2 < worst <= LEFT_OVER:
                kept[f"{key}@f64"] = x
    for name, dtype in list(DTYPES.items())[1:]:
        try:
            own = Replay(case, file, dtype, dtype).results()
        except (RuntimeError, NotImplementedError) as reason:
            print(f"{case['k']}: not in {name}: {str(reason).splitlines()[0]}")
            continue
        rounded = Replay(case, file, dtype, f64).results()
        for key, x in own.items():
            if not x.is_floating_point() or not x.numel():
                continue
            # If the truth exceeds the dtype's range, the expected result is the infinity that it rounds to.
            exact_in_dtype = rounded[key].to(dtype).double()
            worst = torch.minimum(off(x, rounded[key]), off(x, exact_in_dtype)).max()
            if float(worst) > ALLOWED[name] * largest(rounded[key]) / 2:
                kept[f"{key}@{name}"] = x.to(dtype).contiguous()
    return kept


def main():
    torch.set_num_threads(1)
    for name in SETS:
        folder = DATA / name
        file = {key: x for key, x in load_file(folder / "tensors.safetensors").items() if "@" not in key}
        kept = {}
        for case in json.loads((folder / "manifest.json").read_text()):
            try:
                kept |= of_case(case, file)
            except Exception as reason:  # noqa: BLE001
                print(f"{case['k']}: left out: {type(reason).__name__}: {str(reason).splitlines()[0]}")
        save_file({**file, **{key: x.detach().contiguous() for key, x in kept.items()}}, folder / "tensors.safetensors")
        (folder / "tensors.safetensors").chmod(0o644)
        counts = {d: sum(key.endswith(f"@{d}") for key in kept) for d in DTYPES}
        print(f"{name}: {counts}, {sum(x.numel() * x.element_size() for x in kept.values())} bytes of values")


if __name__ == "__main__":
    main()
