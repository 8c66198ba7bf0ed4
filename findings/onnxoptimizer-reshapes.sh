#!/usr/bin/env bash
# onnxoptimizer joins two Reshapes though the second copies an extent of the first by a 0, and so copies another one.
#
# Guess, written down first: an optimizer may drop the first of two Reshapes in a row, since the second one's shape says
# it all, unless that shape has a 0, which stands for the extent of the node's own input.
#
# Seen on 2026-11-29 with onnxoptimizer 0.4.2, onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): 2 × 6 to 3 × 4 to
# (0, −1) is 3 × 4. After `optimize` with its default passes (eliminate_consecutive_idempotent_ops) it is 2 × 6, without
# an error, and where a softmax follows it runs over other rows. With (3, −1) in place of (0, −1) nothing changes.
# The function that ONNX defines GroupNormalization by has such Reshapes, so one that is expanded gives wrong numbers.
#
# Source: https://onnx.ai/onnx/operators/onnx__Reshape.html ("the dimension value is copied from the input tensor");
# https://github.com/onnx/optimizer/issues/259 reports other numbers from this pass, without the cause.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxoptimizer==0.4.2 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnxoptimizer
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.arange(12, dtype=np.float32).reshape(2, 6)


def outputs(second):
    """Of a softmax over the rows of x, reshaped to 3 × 4 and then to `second`, as written and optimized."""
    shapes = {"first": np.array([3, 4]), "second": np.array(second)}
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "first"], ["between"]),
            helper.make_node("Reshape", ["between", "second"], ["rows"]),
            helper.make_node("Softmax", ["rows"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(shape, name) for name, shape in shapes.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    both = []
    for file in (model, onnxoptimizer.optimize(model)):
        session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
        both.append(session.run(None, {"x": x})[0])
        nodes = ", ".join(node.op_type for node in file.graph.node)
        print(f"to {second}: {nodes}: {both[-1].shape}")
    return both


written, optimized = outputs([3, -1])
np.testing.assert_array_equal(written, optimized)
written, optimized = outputs([0, -1])
assert written.shape == (3, 4) and optimized.shape == (2, 6)
PY
