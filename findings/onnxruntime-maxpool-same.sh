#!/usr/bin/env bash
# MaxPool with auto_pad SAME and a stride longer than its kernel: ONNX Runtime refuses it, but runs AveragePool.
#
# Guess, written down first: SAME gives ceil(extent / stride) windows for any kernel, so a kernel of 1 with a stride of
# 2 takes every second element and pads nothing. As ONNX defines it, the padding is what is missing, and nothing is
# missing here.
#
# Seen on 2026-11-27 with ONNX Runtime 1.32.0 (CPU, x86-64, Python 3.11) and onnx 1.23.2: onnx infers [1, 1, 2] for both
# ops. AveragePool gives [0, 2]. MaxPool loads, but its run fails with "padding values must be non-negative": it
# computes the missing padding as -1 and does not clamp it.
#
# Source: ONNX's operator documentation, MaxPool, `auto_pad`: the output's extent is ceil(input / stride).
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

onnxruntime.set_default_logger_severity(4)
x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)


def ran(op):
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[1], strides=[2], auto_pad="SAME_UPPER")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model, full_check=True)
    inferred = [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim]
    assert inferred == [1, 1, 2], inferred
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    try:
        return session.run(None, {"x": x})[0].ravel().tolist()
    except Exception as error:  # its class is private
        return str(error)


average, largest = ran("AveragePool"), ran("MaxPool")
print("AveragePool:", average)
print("MaxPool:", largest)
assert average == [0.0, 2.0], average
assert "padding values must be non-negative" in str(largest), largest
PY
