#!/usr/bin/env bash
# The function by which ONNX defines MeanVarianceNormalization loses all digits if the mean is large. ONNX Runtime's own
# kernel keeps them, and gives NaN where the function gives 0.
#
# Guess, written down first: both give (x - mean) / std to float's rounding, for any mean. Since the function adds 1e-9
# to the deviation, a channel of equal numbers becomes 0 in both.
#
# Seen on 2026-11-29 with onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): for eight numbers from -1 to 1, both
# are right to 1e-4. With 1000 added, the reference evaluator, which runs the function, is 0.11 off. With 4096 added, it
# gives -1e9 to 1e9, since the variance is E(x²) - (E x)², which is 0 in float. ONNX Runtime stays within 1e-4. If all
# numbers are equal, 0 or 3, the function gives 0 and ONNX Runtime gives NaN, since it adds nothing to the deviation. So
# a runtime that expands the function fails where one with a kernel does not, and the other way round.
#
# Source: https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html, whose text states neither the epsilon nor
# how the variance is computed; `onnx.defs.get_schema("MeanVarianceNormalization", 13).function_body` has both.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

np.seterr(all="ignore")
steps = [node.op_type for node in defs.get_schema("MeanVarianceNormalization", 13).function_body.node]
print("the function:", " ".join(steps))


def both(x):
    """By ONNX Runtime and by the function."""
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2, 3])
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0], ReferenceEvaluator(model).run(None, {"x": x})[0]


line = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 1, 2, 4)
off = {}
for added in (0, 1000, 4096):
    x = line + np.float32(added)
    wide = x.astype(np.float64)
    right = (wide - wide.mean()) / wide.std()
    off[added] = [float(np.abs(y - right).max()) for y in both(x)]
    print(f"{added} added: ONNX Runtime is {off[added][0]:.1e} off, the function {off[added][1]:.1e}")
assert max(off[0]) < 1e-4
assert off[1000][0] < 1e-3 and off[1000][1] > 0.01
assert off[4096][0] < 1e-3 and off[4096][1] > 1e6
for same in (0, 3):
    kernel, function = both(np.full((1, 1, 2, 2), same, np.float32))
    print(f"all {same}: ONNX Runtime {kernel.ravel()}, the function {function.ravel()}")
    assert np.isnan(kernel).all() and (function == 0).all()
PY
