#!/usr/bin/env bash
# onnx's reference evaluator mixes up the axes of MaxPool's pads, but only if all strides are 1; AveragePool is right.
#
# Guess, written down first: pads [0, 0, 1, 1] are one row below and one column to the right, so a window of 2 × 2 with
# a stride of 1 gives as many numbers as it gets. It is how a network pools without making the image smaller.
#
# Seen on 2026-11-30 with onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): for an image of 3 × 3, MaxPool of the
# reference evaluator gives 2 × 4, without an error, as if the list were [top, bottom, left, right]. ONNX Runtime and
# shape inference give 3 × 3. AveragePool with the same pads, MaxPool with strides of 2, and pads that are equal on all
# sides agree. onnx's conformance data for MaxPool has no uneven pads with a stride of 1, so it passes.
#
# Source: https://onnx.ai/onnx/operators/onnx__MaxPool.html, pads ("[x1_begin, x2_begin...x1_end, x2_end,...]");
# op_max_pool.py of the evaluator has one code path for strides of 1 and one for others. We found no report of it.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)


def outputs(op, **attributes):
    """By ONNX Runtime and the reference evaluator, and the inferred shape."""
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[2, 2], **attributes)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model, full_check=True)
    inferred = model.graph.output[0].type.tensor_type.shape
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runtime, reference = session.run(None, {"x": x})[0], ReferenceEvaluator(model).run(None, {"x": x})[0]
    print(op, attributes, "ONNX Runtime", runtime.tolist(), "the reference", reference.tolist())
    assert runtime.shape == tuple(dim.dim_value for dim in inferred.dim)
    return runtime, reference


for op, pads, strides in (
    ("AveragePool", [0, 0, 1, 1], [1, 1]),
    ("MaxPool", [0, 0, 1, 1], [2, 2]),
    ("MaxPool", [1, 1, 1, 1], [1, 1]),
):
    np.testing.assert_allclose(*outputs(op, pads=pads, strides=strides))
runtime, reference = outputs("MaxPool", pads=[0, 0, 1, 1], strides=[1, 1])
assert runtime.tolist() == [[[[4, 5, 5], [7, 8, 8], [7, 8, 8]]]]
assert reference.tolist() == [[[[3, 4, 5, 5], [6, 7, 8, 8]]]]
PY
