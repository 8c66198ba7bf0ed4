#!/usr/bin/env bash
# tract: a causal ONNX Attention with a past sees from the past's beginning on, not up to the query's own place.
#
# Guess, written down first: with past_key and past_value a query stands behind the past, so is_causal lets it see the
# whole past and the new keys up to its own; a single new query, as when a model writes, then sees every key.
#
# Seen on 2026-11-29 with tract 0.23.9, onnx 1.23.2 and onnxruntime 1.32.0 (CPU, Python 3.11): without a past the three
# agree. With one, onnx's reference and ONNX Runtime agree with the guess, and tract aligns the causal mask to the top
# left of queries × (past + new keys): query i sees the keys 0 to i, and a single query only the first key of the past.
# The keys and values that it gives for the next step are right, and nothing says that the output is not.
# So a file that passes with a whole sequence gives other tokens when it is run with a cache.
#
# Source: https://onnx.ai/onnx/operators/onnx__Attention.html, is_causal and the offset by the length of the past.
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
from onnx import TensorProto, helper

random = np.random.default_rng(0)


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def outputs(queries, past):
    """The first output of tract and of ONNX Runtime, and what both alignments of the mask give."""
    new = [random.standard_normal((1, 2, queries, 4)).astype(np.float32) for _ in range(3)]
    kept = [random.standard_normal((1, 2, past, 4)).astype(np.float32) for _ in range(2)] if past else []
    inputs = dict(zip(["q", "k", "v", "past_k", "past_v"], [*new, *kept]))
    names = ["q", "k", "v", "", "past_k", "past_v"] if past else ["q", "k", "v"]
    given = ["y", "present_k", "present_v"] if past else ["y"]
    node = helper.make_node("Attention", names, given, is_causal=1)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in given],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.save(model, "model.onnx")
    runnable = tract.onnx().load("model.onnx").into_model().into_runnable()
    by_tract = runnable.run(list(inputs.values()))[0].to_numpy()
    by_runtime = onnxruntime.InferenceSession("model.onnx").run(None, inputs)[0]
    keys, values = [np.concatenate(pair, 2) for pair in zip(kept, new[1:])] if past else new[1:]
    row, column = np.arange(queries)[:, None], np.arange(past + queries)
    scores = new[0] @ keys.transpose(0, 1, 3, 2) / 2
    aligned = [softmax(np.where(column <= row + shift, scores, -np.inf)) @ values for shift in (past, 0)]
    return by_tract, by_runtime, *aligned


for queries, past in ((3, 0), (3, 2), (1, 4)):
    by_tract, by_runtime, behind, top_left = outputs(queries, past)
    apart = lambda a, b: float(np.abs(a - b).max())
    print(
        f"{queries} queries, a past of {past}: from the definition: ONNX Runtime {apart(by_runtime, behind):.1g}, "
        f"tract {apart(by_tract, behind):.1g}; tract from a mask to the top left {apart(by_tract, top_left):.1g}"
    )
    assert apart(by_runtime, behind) < 1e-6 and apart(by_tract, top_left) < 1e-6
    assert past == 0 or apart(by_tract, behind) > 0.1
PY
