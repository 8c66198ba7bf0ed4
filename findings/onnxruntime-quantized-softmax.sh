#!/usr/bin/env bash
# ONNX Runtime: optimization changes a quantized softmax, of which a probability of 1 is then 254/255.
#
# Guess, written down first: DequantizeLinear, Softmax and QuantizeLinear are computed as one op on integers when a
# session is optimized, which it is unless told otherwise, and give what the three nodes give, up to a half step where a
# value lies between two integers. A probability of 1 with a scale of 1/255 is 255.
#
# Seen on 2026-11-30 with onnxruntime 1.32.0, onnx 1.23.2 and numpy 2.4.6 (Python 3.11): 255 without optimization, 254
# with it, so that the dequantized probability is 0.996. The fused op, QLinearSoftmax, multiplies by the whole part of
# 1 / scale, and 1 / 1/255 in f32 is a little less than 255. With 1/256 both give 255, to which 256 is clipped, and with
# 1/64 both give 64.
#
# Source: onnxruntime/contrib_ops/cpu/quantization/qlinear_softmax.cc;
# https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html (y = saturate(round(x / scale) + zero_point)).
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, checker, helper, numpy_helper


def softmax(x, scale, level):
    numbers = {"x_scale": np.float32(0.25), "y_scale": np.float32(scale), "zero": np.uint8(0)}
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "x_scale", "zero"], ["a"]),
            helper.make_node("Softmax", ["a"], ["b"], axis=-1),
            helper.make_node("QuantizeLinear", ["b", "y_scale", "zero"], ["y"]),
        ],
        "softmax",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, list(x.shape))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, list(x.shape))],
        [numpy_helper.from_array(np.array(value), name) for name, value in numbers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0].tolist()[0]


sure = np.array([[255, 0, 0, 0]], np.uint8)
levels = ort.GraphOptimizationLevel
for scale, plain, fused in [
    (1 / 255, 255, 254),
    (1 / 256, 255, 255),
    (1 / 64, 64, 64),
]:
    found = [softmax(sure, scale, level)[0] for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL)]
    print(f"scale 1/{round(1 / scale)}: {found[0]} as written, {found[1]} optimized")
    assert found == [plain, fused], found
PY
