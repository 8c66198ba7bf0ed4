#!/usr/bin/env bash
# Pools with ceil_mode: onnx infers, and ONNX Runtime declares, another extent than the tensor that the kernel computes.
#
# Guess, written down first: with ceil_mode, a last window that would begin beyond the data is left out, as in PyTorch
# and as ONNX's documentation has said since opset 19. So 4 elements, a kernel of 1 and a stride of 2 give 2 windows,
# both inferred and computed.
#
# Seen on 2026-11-27 with onnx 1.23.2 and ONNX Runtime 1.32.0 (CPU, x86-64, Python 3.11), for MaxPool and AveragePool of
# opset 21: shape inference says 3, and so does the session's declared output. The run gives 2, and so does onnx's
# reference evaluator.
#
# Source: ONNX's operator documentation, MaxPool-22, `ceil_mode`; onnx's shape inference and reference evaluator.
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
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(4)
x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
for op in ("MaxPool", "AveragePool"):
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[1], strides=[2], ceil_mode=1)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape
    inferred = [dim.dim_value for dim in inferred.dim]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    declared = session.get_outputs()[0].shape
    computed = list(session.run(None, {"x": x})[0].shape)
    reference = list(ReferenceEvaluator(model).run(None, {"x": x})[0].shape)
    print(op, "inferred", inferred, "declared", declared, "computed", computed, "reference", reference)
    assert inferred == declared == [1, 1, 3], (inferred, declared)
    assert computed == reference == [1, 1, 2], (computed, reference)
PY
