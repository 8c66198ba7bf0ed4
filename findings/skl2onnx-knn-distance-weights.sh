#!/usr/bin/env bash
# skl2onnx: k-nearest neighbors with weights="distance" is converted to a model that weights all neighbors the same.
#
# Guess, written down first: KNeighborsRegressor(weights="distance") weights each neighbor by the inverse of its
# distance, and the converted model does the same, to float's rounding; or the option is refused.
#
# Seen on 2026-11-30 with skl2onnx 1.20.0, scikit-learn 1.9.1 and onnxruntime 1.32.0 (CPU, Python 3.11): no error, and
# the converted model gives what scikit-learn gives with weights="uniform", for KNeighborsRegressor and
# KNeighborsClassifier, also with the option "cdist", and in onnx's reference evaluator, too. The graph has the weights:
# it multiplies the distances by -1, takes the larger one of that and 1e-6, and inverts it, so each weight is 1e6.
# With one neighbor, or with weights="uniform", the model is right, and so are the distances.
#
# Source: https://scikit-learn.org/stable/modules/generated/sklearn.neighbors.KNeighborsRegressor.html, weights;
# nearest_neighbours.py of skl2onnx. TopK took the largest of the negated distances once, and takes the smallest
# distances now. We found no report of it.
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
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

random = np.random.default_rng(0)
x, new = (random.standard_normal((n, 4)).astype(np.float32) for n in (80, 20))
y = x @ np.array([1, 2, 3, 4], np.float32)


def converted(model, **options):
    file = to_onnx(model, new[:1], options={id(model): options} if options else None)
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    reference = None if options.get("optim") else ReferenceEvaluator(file).run(None, {"X": new})
    return session.run(None, {"X": new}), reference


def apart(a, b):
    return float(np.abs(np.ravel(a) - np.ravel(b)).max())


for neighbors in (1, 3, 10):
    uniform, weighted = [KNeighborsRegressor(neighbors, weights=kind).fit(x, y) for kind in ("uniform", "distance")]
    found = [converted(weighted)[0][0], converted(weighted)[1][0], converted(weighted, optim="cdist")[0][0]]
    print(
        f"regressor, {neighbors} neighbors, weights='distance': off by {apart(found[0], weighted.predict(new)):.2g}, "
        f"from 'uniform' by {apart(found[0], uniform.predict(new)):.2g}"
    )
    assert apart(converted(uniform)[0][0], uniform.predict(new)) < 1e-5
    assert all(apart(one, uniform.predict(new)) < 1e-5 for one in found)
    assert (apart(found[0], weighted.predict(new)) > 0.1) == (neighbors > 1)

uniform, weighted = [KNeighborsClassifier(3, weights=kind).fit(x, y > 0) for kind in ("uniform", "distance")]
found = converted(weighted, zipmap=False)[0][1]
print(f"classifier: probabilities off by {apart(found, weighted.predict_proba(new)):.2g}")
assert apart(found, uniform.predict_proba(new)) < 1e-5 and apart(found, weighted.predict_proba(new)) > 0.05
PY
