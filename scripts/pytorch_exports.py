"""Exports the models of pytorch_models.py by PyTorch's two exporters, with PyTorch's own outputs.

    python3 scripts/pytorch_exports.py FOLDER [ARCHIVE]

For each model a folder with `torchscript17.onnx` and `torchscript20.onnx` (`dynamo=False`) and `dynamo20.onnx`
(`dynamo=True`), all with named extents (but see FIXED), its weights as `model.safetensors`, and inputs and outputs of
two sizes, `input_ROUND_I.pb` and `output_ROUND_I.pb`, for the judges of `cargo xtask onnx-judges`. ARCHIVE has the same
without large files, for the tests of polygrad-onnx, in the format of onnx_cases.py:

    eval "$(cargo xtask setup pytorch)"
    python3 scripts/pytorch_exports.py /tmp/pytorch crates/onnx/tests/data/pytorch_cases.bin.gz
"""

import logging
import pathlib
import sys
import types
import warnings

import onnx
import onnx_cases
import torch
from onnx import numpy_helper
from pytorch_models import cases
from safetensors.torch import save_model

# The absolute and the relative tolerance.
TOLERANCE = 1e-5

# The most bytes of a file in the archive, since the archive is in the repository.
ARCHIVED = 240_000


def torchscript(case, path, opset):
    names = [name for name, _, _ in case.inputs]
    axes = {name: {i: dim for i, dim in enumerate(dims) if isinstance(dim, str)} for name, dims, _ in case.inputs}
    options = {"input_names": names, "output_names": case.outputs, "dynamic_axes": axes, "opset_version": opset}
    torch.onnx.export(case.model, tuple(case.random(0)), str(path), dynamo=False, **options)


def dynamo(case, path, opset):
    named = {name: torch.export.Dim(name, min=2, max=512) for name in ("batch", "seq")}
    shapes = [{i: named[dim] for i, dim in enumerate(dims) if isinstance(dim, str)} for _, dims, _ in case.inputs]
    options = {"input_names": [name for name, _, _ in case.inputs], "output_names": case.outputs, "opset_version": opset}
    options |= {"dynamic_shapes": tuple(shapes), "external_data": False, "verbose": False}
    torch.onnx.export(case.model, tuple(case.random(0)), str(path), dynamo=True, **options)


EXPORTERS = {"torchscript17": (torchscript, 17), "torchscript20": (torchscript, 20), "dynamo20": (dynamo, 20)}

# Combinations that are not exported, since these exporters fix the length to the example's despite named extents. ONNX
# Runtime also refuses the files at another length.
FIXED = {
    "causal_attention": {"torchscript17", "torchscript20"},
    "lstm_with_state": {"dynamo20"},
    "gru_without_bias": {"dynamo20"},
    "rnn": {"dynamo20"},
}


def plain(model):
    """Removes the source locations that PyTorch stores for each node, which include local paths."""
    for part in [model, model.graph, *model.functions, *model.graph.node, *model.graph.value_info, *model.graph.initializer]:
        part.ClearField("doc_string")
        if "metadata_props" in part.DESCRIPTOR.fields_by_name:
            part.ClearField("metadata_props")
    return model


def main():
    folder = pathlib.Path(sys.argv[1])
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    records = []
    for case in cases():
        print(f"exporting {case.name} from PyTorch {torch.__version__}", file=sys.stderr)
        own = folder / case.name
        own.mkdir(parents=True, exist_ok=True)
        save_model(case.model, str(own / "model.safetensors"))
        sets = []
        for round in range(2):
            given = list(case.random(round))
            with torch.no_grad():
                answers = case.model(*given)
            answers = answers if isinstance(answers, tuple) else (answers,)
            sets.append(([x.numpy() for x in given], [x.numpy() for x in answers]))
            for kind, values in zip(("input", "output"), sets[-1]):
                for i, value in enumerate(values):
                    tensor = numpy_helper.from_array(value)
                    (own / f"{kind}_{round}_{i}.pb").write_bytes(tensor.SerializeToString())
        for name, (export, opset) in EXPORTERS.items():
            if name in FIXED.get(case.name, ()):
                continue
            path = own / f"{name}.onnx"
            export(case, path, opset)
            model = plain(onnx.load(path))
            title = f"{case.name}_{name}"
            record = {"name": title, "model": model, "rtol": TOLERANCE, "atol": TOLERANCE, "data_sets": sets}
            if model.ByteSize() <= ARCHIVED:
                records.append(types.SimpleNamespace(**record))
    if len(sys.argv) > 2:
        onnx_cases.write(sys.argv[2], records)


if __name__ == "__main__":
    main()
