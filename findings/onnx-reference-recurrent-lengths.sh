#!/usr/bin/env bash
# onnx's reference evaluator runs RNN, GRU and LSTM over the padding: it leaves sequence_lens, clip and, for GRU and
# LSTM, activations out of the computation.
#
# Guess, written down first: an evaluator that is to define an op computes its inputs and attributes, or refuses them.
# With sequence_lens [1, 3], Y of the first sequence is 0 after its only step, and Y_h is the state after that step.
#
# Seen on 2026-11-30 with onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): ONNX Runtime does that. For the
# reference evaluator, Y and Y_h are those without sequence_lens, for all three ops, without an error. clip changes
# nothing either, nor do the activations of GRU and LSTM (Relu in place of Tanh).
# So a runtime that ignores the lengths, too, agrees with the reference.
#
# Source: https://onnx.ai/onnx/operators/onnx__LSTM.html: sequence_lens, activations and clip. The parameters are named
# and not used in op_rnn.py, op_gru.py and op_lstm.py of onnx's reference. We found no report of it.
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

random = np.random.default_rng(0)
x = random.standard_normal((3, 2, 2)).astype(np.float32)  # three steps, two sequences


def apart(some, others):
    return max(float(np.abs(a - b).max()) for a, b in zip(some, others))


for op, gates, names in (("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 3)):
    weights = [random.standard_normal((1, 4 * gates, n)).astype(np.float32) for n in (2, 4)]

    def outputs(lengths=None, **attributes):
        given = [numpy_helper.from_array(array, name) for name, array in zip("wr", weights)]
        if lengths is not None:
            given.append(numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
        inputs = ["x", "w", "r"] + (["", "lengths"] if lengths is not None else [])
        node = helper.make_node(op, inputs, ["y", "y_h"], hidden_size=4, **attributes)
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "y_h")]
        whole = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
        graph = helper.make_graph([node], "g", [whole], values, given)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(model), full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {"x": x}), ReferenceEvaluator(model).run(None, {"x": x})

    plain = outputs()
    assert apart(*plain) < 1e-5
    cases = {"sequence_lens": {"lengths": [1, 3]}, "clip": {"clip": 0.1}}
    if op != "RNN":
        cases["activations"] = {"activations": ["Sigmoid", "Relu", "Relu"][:names]}
    for what, options in cases.items():
        runtime, reference = outputs(**options)
        changed = apart(runtime, plain[0]), apart(reference, plain[1])
        print(f"{op}, {what} changes ONNX Runtime's outputs by {changed[0]:.2g}, the reference's by {changed[1]:.2g}")
        assert changed[0] > 0.01 and changed[1] == 0
        if what == "sequence_lens":
            y, y_h = runtime
            assert (y[1:, 0, 0] == 0).all() and np.array_equal(y_h[0, 0], y[0, 0, 0])
            assert (reference[0][1:, 0, 0] != 0).all()
PY
