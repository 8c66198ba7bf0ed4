"""Judges exported models by other people's code: onnx.checker, strict shape inference, and ONNX Runtime.

Takes the folder that `cargo run -p polygrad-onnx --example exported -- FOLDER` writes: for each model a folder of its own with
`opsetN.onnx`, and inputs and outputs at two sizes, `input_ROUND_I.pb` and `output_ROUND_I.pb`. Prints a table of the largest difference
of each model in each opset, relative to the largest value, and fails when one is above 1e-5 or a check fails.

    pip install onnx onnxruntime numpy
    python scripts/onnx_judge.py FOLDER
"""

import pathlib
import sys
import traceback

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.shape_inference
import onnxruntime

TOLERANCE = 1e-5


def tensors(folder, kind, round):
    """The tensors of one round, in order."""
    found = []
    while (path := folder / f"{kind}_{round}_{len(found)}.pb").exists():
        found.append(onnx.numpy_helper.to_array(onnx.load_tensor(path)))
    return found


def judge(path):
    """The largest relative difference of one file over both rounds."""
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
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for round in range(2):
        names = [value.name for value in session.get_inputs()]
        given = dict(zip([value.name for value in graph.input], tensors(path.parent, "input", round)))
        found = session.run(None, {name: given[name] for name in names})
        expected = tensors(path.parent, "output", round)
        if len(found) != len(expected):
            raise ValueError(f"{len(found)} outputs, not {len(expected)}")
        for a, b in zip(expected, found):
            if a.shape != b.shape or a.dtype != b.dtype:
                raise ValueError(f"{b.dtype}{b.shape}, not {a.dtype}{a.shape}")
            if not np.array_equal(np.isnan(a.astype(np.float64)), np.isnan(b.astype(np.float64))):
                raise ValueError("numbers here are none there")
            a, b = np.nan_to_num(a.astype(np.float64)), np.nan_to_num(b.astype(np.float64))
            largest = float(np.abs(a).max(initial=0.0)) or 1.0
            worst = max(worst, float(np.abs(a - b).max(initial=0.0)) / largest)
    return worst


def main():
    folder = pathlib.Path(sys.argv[1])
    models = sorted(path for path in folder.iterdir() if path.is_dir())
    opsets = sorted({int(path.stem[5:]) for model in models for path in model.glob("opset*.onnx")})
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}\n")
    print("| model | " + " | ".join(f"opset {opset}" for opset in opsets) + " |")
    print("|---|" + "---|" * len(opsets))
    failures = []
    for model in models:
        cells = []
        for opset in opsets:
            path = model / f"opset{opset}.onnx"
            try:
                difference = judge(path)
                cells.append(f"{difference:.1e}")
                if not difference <= TOLERANCE:
                    failures.append(f"{path}: differs by {difference:.3e}")
            except Exception as error:
                cells.append("fails")
                failures.append(f"{path}: {''.join(traceback.format_exception_only(error)).strip()}")
        print(f"| {model.name} | " + " | ".join(cells) + " |")
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
