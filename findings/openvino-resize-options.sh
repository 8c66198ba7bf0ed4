#!/usr/bin/env bash
# OpenVINO runs an ONNX Resize without exclude_outside, antialias and keep_aspect_ratio_policy, and with the last of
# these gives another shape.
#
# Guess, written down first: a frontend that does not know an attribute refuses it where it is set, since it changes the
# result.
#
# Seen on 2026-11-30 with openvino 2026.4.1, onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): no error and no
# warning. The numbers are those of the node without the attribute, off by 0.1 from ONNX Runtime's and the reference
# evaluator's with cubic and exclude_outside, and by 0.5 with antialias. An image of 4 × 2, resized to at most 8 × 8
# with "not_larger", is 8 × 4 in both of them and 8 × 8 in OpenVINO.
#
# Source: https://onnx.ai/onnx/operators/onnx__Resize.html; exclude_outside is part of version 11, which the frontend's
# list of supported ops has, the others of 18. https://github.com/openvinotoolkit/openvino/issues/35893 tells of
# antialias; of the others we found no report.
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
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

core = openvino.Core()


def outputs(x, version, scales=None, sizes=None, **attributes):
    """By ONNX Runtime, the reference evaluator and OpenVINO."""
    extents = np.array(scales, np.float32) if scales else np.array(sizes, np.int64)
    given = [numpy_helper.from_array(extents, "extents")]
    inputs = ["x", "", "extents"] if scales else ["x", "", "", "extents"]
    node = helper.make_node("Resize", inputs, ["y"], **attributes)
    whole = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [whole], [value], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model, full_check=True)
    file = model.SerializeToString()
    runtime = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    compiled = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return runtime, ReferenceEvaluator(model).run(None, {"x": x})[0], np.array(compiled([x])[0])


line = np.array([0, 1, 2, 8, 1, 0, 5, 1], np.float32).reshape(1, 1, 1, 8)
for version, scale, mode, attribute in ((13, 2, "cubic", "exclude_outside"), (18, 0.25, "linear", "antialias")):
    plain = outputs(line, version, [1, 1, 1, scale], mode=mode)
    found = outputs(line, version, [1, 1, 1, scale], mode=mode, **{attribute: 1})
    np.testing.assert_allclose(plain[0], plain[2], atol=1e-5)
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    np.testing.assert_allclose(found[2], plain[2], atol=1e-5)
    off = float(np.abs(found[0] - found[2]).max())
    print(f"{attribute}: ONNX Runtime {found[0].ravel()[:3]}, OpenVINO {found[2].ravel()[:3]}, {off:.2g} apart")
    assert off > 0.02
image = np.arange(8, dtype=np.float32).reshape(1, 1, 4, 2)
options = {"mode": "nearest", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}
shapes = [result.shape[2:] for result in outputs(image, 18, sizes=[8, 8], **options)]
print("not_larger than 8 x 8:", *shapes)
assert shapes == [(8, 4), (8, 4), (8, 8)]
PY
