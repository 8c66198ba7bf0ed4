"""The file format that the make_*_vectors.py scripts share.

A set is a folder with `manifest.json`, a list of cases, and `tensors.safetensors`, the tensors that
the cases name. In a case an argument is JSON as PyTorch takes it, with these additions:

- a tensor is `{"t": key}`, a list of tensors a list of these;
- a dtype is its name, "float64"; a float that JSON lacks is "inf", "-inf" or "nan".

`<k>/o.<i>` is output i of case k, `<k>/ct.<i>` the cotangent given for it, and `<key>/g` the gradient that PyTorch
found for the tensor at `key`. Beside an output or a gradient, `<key>@f16` may hold PyTorch's own result in f16, or in
another dtype, if that is inaccurate.
"""

import json
import math

import torch
from safetensors.torch import save_file

KEPT = {torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool}


class Unrepresentable(Exception):
    """An argument that the format cannot carry."""


class VectorSet:
    """Cases and their tensors, to be written to a folder."""

    def __init__(self):
        self.cases = []
        self.tensors = {}

    def put(self, key, tensor):
        """Keeps a copy of this tensor under this key."""
        if tensor.dtype not in KEPT or tensor.layout != torch.strided:
            raise Unrepresentable(f"{key}: {tensor.dtype}, {tensor.layout}")
        if key in self.tensors:
            raise ValueError(f"{key} is taken")
        self.tensors[key] = tensor.detach().clone().resolve_conj().contiguous()

    def encode(self, value, key):
        """This argument as JSON; its tensors go into the set under keys that start with `key`."""
        if isinstance(value, torch.Tensor):
            self.put(key, value)
            return {"t": key}
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, (list, tuple)):
            return [self.encode(v, f"{key}.{i}") for i, v in enumerate(value)]
        if isinstance(value, dict):
            return {name: self.encode(v, f"{key}.{name}") for name, v in value.items()}
        raise Unrepresentable(f"{key}: {type(value).__name__}")

    def leaves(self, value, key):
        """The (key, tensor) pairs of an argument, in the order in which `encode` meets them."""
        if isinstance(value, torch.Tensor):
            return [(key, value)]
        if isinstance(value, (list, tuple)):
            return [leaf for i, v in enumerate(value) for leaf in self.leaves(v, f"{key}.{i}")]
        return []

    def outputs(self, k, outputs, wanted):
        """Keeps the outputs of case k, random cotangents for the differentiable ones, and the gradients of the `wanted`
        (key, tensor) pairs. Returns the number of outputs."""
        cotangents, roots = [], []
        for i, out in enumerate(outputs):
            self.put(f"{k}/o.{i}", out)
            if out.requires_grad:
                cotangents.append(torch.randn_like(out))
                roots.append(out)
                self.put(f"{k}/ct.{i}", cotangents[-1])
        wanted = [(key, t) for key, t in wanted if t.requires_grad]
        if roots and wanted:
            found = torch.autograd.grad(roots, [t for _, t in wanted], cotangents, allow_unused=True)
            for (key, _), grad in zip(wanted, found):
                if grad is not None:
                    self.put(f"{key}/g", grad)
        return len(outputs)

    def save(self, folder, limit):
        """Writes the set; fails if it takes more than `limit` bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(c, allow_nan=False, separators=(",", ":")) for c in self.cases)
        (folder / "manifest.json").write_text(f"[\n{lines}\n]\n")
        save_file(self.tensors, folder / "tensors.safetensors")
        size = 0
        for name in ("manifest.json", "tensors.safetensors"):
            (folder / name).chmod(0o644)
            size += (folder / name).stat().st_size
        print(f"{folder.name}: {len(self.cases)} cases, {len(self.tensors)} tensors, {size} bytes")
        if size > limit:
            raise SystemExit(f"{folder} takes {size} bytes, more than {limit}")
