"""Writes the official ONNX node cases as one archive for the tests of polygrad-onnx.

Run it with the PyPI wheel `onnx==1.23.2` (and numpy, protobuf, ml_dtypes) on the path:

    python3 -m pip install --target /tmp/onnxwheel onnx==1.23.2
    PYTHONPATH=/tmp/onnxwheel python3 scripts/onnx_cases.py crates/onnx/tests/data/node_cases.bin.gz

The archive is a gzip stream of records, all integers little-endian u32, texts and bytes preceded by their length:

    "ONNXCASE" | blobs (u32) | blob … | cases (u32) | case …
    case:  name | ordinary (1 byte) | rtol f64 | atol f64 | model bytes | data sets (u32) | data set …
    set:   inputs (u32) | value … | outputs (u32) | value …
    value: kind (1 byte): 0 the number of the blob with a TensorProto's bytes; 1 a sequence: count, values; 2 an empty optional

A case is *ordinary*, and counts towards the README's goal, if all its nodes are in the domain ai.onnx, all graph inputs
and outputs are tensors of f32, i32, i64 or bool, it is not the expansion of another case, it has no loss, optimizer or
training mode, and it needs no op set newer than version 24. There are 768 such cases, of which 749 need none newer than
23.
"""

import gzip
import struct
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

ORDINARY_TYPES = {onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.BOOL}
TRAINING_OPS = {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "Gradient", "Adam", "Adagrad", "Momentum"}
NEWEST_ORDINARY_OPSET = 24

# The blobs so far, by content: a case and its expansion have the same data.
blobs = {}


def text(value):
    return blob(value.encode())


def blob(value):
    return struct.pack("<I", len(value)) + value


def value(item, info):
    """One input or output, which the loader returns as an array, a list, a proto or None."""
    if item is None:
        return b"\x02"
    if isinstance(item, (list, tuple)):
        return b"\x01" + struct.pack("<I", len(item)) + b"".join(value(x, info) for x in item)
    if isinstance(item, onnx.SparseTensorProto):
        raise TypeError("sparse")
    if not isinstance(item, onnx.TensorProto):
        item = numpy_helper.from_array(np.asarray(item), info.name)
    content = item.SerializeToString(deterministic=True)
    return b"\x00" + struct.pack("<I", blobs.setdefault(content, len(blobs)))


def is_ordinary(case):
    graph = case.model.graph
    infos = list(graph.input) + list(graph.output)
    if not all(v.type.HasField("tensor_type") and v.type.tensor_type.elem_type in ORDINARY_TYPES for v in infos):
        return False
    if any(node.domain not in ("", "ai.onnx") or node.op_type in TRAINING_OPS for node in graph.node):
        return False
    if "_expanded" in case.name or "training" in case.name or case.name.startswith("test_training"):
        return False
    return max(o.version for o in case.model.opset_import) <= NEWEST_ORDINARY_OPSET


def record(case):
    infos = list(case.model.graph.input), list(case.model.graph.output)
    out = text(case.name) + bytes([is_ordinary(case)]) + struct.pack("<dd", case.rtol, case.atol)
    out += blob(case.model.SerializeToString(deterministic=True))
    out += struct.pack("<I", len(case.data_sets))
    for inputs, outputs in case.data_sets:
        for items, names in zip((inputs, outputs), infos):
            out += struct.pack("<I", len(items))
            # Names come from the graph, since an omitted input has none.
            out += b"".join(value(item, names[min(i, len(names) - 1)]) for i, item in enumerate(items))
    return out


def write(path, cases):
    """Writes one archive and prints how many cases it has."""
    records = []
    for case in cases:
        try:
            records.append(record(case))
        except Exception as error:  # noqa: BLE001
            print(f"left out {case.name}: {error!r}", file=sys.stderr)
    data = b"ONNXCASE" + struct.pack("<I", len(blobs)) + b"".join(map(blob, blobs))
    data += struct.pack("<I", len(records)) + b"".join(records)
    with open(path, "wb") as file:
        with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=9, mtime=0, filename="") as stream:
            stream.write(data)
    print(len(records), "cases,", sum(map(is_ordinary, cases)), "ordinary,", len(data), "bytes")


def main():
    warnings.filterwarnings("ignore")
    np.random.seed(0)
    write(sys.argv[1], sorted(collect_testcases(None), key=lambda case: case.name))


if __name__ == "__main__":
    main()
