"""Writes files in foreign formats for the tests of crates/formats, with the values that they contain.

    PYTHONPATH=... python3 scripts/make_format_files.py

Writes crates/formats/tests/data. Beside `NAME.EXT` is `NAME.expected.safetensors`: the same tensors as read by PyTorch,
NumPy or the package gguf, and widened as in Polygrad if it lacks their dtype.

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6, gguf 0.19.0 and Python 3.11.
"""

import argparse
import json
import pathlib
import warnings

import gguf
import numpy
import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "formats" / "tests" / "data"

WIDER = {
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}


def expect(name, tensors):
    """Stores the expected values of `name`."""
    wide = {key: value.detach().to(WIDER.get(value.dtype, value.dtype)).contiguous().clone() for key, value in tensors.items()}
    save_file(wide, OUT / f"{name}.expected.safetensors")


def every_dtype():
    """A small tensor of each dtype that PyTorch has and Polygrad reads."""
    x = torch.tensor([[0.0, 1.0, 2.5], [3.25, 100.0, 7.0]])
    floats = {str(d).removeprefix("torch."): x.to(d) for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
    signed = {str(d).removeprefix("torch."): torch.tensor([-3, 0, 100], dtype=d) for d in (torch.int8, torch.int16, torch.int32, torch.int64)}
    unsigned = {
        str(d).removeprefix("torch."): torch.tensor([0, 3, 200], dtype=d)
        for d in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    }
    return floats | signed | unsigned | {"bool": torch.tensor([True, False, True])}


def views():
    """Tensors that are not contiguous or share storage."""
    base = torch.arange(24.0).reshape(4, 6)
    tied = torch.arange(6.0).reshape(2, 3)
    return {
        "whole": base,
        "transposed": base.t(),
        "column": base[:, 2],
        "window": base[1:3, 2:5],
        "stepped": base[::2, ::3],
        "permuted": torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
        "expanded": torch.tensor([1.5]).expand(3, 4),
        "scalar": torch.tensor(3.5),
        "element": base[2, 3],
        "empty": torch.empty(0, 3),
        "tied": tied,
        "tied_again": tied,
        "tied_view": tied.view(6),
    }


class Own(torch.Tensor):
    """A user-defined class."""


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3)
        self.bn = torch.nn.BatchNorm2d(3)
        self.fc = torch.nn.Linear(4, 2)


def flattened(value, name=""):
    if isinstance(value, torch.Tensor):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else []
    found = {}
    for key, inner in items:
        found |= flattened(inner, f"{name}.{key}" if name else str(key))
    return found


def checkpoint(options):
    """A typical checkpoint of a training script: a model, its optimizer, numbers, and an object that is not needed."""
    net = Net()
    net.fc.weight.attribute = "a parameter with an attribute"
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    sum(p.square().sum() for p in net.parameters()).backward()
    optimizer.step()
    return {
        "state_dict": net.state_dict(),
        "parameters": list(net.parameters()),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "loss": 0.25,
        "note": "größer",
        "nothing": None,
        "large": 1 << 80,
        "options": options,
    }


