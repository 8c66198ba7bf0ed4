#!/usr/bin/env bash
# Normalizer with norm "max": ONNX Runtime divides by the largest number, scikit-learn and onnx's reference evaluator by
# the largest absolute value. skl2onnx turns the one into the other.
#
# Guess, written down first: a converter that maps scikit-learn's Normalizer to the op of the same name, with the same
# three norms, keeps its numbers: with "max", no result is beyond -1 and 1, and signs stay.
#
# Seen on 2026-11-30 with skl2onnx 1.20.0, scikit-learn 1.9.1, onnxruntime 1.32.0 and onnx 1.23.2 (CPU, Python 3.11):
# [-4, 2, 1] is [-1, 0.5, 0.25] in scikit-learn and in onnx's reference, and [-2, 1, 0.5] in ONNX Runtime. A row of
# negative numbers changes its signs there: [-3, -2, -1] becomes [3, 2, 1], the largest number last. Rows without
# negative numbers are equal in all three, and so are "l1" and "l2".
#
# Source: https://onnx.ai/onnx/operators/onnx_aionnxml_Normalizer.html ("Max: Y = X / max(X)", which ONNX Runtime does);
# https://scikit-learn.org/stable/modules/generated/sklearn.preprocessing.normalize.html, norm. We found no report.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install skl2onnx==1.20.0 scikit-learn==1.9.1 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnxruntime
from onnx.reference import ReferenceEvaluator
from skl2onnx import to_onnx
from sklearn.preprocessing import Normalizer

x = np.array([[1, 2, 4], [-4, 2, 1], [-3, -2, -1]], np.float32)
for norm in ("l1", "l2", "max"):
    model = Normalizer(norm).fit(x)
    file = to_onnx(model, x)
    assert [node.op_type for node in file.graph.node] == ["Normalizer"]
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    right, runtime = model.transform(x), session.run(None, {"X": x})[0]
    reference = ReferenceEvaluator(file).run(None, {"X": x})[0]
    print(f"{norm}: scikit-learn {right.round(2).tolist()}, ONNX Runtime {runtime.round(2).tolist()}")
    np.testing.assert_allclose(right, reference, rtol=1e-6)
    if norm == "max":
        np.testing.assert_allclose(runtime, x / x.max(1, keepdims=True), rtol=1e-6)
        assert runtime[1].tolist() == [-2, 1, 0.5] and runtime[2].tolist() == [3, 2, 1]
        assert np.array_equal(runtime[0], right[0])
    else:
        np.testing.assert_allclose(right, runtime, rtol=1e-6)
PY
