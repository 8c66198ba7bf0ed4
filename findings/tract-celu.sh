#!/usr/bin/env bash
# tract: Celu with an alpha other than 1 leaves the factor alpha out of its negative part.
#
# Guess, written down first: Celu is x above 0 and alpha · (exp(x / alpha) − 1) below, as ONNX and PyTorch have it, so
# its slope at 0 is 1 for any alpha.
#
# Seen on 2026-11-29 with tract 0.23.9 and onnxruntime 1.32.0 (CPU, Python 3.11): with alpha 1 both give the formula.
# With alpha 2, tract gives exp(x / 2) − 1: half of what ONNX Runtime gives, and no error. Its Elu, whose alpha stands
# only in front, is right.
#
# Source: https://onnx.ai/onnx/operators/onnx__Celu.html; torch.nn.CELU has the same formula.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install tract==0.23.9 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
import tract
from onnx import TensorProto, helper

x = np.array([-3, -2, -1, -0.5, 0, 1], np.float32)


def outputs(op, alpha):
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], alpha=alpha)],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7), "model.onnx")
    by_tract = tract.onnx().load("model.onnx").into_model().into_runnable().run([x])[0].to_numpy()
    by_runtime = onnxruntime.InferenceSession("model.onnx").run(None, {"x": x})[0]
    print(f"{op}, alpha {alpha}: tract {by_tract}, ONNX Runtime {by_runtime}")
    return by_tract, by_runtime


for op, alpha in (("Celu", 1.0), ("Elu", 2.0)):
    np.testing.assert_allclose(*outputs(op, alpha), atol=1e-6)
by_tract, by_runtime = outputs("Celu", 2.0)
formula = np.where(x > 0, x, 2 * np.expm1(x / 2))
np.testing.assert_allclose(by_runtime, formula, atol=1e-6)
np.testing.assert_allclose(by_tract, np.where(x > 0, x, formula / 2), atol=1e-6)
PY
