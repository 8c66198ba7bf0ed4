#!/usr/bin/env bash
# TreeEnsemble (ai.onnx.ml 5), post_transform 1 and 2: ONNX Runtime swaps the two; ONNX's own evaluator applies neither.
#
# Guess, written down first: 1 is SOFTMAX and 2 is LOGISTIC, as the op's documentation numbers them. So in every runtime
# scores of 1 and 2 become 0.2689 and 0.7311 for 1, and 0.7311 and 0.8808 for 2.
#
# Seen on 2026-11-28 with ONNX Runtime 1.32.0 (CPU, x86-64, Python 3.11) and onnx 1.23.2: ONNX Runtime gives 0.7311 and
# 0.8808 for 1, and 0.2689 and 0.7311 for 2. onnx.reference gives 1 and 2 for both: it applies no transform. A file that
# was checked with the older TreeEnsembleClassifier, where the transform is a word, gives other scores once it is
# converted.
#
# Source: the description of the attribute in ONNX's schema, which the script reads.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

documented = onnx.defs.get_schema("TreeEnsemble", 5, "ai.onnx.ml").attributes["post_transform"].description
print("documented:", " ".join(documented.split()))
assert "'SOFTMAX' (1), 'LOGISTIC' (2)" in documented, documented
x = np.array([[1.0]], np.float32)


def floats(*values):
    return helper.make_tensor("floats", TensorProto.FLOAT, [len(values)], values)


def scores(code):
    # Two trees of one split each: x is above both thresholds, so that the leaves 1 and 2 speak for the targets 0 and 1.
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=2,
        aggregate_function=1,
        post_transform=code,
        tree_roots=[0, 1],
        nodes_featureids=[0, 0],
        nodes_modes=helper.make_tensor("modes", TensorProto.UINT8, [2], bytes([0, 0]), raw=True),
        nodes_splits=floats(0.0, 0.0),
        nodes_truenodeids=[0, 2],
        nodes_trueleafs=[1, 1],
        nodes_falsenodeids=[1, 3],
        nodes_falseleafs=[1, 1],
        leaf_targetids=[0, 0, 1, 1],
        leaf_weights=floats(0.5, 1.0, -1.0, 2.0),
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])]
    opsets = [helper.make_opsetid("ai.onnx.ml", 5), helper.make_opsetid("", 21)]
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0][0], ReferenceEvaluator(model).run(None, {"x": x})[0][0]


raw = np.array([1.0, 2.0])
softmax, logistic = np.exp(raw) / np.exp(raw).sum(), 1 / (1 + np.exp(-raw))
for code, wanted, found in ((0, raw, raw), (1, softmax, logistic), (2, logistic, softmax)):
    runtime, reference = scores(code)
    print(f"post_transform={code}: documented {wanted.round(4)}, ONNX Runtime {runtime.round(4)}, onnx.reference {reference.round(4)}")
    assert np.allclose(runtime, found, atol=1e-6), runtime
    assert np.allclose(reference, raw), reference
PY
