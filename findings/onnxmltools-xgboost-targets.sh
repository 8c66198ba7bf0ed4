#!/usr/bin/env bash
# onnxmltools: an XGBoost regressor of two targets becomes a model that gives the second one as 0 and adds its trees to
# the first; with reg:logistic the result is no probability.
#
# Guess, written down first: convert_xgboost refuses what it cannot convert, as it does boosters of other kinds; so a
# converted model predicts what the booster does.
#
# Seen on 2026-11-30 with onnxmltools 1.16.0, xgboost 3.2.0 and onnxruntime 1.32.0 (CPU, Python 3.11), without an error
# or a warning: of two targets, the first is what the trees of both give together, to a constant, and the second is 0
# for every input. The output has the right shape, so only the numbers show it. With objective="reg:logistic" the result
# is the score before the sigmoid, to a constant: below 0 and above 1. One target with the default objective is right,
# and reg:gamma, reg:tweedie and count:poisson, which also transform the score, are.
#
# Source: https://xgboost.readthedocs.io/en/stable/tutorials/multioutput.html and parameter.html (reg:logistic).
# We found no report of these.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install --no-deps xgboost==3.2.0
"$folder/venv/bin/pip" -q install onnxmltools==1.16.0 skl2onnx==1.20.0 scikit-learn==1.9.1 onnxruntime==1.32.0 \
    onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnxruntime
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from xgboost import XGBRegressor

onnxruntime.set_default_logger_severity(4)
random = np.random.default_rng(0)
x, new = (random.standard_normal((200, 4)).astype(np.float32) for _ in range(2))
y = x @ [1, 2, 3, 4] + x[:, 0] * x[:, 1]


def both(y, **options):
    model = XGBRegressor(n_estimators=8, max_depth=3, n_jobs=1, **options).fit(x, y)
    file = convert_xgboost(model, initial_types=[("x", FloatTensorType([None, 4]))])
    found = onnxruntime.InferenceSession(file.SerializeToString()).run(None, {"x": new})[0]
    return model, model.predict(new), found if y.ndim == 2 else found.ravel()


for objective in ("reg:squarederror", "reg:gamma", "reg:tweedie", "count:poisson"):
    _, right, found = both(y if "error" in objective else np.abs(y) + 0.1, objective=objective)
    np.testing.assert_allclose(right, found, rtol=1e-3, atol=1e-4)

_, right, found = both(np.stack([y, 5 * (y > 0)], 1))
print("two targets:", right[:2].tolist(), "by ONNX", found[:2].tolist())
assert right.shape == found.shape == (200, 2) and (found[:, 1] == 0).all() and right[:, 1].std() > 1
shift = found[:, 0] - right.sum(1)
print("first target by ONNX, less the sum of both:", shift.mean(), "+-", shift.std())
assert shift.std() < 1e-3 and np.abs(found[:, 0] - right[:, 0]).max() > 1

model, right, found = both(1 / (1 + np.exp(-y)), objective="reg:logistic")
shift = found - model.predict(new, output_margin=True)
print("reg:logistic:", right.min(), "to", right.max(), "by ONNX", found.min(), "to", found.max())
assert 0 < right.min() and right.max() < 1 and found.min() < 0 and found.max() > 1 and shift.std() < 1e-3
PY
