#!/usr/bin/env bash
# ONNX Runtime's ReduceMax, ReduceMin and MaxPool lose NaN, which its Max, Min, Relu and Clip keep.
#
# Guess, written down first: a NaN among the elements makes the maximum NaN, as in NumPy, PyTorch and ONNX's own
# reference evaluator, so that a broken model shows it in its result; and ArgMax then returns the NaN's position.
#
# Seen on 2026-11-29 with onnxruntime 1.32.0 and onnx 1.23.2 (CPU, Python 3.11), for a vector with one NaN in the
# middle: Max, Min, Relu and Clip give NaN; ReduceMax, ReduceMin, MaxPool and GlobalMaxPool give the largest or smallest
# number that is not NaN. ArgMax gives the NaN's position for 8 numbers and another one for 2, 4 and 5. MaxPool of a
# single NaN is -3.4028235e38, which looks like a number. The reference evaluator gives NaN, and its position from
# ArgMax, for all except the pools: there it fills the padding with NaN and ignores every NaN, so pools are not
# compared.
#
# Source: ONNX's operator pages do not mention NaN for these ops; the reference evaluator uses NumPy's maximum and
# minimum.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

ZERO = helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])


def run(op, x, inputs=("x",), dtype=TensorProto.FLOAT, **attributes):
    """What ONNX Runtime says, and a function that asks the reference evaluator."""
    node = helper.make_node(op, list(inputs), ["y"], **attributes)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", dtype, None)], [ZERO])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0], lambda: ReferenceEvaluator(model).run(None, {"x": x})[0]


places = {}
for n in (2, 4, 5, 8, 64):
    x = np.linspace(-1, 1, n, dtype=np.float32)
    x[n // 2] = np.nan
    for op in ("Max", "Min"):
        kept, reference = run(op, x, ("x", "zero"))
        assert np.isnan(kept[n // 2]) and np.isnan(reference()[n // 2]), op
    assert np.isnan(run("Relu", x)[0][n // 2])
    for op in ("ReduceMax", "ReduceMin"):
        lost, reference = run(op, x, keepdims=0)
        print(f"{op} of {n} numbers with a NaN: {lost}, by the reference evaluator {reference()}")
        assert np.isfinite(lost) and np.isnan(reference()), op
    pooled = run("MaxPool", x.reshape(1, 1, n), kernel_shape=[n])[0].item()
    assert np.isfinite(pooled)
    place, reference = run("ArgMax", x, dtype=TensorProto.INT64, axis=0, keepdims=0)
    places[n] = (int(place), n // 2)
    assert reference() == n // 2
alone = run("MaxPool", np.full((1, 1, 1), np.nan, np.float32), kernel_shape=[1])[0].item()
print(f"ArgMax, by length, and where the NaN is: {places}")
print(f"MaxPool of a NaN alone: {alone}")
assert any(found != where for found, where in places.values())
assert alone == np.finfo(np.float32).min
PY
