#!/usr/bin/env bash
# ONNX Runtime, Cast to float8 with saturate=0: of what is too large, 465 is NaN, 480 is 448, and 496 is NaN again.
#
# Guess, written down first: with saturate=0, all that rounds beyond the largest number becomes NaN in E4M3FN, which has
# no infinity, and infinity in E5M2. Casts keep the order: what is larger does not become smaller or valid again.
#
# Seen on 2026-11-30 with onnxruntime 1.32.0, onnx 1.23.2 and ml_dtypes (CPU, x86-64, Python 3.11): to E4M3FN, 464 (a
# tie) is 448, larger ones below 480 are NaN, from 480 to below 496 they are 448, and then NaN. To E5M2 numbers from
# 61440 to below 65536 are NaN instead of infinity, and larger ones infinity. onnx's reference evaluator and ml_dtypes
# agree with the guess. With saturate=1 all agree.
#
# Source: https://onnx.ai/onnx/operators/onnx__Cast.html, the table for saturate (x > FLT_MAX is NaN for E4M3FN, and Inf
# for E5M2); https://onnx.ai/onnx/technical/float8.html.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6 ml_dtypes==0.6.0
"$folder/venv/bin/python" - <<'PY'
import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def outputs(kind, saturate, x):
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["small"], to=kind, saturate=saturate),
            helper.make_node("Cast", ["small"], ["y"], to=TensorProto.FLOAT),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runtime, reference = [one.run(None, {"x": x})[0] for one in (session, ReferenceEvaluator(model))]
    print(f"{TensorProto.DataType.Name(kind)}, saturate {saturate}, of {x}:")
    print(f"  ONNX Runtime {runtime}, the reference {reference}")
    return runtime, reference


four, five = TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2
x = np.array([448, 464, 465, 470, 479, 480, 495, 496, 1000, np.inf], np.float32)
np.testing.assert_array_equal(*outputs(four, 1, x))
runtime, reference = outputs(four, 0, x)
np.testing.assert_array_equal(reference, x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32))
np.testing.assert_array_equal(np.isnan(reference), x > 464)
np.testing.assert_array_equal(np.isnan(runtime), (x > 464) & ((x < 480) | (x >= 496)))
assert runtime[5] == runtime[6] == 448

x = np.array([57344, 61439, 61440, 65535, 65536, 1e6, np.inf], np.float32)
np.testing.assert_array_equal(*outputs(five, 1, x))
runtime, reference = outputs(five, 0, x)
np.testing.assert_array_equal(reference, x.astype(ml_dtypes.float8_e5m2).astype(np.float32))
np.testing.assert_array_equal(reference, [57344, 57344] + [np.inf] * 5)
np.testing.assert_array_equal(runtime, [57344, 57344, np.nan, np.nan, np.inf, np.inf, np.inf])
PY
