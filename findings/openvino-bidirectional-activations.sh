#!/usr/bin/env bash
# OpenVINO and onnx's reference evaluator run both directions of an ONNX RNN, GRU or LSTM with the activations of the
# first one.
#
# Guess, written down first: a node of two directions lists its activations for the forward one, then for the reverse
# one, and each direction uses its own; or lists that differ are refused.
#
# Seen on 2026-11-30 with openvino 2026.4.1, onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): ONNX Runtime agrees
# with the guess. In OpenVINO a reverse direction with Relu gives what Tanh gives, if the forward one has Tanh, for all
# three ops, without an error or a warning. The node of the reverse direction alone, with Relu, is right.
# onnx's reference evaluator does the same for GRU and LSTM.
#
# Source: https://onnx.ai/onnx/operators/onnx__GRU.html: "A list of 2 (or 4 if bidirectional) activation functions".
# We found no report of it.
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
random = np.random.default_rng(0)
x = random.standard_normal((3, 1, 2)).astype(np.float32)


def apart(a, b):
    return float(np.abs(a - b).max())


for op, names in (("RNN", ["Tanh"]), ("GRU", ["Sigmoid", "Tanh"]), ("LSTM", ["Sigmoid", "Tanh", "Tanh"])):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    weights = [random.standard_normal((2, 4 * gates, n)).astype(np.float32) for n in (2, 4)]
    other = [name.replace("Tanh", "Relu") for name in names]

    def outputs(direction, activations):
        """Y by ONNX Runtime, by OpenVINO and, if it runs the node, by the reference evaluator."""
        part = {"forward": slice(0, 1), "reverse": slice(1, 2), "bidirectional": slice(0, 2)}[direction]
        given = [numpy_helper.from_array(array[part], name) for array, name in zip(weights, "wr")]
        node = helper.make_node(
            op, ["x", "w", "r"], ["y"], hidden_size=4, direction=direction, activations=activations
        )
        whole = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
        value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([node], "g", [whole], [value], given)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model, full_check=True)
        file = model.SerializeToString()
        runtime = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        compiled = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        by_openvino = np.array(compiled([x])[0])
        if op == "RNN" and "Relu" in activations:
            return runtime, by_openvino, None
        return runtime, by_openvino, ReferenceEvaluator(model).run(None, {"x": x})[0]

    same = outputs("bidirectional", names + names)
    assert apart(same[0], same[1]) < 1e-4 and apart(same[0], same[2]) < 1e-4
    forward, reverse = outputs("forward", names), outputs("reverse", other)
    assert apart(reverse[0], reverse[1]) < 1e-4
    mixed = outputs("bidirectional", names + other)
    assert apart(mixed[0][:, :1], forward[0]) < 1e-4 and apart(mixed[0][:, 1:], reverse[0]) < 1e-4
    off, near = apart(mixed[0], mixed[1]), apart(mixed[1], same[0])
    print(f"{op}, {names + other}: OpenVINO is off by {off:.2g}, from {names * 2} by {near:.2g}")
    assert apart(mixed[1], same[0]) < 1e-4 and apart(mixed[0], mixed[1]) > 0.1
    if op != "RNN":
        assert apart(mixed[2], same[0]) < 1e-4
PY
