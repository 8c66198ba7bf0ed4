#!/usr/bin/env bash
# OpenVINO's QuantizeLinear rounds ties to even after it adds the zero point, so an odd zero point turns all ties.
#
# Guess, written down first: x / scale is rounded, with ties to even, and then the zero point is added. So another zero
# point shifts the integers, and DequantizeLinear of them gives the same numbers.
#
# Seen on 2026-11-30 with openvino 2026.4.1, onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): with zero points 0
# and 2, OpenVINO gives what ONNX Runtime and the reference evaluator give. With 1 and 3 every tie goes the other way:
# 0.75 with a scale of 0.5 becomes 0.5 after DequantizeLinear, and 1 in the others. Where a layer's scale is twice that
# of the layer before, every second value is a tie.
#
# Source: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html ("y = saturate((x / y_scale) + y_zero_point)", where
# x / y_scale is rounded "to the nearest even"); the frontend builds a FakeQuantize, which rounds the distance from the
# range's low end. https://github.com/microsoft/onnxruntime/issues/25045 tells of differences of 1, and not of when.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install openvino==2026.4.1 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import parser
from onnx.reference import ReferenceEvaluator

core = openvino.Core()
x = np.array([0.25, 0.75, 1.25, 1.75, 2.25, 2.5], np.float32)


def outputs(zero):
    """The integers and what they stand for, by ONNX Runtime, the reference evaluator and OpenVINO."""
    model = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 19]>
        graph (float[6] x) => (uint8[6] q, float[6] y) <float scale = {{0.5}}, uint8 zero = {{{zero}}}> {{
            q = QuantizeLinear (x, scale, zero)
            y = DequantizeLinear (q, scale, zero)
        }}"""
    )
    onnx.checker.check_model(model, full_check=True)
    file = model.SerializeToString()
    compiled = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled([x])
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    every = session.run(None, {"x": x}), ReferenceEvaluator(model).run(None, {"x": x}), [found[0], found[1]]
    return [[np.array(part).tolist() for part in one] for one in every]


for zero in range(4):
    runtime, reference, by_openvino = outputs(zero)
    print(f"zero point {zero}: ONNX Runtime {runtime}, OpenVINO {by_openvino}")
    even = [0, 2, 2, 4, 4, 5]
    assert runtime == reference == [[n + zero for n in even], [n / 2 for n in even]]
    found = [1, 1, 3, 3, 5, 5] if zero % 2 else even
    assert by_openvino == [[n + zero for n in found], [n / 2 for n in found]]
PY
