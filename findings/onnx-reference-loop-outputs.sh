#!/usr/bin/env bash
# onnx's reference evaluator joins what a Loop's steps give along their own first axis, without an axis for the steps.
#
# Guess, written down first: three steps that each give a matrix of 2 × 3 make a tensor of 3 × 2 × 3, and three that
# each give a number make a vector of 3: the i-th entry of a scan output is what step i gave.
#
# Seen on 2026-11-30 with onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): numbers become 3 × 1 and matrices 6 × 3
# in the reference evaluator. Only vectors are right. ONNX Runtime and onnx's own shape inference agree with the guess.
# The numbers are the same in the same order, so a comparison that flattens both does not see it, but a Gather of one
# step takes a row of the first step's matrix. ONNX's function for Range is such a Loop, and gives a column there.
#
# Source: https://onnx.ai/onnx/operators/onnx__Loop.html, whose C code has `user_defined_vals[i] = user_defined_val`;
# the evaluator's op_loop.py passes the steps' values to numpy.vstack. We found no report of it.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import parser
from onnx.reference import ReferenceEvaluator


def outputs(shape):
    """All steps and the second one, of three steps that double x, by both evaluators."""
    kind = f"float[{','.join(map(str, shape))}]" if shape else "float"
    rank = ",".join("abcd"[: len(shape) + 1])
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 13]>
        graph (int64 count, {kind} x) => (float[{rank}] steps, {kind} second) {{
            yes = Constant <value = bool {{1}}> ()
            last, steps = Loop (count, yes, x) <body = step (int64 i, bool go, {kind} v)
                => (bool on, {kind} w, {kind} kept) {{ on = Identity(go)  w = Add(v, v)  kept = Identity(v) }}>
            one = Constant <value = int64 {{1}}> ()
            second = Gather (steps, one)
        }}"""
    )
    onnx.checker.check_model(model, full_check=True)
    given = {"count": np.array(3), "x": np.ones(shape, np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given), ReferenceEvaluator(model).run(None, given)


for shape, found in (((), (3, 1)), ((2,), (3, 2)), ((2, 3), (6, 3))):
    runtime, reference = outputs(shape)
    print(f"each step {shape}: ONNX Runtime {runtime[0].shape}, the reference {reference[0].shape}")
    assert runtime[0].shape == (3, *shape) and reference[0].shape == found
    assert np.array_equal(runtime[0].ravel(), reference[0].ravel())
    assert (runtime[1] == 2).all() and runtime[1].shape == shape
print("the second step's matrix, by ONNX Runtime", runtime[1].tolist(), "by the reference", reference[1].tolist())
assert reference[1].tolist() == [1, 1, 1]
PY
