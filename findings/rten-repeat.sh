#!/usr/bin/env bash
# RTen: Unsqueeze, Expand and Reshape that repeat a whole vector instead repeat each element.
#
# Guess, written down first: [1, 2] to [1, 1, 2] to [1, 2, 2] to [4] is [1, 2, 1, 2], whatever a runtime fuses, since
# fusions keep results. The position of the new axis determines whether elements or the whole vector are repeated.
#
# Seen on 2026-11-27 with RTen 0.27.0 (CPU, x86-64, default options except that all ops are included): [1, 1, 2, 2],
# without an error. onnx's reference evaluator gives [1, 2, 1, 2]. So does RTen with Reshape in place of Unsqueeze.
#
# Source: src/optimize/fusions.rs of RTen, RepeatInterleaveFusion: it compares the extents of the first operand and of
# the result, and does not check which axis is new. Attention with grouped heads is written this way, and there the
# assumption would be right.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install onnx==1.23.2 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PY'
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

for name, first in (("unsqueeze", "Unsqueeze"), ("reshape", "Reshape")):
    constants = {"a": [0, 1] if first == "Unsqueeze" else [1, 1, 2], "b": [1, 2, 2], "c": [4]}
    nodes = [
        helper.make_node(first, ["x", "a"], ["u"]),
        helper.make_node("Expand", ["u", "b"], ["v"]),
        helper.make_node("Reshape", ["v", "c"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])]
    given = [helper.make_tensor(key, TensorProto.INT64, [len(value)], value) for key, value in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    found = ReferenceEvaluator(model).run(None, {"x": np.array([1, 2], np.float32)})[0].tolist()
    assert found == [1.0, 2.0, 1.0, 2.0], found
    onnx.save(model, f"{name}.onnx")
PY
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "repeat"
version = "0.0.0"
edition = "2024"

[dependencies]
rten = { version = "=0.27.0", default-features = false, features = ["onnx_format"] }
rten-tensor = "=0.27.0"
TOML
cat >src/main.rs <<'RUST'
use rten::{ModelOptions, Value};
use rten_tensor::prelude::*;

fn main() {
    let run = |file| {
        let model = ModelOptions::with_all_ops().load_file(file).unwrap();
        let (x, y) = (model.node_id("x").unwrap(), model.node_id("y").unwrap());
        let given = Value::from_shape(&[2], vec![1f32, 2.0]).unwrap();
        let [found] = model.run_n(vec![(x, given.into())], [y], None).unwrap();
        let Value::FloatTensor(found) = found else { panic!("not f32") };
        found.to_vec()
    };
    let (unsqueezed, reshaped) = (run("unsqueeze.onnx"), run("reshape.onnx"));
    println!("Unsqueeze, Expand, Reshape: {unsqueezed:?}; Reshape, Expand, Reshape: {reshaped:?}");
    assert_eq!(unsqueezed, [1.0, 1.0, 2.0, 2.0]);
    assert_eq!(reshaped, [1.0, 2.0, 1.0, 2.0]);
}
RUST
CARGO_TARGET_DIR="$folder/target" cargo run --quiet
