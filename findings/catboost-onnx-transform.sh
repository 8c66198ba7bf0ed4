#!/usr/bin/env bash
# CatBoost's ONNX export of Poisson and Tweedie models gives logarithms of what predict gives, and one-vs-all
# probabilities of another formula.
#
# Guess, written down first: save_model(format="onnx") writes a model whose result is predict's, or predict_proba's, as
# it is for regressors and classifiers with the default loss.
#
# Seen on 2026-11-30 with catboost 1.2.10 and onnxruntime 1.32.0 (CPU, Python 3.11): with the losses Poisson and
# Tweedie, predict is the exponent of the trees' sum and ONNX gives the sum itself, so counts come out negative. With
# MultiClassOneVsAll, predict_proba is a sigmoid for each class, and ONNX gives a softmax over the classes: off by 0.1
# and more, and no threshold fits. There is no error and no warning. RMSE, two classes and MultiClass are right.
#
# Source: https://catboost.ai/docs/en/concepts/apply-onnx-ml, whose list of specifics names kinds of features and no
# losses; predict's prediction_type is "Exponent" by default for the two. We found no report of it.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install --no-deps catboost==1.2.10
"$folder/venv/bin/pip" -q install scipy==1.17.1 pandas==3.1.1 six==1.17.0 onnxruntime==1.32.0 numpy==2.4.6
cd "$folder"
venv/bin/python -W error - <<'PY'
import numpy as np
import onnxruntime
from catboost import CatBoostClassifier, CatBoostRegressor

onnxruntime.set_default_logger_severity(4)
random = np.random.default_rng(0)
x, new = (random.standard_normal((200, 4)).astype(np.float32) for _ in range(2))
y = x @ [1, 2, 3, 4] + x[:, 0] * x[:, 1]
count, third = np.abs(y) / 4 + 0.1, np.digitize(y, [-2, 2])


def both(kind, y, **options):
    """What predict or predict_proba gives, the sums of the trees, and what the ONNX model gives."""
    model = kind(iterations=8, verbose=0, thread_count=1, allow_writing_files=False, **options).fit(x, y)
    model.save_model("model.onnx", format="onnx")
    found = onnxruntime.InferenceSession("model.onnx").run(None, {"features": new})
    raw = model.predict(new, prediction_type="RawFormulaVal")
    if kind is CatBoostRegressor:
        return model.predict(new), raw, found[0].ravel()
    return model.predict_proba(new), raw, np.array([list(row.values()) for row in found[1]])


for kind, wanted, options in (
    (CatBoostRegressor, y, {}),
    (CatBoostClassifier, (y > 0).astype(int), {}),
    (CatBoostClassifier, third, {}),
):
    right, _, found = both(kind, wanted, **options)
    np.testing.assert_allclose(right, found, rtol=1e-3, atol=1e-4)
for loss in ("Poisson", "Tweedie:variance_power=1.5"):
    right, raw, found = both(CatBoostRegressor, count, loss_function=loss)
    print(f"{loss}: predict {right[:3].round(3)}, ONNX {found[:3].round(3)}")
    np.testing.assert_allclose(right, np.exp(raw), rtol=1e-6)
    np.testing.assert_allclose(found, raw, rtol=1e-3, atol=1e-4)
    assert right.min() > 0 and found.min() < 0
right, raw, found = both(CatBoostClassifier, third, loss_function="MultiClassOneVsAll")
print(f"MultiClassOneVsAll: predict_proba {right[0].round(3)}, ONNX {found[0].round(3)}")
np.testing.assert_allclose(right, 1 / (1 + np.exp(-raw)), rtol=1e-6)
np.testing.assert_allclose(found, np.exp(raw) / np.exp(raw).sum(1, keepdims=True), rtol=1e-3, atol=1e-4)
assert np.abs(right - found).max() > 0.1
PY
