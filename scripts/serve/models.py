"""The models for calls.py and bench.py, as ONNX files and in the layouts of Triton and MLServer.

    python scripts/serve/models.py FOLDER

FOLDER/onnx has NAME/VERSION/model.onnx for every model; FOLDER/triton is a model repository of Triton's Python backend, FOLDER/mlserver one
of MLServer, which run the same files in ONNX Runtime on one thread.
"""

import argparse
import json
import pathlib
import shutil

import onnx
from onnx import TensorProto, helper

HERE = pathlib.Path(__file__).parent

# The protocol's names of the dtypes that a model can have.
DTYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
}

NAMES = {number: name for name, number in DTYPES.items()}


def model(nodes, inputs, outputs, constants=()):
    """An ONNX model; inputs and outputs are (name, the protocol's dtype, shape)."""
    infos = [[helper.make_tensor_value_info(n, DTYPES[d], s) for n, d, s in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "graph", *infos, list(constants))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def scaled(by):
    """y = x times a constant."""
    factor = helper.make_tensor("factor", TensorProto.FLOAT, [], [by])
    shape = ["batch", "n"]
    return model([helper.make_node("Mul", ["x", "factor"], ["y"])], [("x", "FP32", shape)], [("y", "FP32", shape)], [factor])


def models():
    """(name, version, model) of all models that calls.py uses."""
    rows, node = ["batch", "n"], helper.make_node
    for name in DTYPES:
        yield f"identity_{name.lower()}", 1, model([node("Identity", ["x"], ["y"])], [("x", name, rows)], [("y", name, rows)])
    both = [("a", "INT32", rows), ("b", "INT32", rows)]
    results = [("sum", "INT32", rows), ("difference", "INT32", rows)]
    yield "add_sub", 1, model([node("Add", ["a", "b"], ["sum"]), node("Sub", ["a", "b"], ["difference"])], both, results)
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    row_sum = node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)
    yield "row_sum", 1, model([row_sum], [("x", "FP32", ["batch", 4])], [("y", "FP32", ["batch", 1])], [axes])
    yield "scaled", 1, scaled(1.0)
    yield "scaled", 2, scaled(2.0)
    # A sequence's sum so far: one request's `next_state` is the next one's `state`, which begins with zeros.
    number = ["batch", 1]
    steps = [node("Add", ["x", "state"], ["y"]), node("Identity", ["y"], ["next_state"])]
    states = [("x", "FP32", number), ("state", "FP32", number)]
    yield "accumulate", 1, model(steps, states, [("y", "FP32", number), ("next_state", "FP32", number)])


def tensors(values, hidden):
    """(name, dtype, shape with -1 for variable extents) of a graph's inputs or outputs."""
    for value in values:
        kind = value.type.tensor_type
        if value.name not in hidden:
            yield value.name, NAMES[kind.elem_type], [d.dim_value or -1 for d in kind.shape.dim]


def signature(path):
    """The inputs and outputs that a client sees, and whether the model also has state."""
    graph = onnx.load(path).graph
    state = any(value.name == "state" for value in graph.input)
    hidden = {"state", "next_state"} if state else ()
    return list(tensors(graph.input, hidden)), list(tensors(graph.output, hidden)), state


def triton(name, inputs, outputs, state, batch):
    """A config.pbtxt."""
    def field(kind, values):
        entries = ", ".join(
            f'{{ name: "{n}", data_type: TYPE_{d}, dims: [{", ".join(map(str, shape[1:]))}] }}' for n, d, shape in values
        )
        return f"{kind} [{entries}]\n"

    text = f'name: "{name}"\nbackend: "python"\nmax_batch_size: {max(batch, 8)}\n'
    text += field("input", inputs) + field("output", outputs)
    text += "version_policy: { all: {} }\ninstance_group [{ kind: KIND_CPU, count: 1 }]\n"
    if state:
        signal = '{ name: "START", control: [{ kind: CONTROL_SEQUENCE_START, int32_false_true: [0, 1] }] }'
        oldest = "max_sequence_idle_microseconds: 5000000, oldest { max_candidate_sequences: 64 }"
        text += f"sequence_batching {{ {oldest}, control_input [{signal}] }}\n"
    elif batch > 1:
        text += "dynamic_batching { max_queue_delay_microseconds: 0 }\n"
    return text


def mlserver(name, version, uri, inputs, outputs, batch):
    """A model-settings.json."""
    def metadata(values):
        return [{"name": n, "datatype": d, "shape": shape} for n, d, shape in values]

    settings = {
        "name": name,
        "implementation": "mlserver_model.OnnxModel",
        "parameters": {"uri": uri, "version": str(version)},
        "inputs": metadata(inputs),
        "outputs": metadata(outputs),
    }
    if batch > 1:
        settings |= {"max_batch_size": batch, "max_batch_time": 0.001}
    return json.dumps(settings, indent=2)


def lay_out(folder, path, name, version, batch):
    """Lays out a model for each of the servers."""
    inputs, outputs, state = signature(path)
    home = folder / "triton" / name / str(version)
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, home)
    shutil.copy(HERE / "triton_model.py", home / "model.py")
    (home.parent / "config.pbtxt").write_text(triton(name, inputs, outputs, state, batch))
    home = folder / "mlserver" / f"{name}-{version}"
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, home)
    (home / "model-settings.json").write_text(mlserver(name, version, "./model.onnx", inputs, outputs, batch))


def write(folder, found, batch=1):
    """Writes all layouts of (name, version, model) anew."""
    folder = pathlib.Path(folder)
    for part in ("onnx", "triton", "mlserver"):
        shutil.rmtree(folder / part, ignore_errors=True)
    for name, version, made in found:
        path = folder / "onnx" / name / str(version) / "model.onnx"
        path.parent.mkdir(parents=True)
        onnx.save(made, path)
        lay_out(folder, path, name, version, batch)
    shutil.copy(HERE / "mlserver_model.py", folder / "mlserver")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    write(parser.parse_args().folder, models())


if __name__ == "__main__":
    main()
