#!/usr/bin/env bash
# skl2onnx: OneVsOneClassifier gives positions of classes instead of classes, and OneVsRestClassifier(SVC()) the least
# likely class.
#
# Guess, written down first: a converted classifier's first output is what predict returns.
#
# Seen on 2026-11-30 with skl2onnx 1.20.0, scikit-learn 1.9.1 and onnxruntime 1.32.0 (CPU, Python 3.11): trained on the
# classes 10, 20 and 30, OneVsOneClassifier gives 0, 1 and 2, without an error; with the classes 0, 1 and 2 it is right.
# OneVsRestClassifier(SVC()) gives the class of the smallest score; with the option raw_scores it is right.
# OneVsRestClassifier(LinearSVC()) is right for three classes. For two it gives the second from a score of 0.5 on, where
# scikit-learn takes it from 0 on: here a quarter of the examples come out as the other class.
#
# Source: scikit-learn's pages on OneVsOneClassifier and OneVsRestClassifier (predict); skl2onnx's one_vs_one_classifier
# writes the place of the largest vote, and its one_vs_rest_classifier takes scores as probabilities. We found no report
# on OneVsOneClassifier.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install skl2onnx==1.20.0 scikit-learn==1.9.1 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" -W ignore::FutureWarning - <<'PY'
import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.svm import SVC, LinearSVC

onnxruntime.set_default_logger_severity(4)
random = np.random.default_rng(0)
x = random.standard_normal((200, 3)).astype(np.float32)
third = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
half = (x[:, 0] + 0.3 * x[:, 1] + random.standard_normal(200) > 0).astype(int)


def labels(model, classes, place, **options):
    """What scikit-learn predicts, and what the converted model gives."""
    model.fit(x, np.array(classes)[place])
    file = to_onnx(model, x[:1], options={id(model): {"zipmap": False, **options}})
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    predicted, found = model.predict(x), np.ravel(session.run(None, {"X": x})[0])
    print(f"{model}: {(predicted != found).mean():.0%} other labels, {np.unique(predicted)} and {np.unique(found)}")
    return predicted, found


predicted, found = labels(OneVsOneClassifier(LogisticRegression()), [0, 1, 2], third)
assert np.array_equal(predicted, found)
predicted, found = labels(OneVsOneClassifier(LogisticRegression()), [10, 20, 30], third)
assert np.array_equal(found, predicted // 10 - 1) and not np.isin(found, predicted).any()

model = OneVsRestClassifier(SVC())
predicted, found = labels(model, [10, 20, 30], third)
assert np.array_equal(found, model.classes_[model.decision_function(x).argmin(1)]) and (predicted != found).all()
assert np.array_equal(*labels(model, [10, 20, 30], third, raw_scores=True))

model = OneVsRestClassifier(LinearSVC())
assert np.array_equal(*labels(model, [10, 20, 30], third))
predicted, found = labels(model, [10, 20], half)
scores = model.decision_function(x)
assert np.array_equal(predicted == 20, scores > 0)
clear = np.abs(scores - 0.5) > 1e-3
assert np.array_equal((found == 20)[clear], (scores > 0.5)[clear]) and (predicted != found).mean() > 0.2
PY