def pytorch():
    tensors = every_dtype()
    torch.save(tensors, OUT / "dtypes.pt")
    expect("dtypes", tensors)

    tensors = views()
    torch.save(tensors, OUT / "views.pt")
    expect("views", tensors)
    # Before 1.6 there was only one unsigned type.
    old = {k: v for k, v in (every_dtype() | views()).items() if k not in ("uint16", "uint32", "uint64")}
    torch.save(old, OUT / "legacy.pt", _use_new_zipfile_serialization=False)
    expect("legacy", old)

    saved = checkpoint(argparse.Namespace(lr=0.1, device=torch.device("cpu"), dtype=torch.float32))
    torch.save(saved, OUT / "checkpoint.pt")
    expect("checkpoint", flattened(saved))
    torch.save(saved, OUT / "checkpoint_legacy.pt", _use_new_zipfile_serialization=False)
    for protocol in (0, 1, 3, 4, 5):
        torch.save(saved, OUT / f"checkpoint_protocol{protocol}.pt", pickle_protocol=protocol)
        old = OUT / f"checkpoint_legacy{protocol}.pt"
        torch.save(saved, old, pickle_protocol=protocol, _use_new_zipfile_serialization=False)

    torch.save(torch.arange(4.0), OUT / "one.pt")
    # Refused: tensors that only a user-defined class can restore, or that are computed when they are read.
    torch.save(Net(), OUT / "module.pt")
    torch.save({"a": torch.eye(3).to_sparse()}, OUT / "sparse.pt")
    foreign = {
        "w": torch.ones(2),
        "sparse": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
        "meta": torch.empty(2, device="meta"),
        "class": torch.ones(2).as_subclass(Own),
        "list": [torch.zeros(1), torch.eye(2).to_sparse()],
        "rank": torch.ones([1] * 9),
        "large": torch.ones(1).expand(1 << 20, 1 << 10),
        "module": torch.nn.ModuleDict({"net": Net()})["net"],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(foreign, OUT / "foreign.pt")
    torch.save({"a": torch.ones(2, dtype=torch.complex64).conj(), "b": torch.ones(1)}, OUT / "conjugated.pt")
    torch.save({"a": torch.ones(2, dtype=torch.complex64), "b": torch.ones(2).to(torch.float8_e4m3fn), "c": torch.ones(1)}, OUT / "unknown.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), OUT / "script.pt")


def safetensors_files():
    folder = OUT / "sharded"
    folder.mkdir(exist_ok=True)
    x = torch.arange(6.0)
    shards = {
        "model-00001-of-00002.safetensors": {"embed.weight": x.reshape(3, 2), "layers.0.weight": x[:4].reshape(2, 2).half()},
        "model-00002-of-00002.safetensors": {"layers.1.weight": -x, "head.bias": torch.tensor([1, 2])},
    }
    for name, tensors in shards.items():
        save_file({key: value.contiguous().clone() for key, value in tensors.items()}, folder / name, {"format": "pt"})
    places = {key: name for name, tensors in shards.items() for key in tensors}
    index = {"metadata": {"total_size": 72}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    expect("sharded", {key: value for tensors in shards.values() for key, value in tensors.items()})


def numpy_files():
    x = numpy.arange(12).reshape(3, 4)
    arrays = {kind: x.astype(kind) for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")}
    arrays |= {"big": x.astype(">f4"), "columns": numpy.asfortranarray(x.astype("f4")), "scalar": numpy.array(2.5), "a/b.c": x[:0]}
    numpy.savez(OUT / "stored.npz", **arrays)
    numpy.savez_compressed(OUT / "deflated.npz", **arrays)
    native = {key: value.astype(value.dtype.newbyteorder("="), order="C") for key, value in arrays.items()}
    expect("stored", {key: torch.tensor(value) for key, value in native.items()})
    numpy.save(OUT / "one.npy", numpy.asfortranarray(x.astype("i8")))


def gguf_file():
    """Every type that is read; types that gguf cannot write are random bytes with reasonable scales."""
    random = numpy.random.default_rng(0)
    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(OUT / "types.gguf", "test")
    writer.add_uint8("n.u8", 200)
    writer.add_int8("n.i8", -3)
    writer.add_uint16("n.u16", 60000)
    writer.add_int16("n.i16", -300)
    writer.add_uint32("n.u32", 4_000_000_000)
    writer.add_int32("n.i32", -70000)
    writer.add_float32("n.f32", 0.5)
    writer.add_bool("n.bool", True)
    writer.add_uint64("n.u64", 1 << 63)
    writer.add_int64("n.i64", -(1 << 40))
    writer.add_float64("n.f64", 0.1)
    writer.add_string("n.text", "größer")
    writer.add_array("tokens", ["a", "b", "c"])
    writer.add_array("scores", [0.5, -1.0, 2.0])
    writer.add_array("ids", list(range(20)))
    expected = {}
    for kind, dtype in (("F32", "f4"), ("F16", "f2"), ("F64", "f8"), ("I8", "i1"), ("I16", "i2"), ("I32", "i4"), ("I64", "i8")):
        values = random.normal(size=(2, 3)) * 50
        writer.add_tensor(kind, values.astype(dtype))
        expected[kind] = torch.tensor(values.astype(dtype))
    values = random.normal(size=(2, 32)).astype("f4")
    packed = gguf.quantize(values, kinds.BF16)
    writer.add_tensor("BF16", packed, raw_dtype=kinds.BF16)
    expected["BF16"] = torch.tensor(gguf.dequantize(packed, kinds.BF16)).bfloat16()
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        kind = kinds[kind]
        packed = gguf.quantize((random.normal(size=(3, 2, 64)) * 3).astype("f4"), kind)
        writer.add_tensor(kind.name, packed, raw_dtype=kind)
        expected[kind.name] = torch.tensor(gguf.dequantize(packed, kind))
    # The positions of the f16 scales in a block of 256.
    for kind, halves in (("Q2_K", (80, 82)), ("Q3_K", (108,)), ("Q4_K", (0, 2)), ("Q5_K", (0, 2)), ("Q6_K", (208,))):
        kind = kinds[kind]
        _, size = gguf.GGML_QUANT_SIZES[kind]
        packed = random.integers(0, 256, size=(2, 3 * size), dtype="u1")
        for start in range(0, 3 * size, size):
            for at in halves:
                packed[:, start + at : start + at + 2] = random.normal(size=(2, 1)).astype("f2").view("u1")
        writer.add_tensor(kind.name, packed, raw_dtype=kind)
        expected[kind.name] = torch.tensor(gguf.dequantize(packed, kind))
    packed = random.integers(0, 256, size=(1, gguf.GGML_QUANT_SIZES[kinds.IQ4_NL][1]), dtype="u1")
    writer.add_tensor("IQ4_NL", packed, raw_dtype=kinds.IQ4_NL)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expect("types", expected)


def main():
    torch.manual_seed(0)
    OUT.mkdir(exist_ok=True)
    pytorch()
    safetensors_files()
    numpy_files()
    gguf_file()


if __name__ == "__main__":
    main()
