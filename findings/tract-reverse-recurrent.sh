#!/usr/bin/env bash
# tract: an RNN, GRU or LSTM whose direction is "reverse" runs forwards; both directions together are right.
#
# Guess, written down first: a runtime that loads a recurrent node with direction "reverse" reads the sequence from its
# end, or refuses the direction; so Y_h is the state after the first element.
#
# Seen on 2026-11-29 with tract 0.23.9 and onnxruntime 1.32.0 (CPU, Python 3.11): "forward" and "bidirectional" agree
# with ONNX Runtime to rounding. "reverse" gives, to rounding, what "forward" gives, for RNN, GRU and LSTM, without an
# error or a warning.
#
# Source: https://onnx.ai/onnx/operators/onnx__LSTM.html, the attribute direction. That tract leaves other attributes of
# these ops out is known (https://github.com/sonos/tract/issues/2751); of this one we found no report.
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
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(0)
x = random.standard_normal((4, 1, 2)).astype(np.float32)


def numbers(*shape):
    return random.standard_normal(shape).astype(np.float32)


for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
    weights = [numbers(2, 3 * gates, 2), numbers(2, 3 * gates, 3)]

    def outputs(direction):
        count = 2 if direction == "bidirectional" else 1
        graph = helper.make_graph(
            [helper.make_node(op, ["x", "w", "r"], ["y", "y_h"], hidden_size=3, direction=direction)],
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "y_h")],
            [numpy_helper.from_array(array[:count], name) for array, name in zip(weights, "wr")],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), "model.onnx")
        runnable = tract.onnx().load("model.onnx").into_model().into_runnable()
        by_tract = [tensor.to_numpy() for tensor in runnable.run([x])]
        return by_tract, onnxruntime.InferenceSession("model.onnx").run(None, {"x": x})

    def apart(some, others):
        return max(float(np.abs(a - b).max()) for a, b in zip(some, others))

    found = {direction: outputs(direction) for direction in ("forward", "reverse", "bidirectional")}
    for direction, (by_tract, by_runtime) in found.items():
        print(f"{op}, {direction}: tract and ONNX Runtime differ by {apart(by_tract, by_runtime):.1g}")
    turned = apart(found["reverse"][0], found["forward"][1])
    print(f"{op}: tract's reverse and ONNX Runtime's forward differ by {turned:.1g}")
    assert turned < 1e-6 and apart(*found["reverse"]) > 0.1
    assert apart(*found["forward"]) < 1e-6 and apart(*found["bidirectional"]) < 1e-6
PY
