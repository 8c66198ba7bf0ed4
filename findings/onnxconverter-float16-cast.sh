#!/usr/bin/env bash
# onnxconverter-common's float16 conversion leaves every Cast to float as it is, and says that it gives float16.
#
# Guess, written down first: a converter to float16 changes the target of a Cast, or adds a Cast behind it, so that a
# file with a mask that is made a float, as BERT's and GPT-2's have, goes on being valid.
#
# Seen on 2026-12-01 with onnxconverter-common 1.16.0, onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): a mask of
# int64, Cast to float, times x. `convert_float_to_float16` gives no error and no warning; the result is refused by
# ONNX's checker and by ONNX Runtime, with and without `keep_io_types`: the Cast gives float, and the types say float16.
# With `op_block_list=["Cast"]`, whose name says that these nodes are left out of the conversion, it is right.
#
# Source: https://onnx.ai/onnx/operators/onnx__Cast.html (the type of the output is the attribute `to`);
# https://onnxruntime.ai/docs/performance/model-optimizations/float16.html, which recommends the function.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxconverter-common==1.16.0 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxconverter_common import float16

graph = helper.make_graph(
    [helper.make_node("Cast", ["mask"], ["real"], to=TensorProto.FLOAT), helper.make_node("Mul", ["x", "real"], ["y"])],
    "graph",
    [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("mask", TensorProto.INT64, [3]),
    ],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
)
written = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
inputs = {"x": np.array([1, 2, 3], np.float32), "mask": np.array([1, 0, 1])}


def outcome(model):
    """What ONNX Runtime computes, or the first words of its refusal."""
    try:
        onnx.checker.check_model(model, full_check=True)
        checked = "valid"
    except onnx.shape_inference.InferenceError:
        checked = "invalid"
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return checked, session.run(None, inputs)[0].tolist()
    except Exception as error:
        return checked, str(error)


print("as written:", outcome(written))
assert outcome(written) == ("valid", [1, 0, 3])
converted = outcome(float16.convert_float_to_float16(written, keep_io_types=True))
print("converted:", converted)
assert converted[0] == "invalid" and "does not match expected type (tensor(float))" in converted[1]
blocked = outcome(float16.convert_float_to_float16(written, keep_io_types=True, op_block_list=["Cast"]))
print("without Cast:", blocked)
assert blocked == ("valid", [1, 0, 3])
PY
