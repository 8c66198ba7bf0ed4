#!/usr/bin/env bash
# A Slice that walks backwards from before the first element gives that element in ONNX Runtime, and nothing in NumPy
# and onnx's reference evaluator.
#
# Guess, written down first: Slice is NumPy's slicing, as its page says, so x[-8:-9:-1] of four numbers is empty.
#
# Seen on 2026-11-30 with onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): the guess is wrong. ONNX clamps a
# start, after it has added the extent, to 0 for backwards steps, where NumPy clamps it to -1, before the first element.
# So ONNX Runtime and onnx's shape inference have one element, and the reference evaluator, which slices in NumPy, has
# none: the shape that it computes is not the one that the same package infers. For a start beyond the end, a negative
# start within the extent, and forward steps, all agree.
#
# Source: https://onnx.ai/onnx/operators/onnx__Slice.html ("clamped to ... [0, dims[axes[i]]-1] for negative stepping"
# and "Similar to numpy"); op_slice.py of the evaluator. https://github.com/onnx/onnx/issues/4115 asked about clamping.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

x = np.array([10, 20, 30, 40], np.float32)


def outputs(start, end, step):
    """By ONNX Runtime, by the reference evaluator, and how many elements are inferred."""
    numbers = {"start": start, "end": end, "axis": 0, "step": step}
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", *numbers], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([number]), name) for name, number in numbers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model, full_check=True)
    inferred = model.graph.output[0].type.tensor_type.shape.dim[0].dim_value
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runtime, reference = [one.run(None, {"x": x})[0].tolist() for one in (session, ReferenceEvaluator(model))]
    print(f"x[{start}:{end}:{step}]: ONNX Runtime {runtime}, the reference {reference}, inferred {inferred}")
    assert reference == x[start:end:step].tolist()
    return runtime, reference, inferred


for start, end, step in ((-2, -9, -1), (-4, -9, -1), (9, 0, -2), (-8, 2, 1), (9, 12, 1), (1, -9, -1)):
    runtime, reference, inferred = outputs(start, end, step)
    assert runtime == reference and inferred == len(runtime)
for start, step in ((-5, -1), (-8, -1), (-8, -2)):
    assert outputs(start, -9, step) == ([10], [], 1)
PY
