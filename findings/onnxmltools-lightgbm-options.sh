#!/usr/bin/env bash
# onnxmltools divides what a LightGBM random forest sums by 100, however many trees it has, and loses linear_tree,
# reg_sqrt, sigmoid and one-vs-all.
#
# Guess, written down first: convert_lightgbm refuses what it cannot convert, as it does the objectives "mape" and
# "fair"; so a converted model predicts what the booster does, to float's rounding.
#
# Seen on 2026-11-30 with onnxmltools 1.16.0, lightgbm 4.7.0 and onnxruntime 1.32.0 (CPU, Python 3.11), without an error
# or a warning:
# - boosting_type="rf" is right with 100 trees, the default; eight give 0.08 of each prediction, and 200 its double;
# - linear_tree=True: only the constants of the leaves are used, not their linear functions;
# - reg_sqrt=True: the result is not squared;
# - sigmoid=2 for two classes: probabilities of a sigmoid with a factor of 1;
# - objective="multiclassova": a softmax of the scores in place of a sigmoid for each class.
# The default regressor and classifier are right.
#
# Source: https://lightgbm.readthedocs.io/en/stable/Parameters.html: boosting, linear_tree, reg_sqrt, sigmoid and
# objective. operator_converters/LightGbm.py of onnxmltools has the number 100. We found no report of these.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnxmltools==1.16.0 skl2onnx==1.20.0 lightgbm==4.7.0 scikit-learn==1.9.1 \
    onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" -W error::UserWarning:onnxmltools - <<'PY'
import numpy as np
import onnxruntime
from lightgbm import LGBMClassifier, LGBMRegressor
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

onnxruntime.set_default_logger_severity(4)
random = np.random.default_rng(0)
x, new = (random.standard_normal((200, 4)).astype(np.float32) for _ in range(2))
y = x @ [1, 2, 3, 4] + x[:, 0] * x[:, 1]
second, third = (y > 0).astype(int), np.digitize(y, [-2, 2])


def both(kind, y, **options):
    """The model, its predictions or probabilities, and those of the converted one."""
    options = {"n_estimators": 8, "min_child_samples": 5, "verbose": -1, "n_jobs": 1, **options}
    model = kind(**options).fit(x, y)
    file = convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, 4]))], zipmap=False)
    found = onnxruntime.InferenceSession(file.SerializeToString()).run(None, {"x": new})
    if kind is LGBMRegressor:
        return model, model.predict(new), found[0].ravel()
    return model, model.predict_proba(new), found[1]


def apart(a, b):
    return float(np.abs(a - b).max())


for kind, wanted in ((LGBMRegressor, y), (LGBMClassifier, second), (LGBMClassifier, third)):
    _, right, found = both(kind, wanted)
    assert apart(right, found) < 1e-5
for refused in ("mape", "fair"):
    try:
        both(LGBMRegressor, np.abs(y), objective=refused)
        raise SystemExit(f"{refused} is converted")
    except RuntimeError as error:
        print("refused:", error)

for trees in (8, 100, 200):
    forest = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
    _, right, found = both(LGBMRegressor, y, n_estimators=trees, **forest)
    print(f"rf of {trees} trees:", right[:3], "by ONNX", found[:3])
    assert np.allclose(found, trees / 100 * right, atol=1e-4)
_, right, found = both(LGBMRegressor, y, linear_tree=True)
print("linear_tree: off by", apart(right, found), "- predictions deviate by", right.std())
assert apart(right, found) > right.std() and len(np.unique(found)) < len(np.unique(right))
_, right, found = both(LGBMRegressor, y, reg_sqrt=True)
print("reg_sqrt: off by", apart(right, found))
assert apart(right, found) > 0.5 and apart(right, np.sign(found) * found**2) < 1e-4
model, right, found = both(LGBMClassifier, second, sigmoid=2.0)
raw = model.predict(new, raw_score=True)
print("sigmoid=2: off by", apart(right, found))
assert apart(right[:, 1], 1 / (1 + np.exp(-2 * raw))) < 1e-5 and apart(found[:, 1], 1 / (1 + np.exp(-raw))) < 1e-5
assert apart(right, found) > 0.1
model, right, found = both(LGBMClassifier, third, objective="multiclassova")
powers = np.exp(model.predict(new, raw_score=True))
print("multiclassova: off by", apart(right, found))
assert apart(right, found) > 0.1 and apart(found, powers / powers.sum(1, keepdims=True)) < 1e-5
PY
