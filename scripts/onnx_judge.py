"""Judges exported models by independent code: onnx.checker, strict shape inference, and ONNX Runtime.

Takes the folder that `cargo run -p polygrad-judging --bin exported -- FOLDER` writes: for each model a folder of its
own with `opsetN.onnx`, and inputs and outputs at two sizes, `input_ROUND_I.pb` and `output_ROUND_I.pb`. Prints lines of
tab-separated fields (see judging.py): 0 for `checker`, the largest difference for `ONNX Runtime`. Fails if a difference
is above 1e-5 or a check fails. `cargo xtask onnx-judges` runs it and makes a table of them.

    pip install onnx onnxruntime numpy
    python scripts/onnx_judge.py FOLDER
"""

import pathlib
import sys

import onnx
import onnx.checker
import onnx.shape_inference
import onnxruntime
from judging import difference, tell, tensors


def check(path):
    """The full check, shape inference with data propagation, and a type for every value."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    graph = model.graph
    for value in graph.output:
        if not value.type.tensor_type.HasField("shape"):
            raise ValueError(f"output {value.name} has no shape")
    known = {value.name for value in [*graph.value_info, *graph.input, *graph.output, *graph.initializer]}
    unknown = [name for node in graph.node for name in node.output if name and name not in known]
    if unknown:
        raise ValueError(f"no value_info for {unknown}")
    return 0.0


def run(path):
    """The largest difference of one file over both rounds."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in onnx.load(path).graph.input]
    worst = 0.0
    for round in range(2):
        given = dict(zip(names, tensors(path.parent, "input", round)))
        found = session.run(None, {value.name: given[value.name] for value in session.get_inputs()})
        worst = max(worst, difference(tensors(path.parent, "output", round), found))
    return worst


def main():
    fine = True
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*/*.onnx")):
        model, file = path.parent.name, path.stem
        fine &= tell(model, file, "checker", lambda: check(path))
        fine &= tell(model, file, "ONNX Runtime", lambda: run(path))
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}", file=sys.stderr)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
