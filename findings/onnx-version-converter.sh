#!/usr/bin/env bash
# onnx.version_converter changes what Resize (10 to 11) and Hardmax (12 to 13) compute, and makes a GroupNormalization
# (18 to 21) that does not run; Softmax, whose axis changed with Hardmax's, keeps its values.
#
# Guess, written down first: where an op's meaning changed between two versions, convert_version writes the old meaning
# with the new op's attributes, or refuses the model, so that a file converted without an error computes what it did.
#
# Seen on 2026-11-29 with onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): a linear Resize of 10 becomes one
# of version 11 without coordinate_transformation_mode, whose default is half_pixel where version 10 has what is called
# asymmetric now: numbers are off by more than 1. A Hardmax of version 12 with axis 1 takes one 1 for each matrix, since
# it flattens all axes from there on, and that of version 13 takes one for each column; the node is left as it is.
# A GroupNormalization of version 18 has a scale for each group, one of version 21 for each channel; the scales are left
# as they are, the checker accepts the file, and ONNX Runtime does not.
# Softmax becomes Flatten, Softmax and Reshape, and stays right.
#
# Source: https://onnx.ai/onnx/operators/onnx__Resize.html, onnx__Hardmax.html and onnx__GroupNormalization.html, each
# with its changes; of Resize https://github.com/onnx/onnx/issues/8480 tells, too. Of the others we found no report.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, version_converter

onnxruntime.set_default_logger_severity(4)
random = np.random.default_rng(0)


def model(op, x, constants, version, shape=None, **attributes):
    names = [f"c{i}" for i in range(len(constants))]
    node = helper.make_node(op, ["x", *names], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for array, name in zip(constants, names)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def run(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def converted(what, before, version, x):
    after = version_converter.convert_version(before, version)
    onnx.checker.check_model(after)
    apart = float(np.abs(run(before, x) - run(after, x)).max())
    print(f"{what}: {', '.join(node.op_type for node in after.graph.node)}: largest difference {apart:.3g}")
    return apart


image = random.standard_normal((1, 2, 4, 5)).astype(np.float32)
twice = np.array([1, 1, 2, 2], np.float32)
assert converted("Resize, 10 to 11", model("Resize", image, [twice], 10, mode="linear"), 11, image) > 1

x = random.standard_normal((2, 3, 4)).astype(np.float32)
assert converted("Softmax, 12 to 13", model("Softmax", x, [], 12, axis=1), 13, x) < 1e-6
assert converted("Hardmax, 12 to 13", model("Hardmax", x, [], 12, axis=1), 13, x) == 1

channels = random.standard_normal((1, 4, 3, 3)).astype(np.float32)
scale, bias = random.standard_normal((2, 2)).astype(np.float32)
groups = model("GroupNormalization", channels, [scale, bias], 18, channels.shape, num_groups=2)
run(groups, channels)
after = version_converter.convert_version(groups, 21)
onnx.checker.check_model(after)
lengths = [list(tensor.dims) for tensor in after.graph.initializer]
assert lengths == [[2], [2]], lengths
try:
    run(after, channels)
    raise SystemExit("GroupNormalization, 18 to 21: runs")
except Exception as error:
    print(f"GroupNormalization, 18 to 21: scales for 2 of 4 channels: {str(error)[-60:].strip()}")
PY
