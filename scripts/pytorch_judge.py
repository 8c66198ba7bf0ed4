"""Loads our state dicts into PyTorch's modules, strictly and unchanged, and compares the outputs with ours.

    python3 scripts/pytorch_judge.py FOLDER

FOLDER is written by `cargo run -p polygrad-judging --bin exported -- FOLDER`: for each model `model.safetensors`, and
inputs and outputs of two sizes. Prints a line for each model that is also in pytorch_models.py (see judging.py), and
fails if one differs by more than 1e-5. `cargo run -p polygrad-onnx --example loaded` checks the other direction.
"""

import pathlib
import sys

import torch
from judging import difference, tell, tensors
from pytorch_models import cases
from safetensors.torch import load_file


def judge(case, folder):
    case.model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    worst = 0.0
    for round in range(2):
        given = [torch.from_numpy(value.copy()) for value in tensors(folder, "input", round)]
        with torch.no_grad():
            found = case.model(*given)
        found = found if isinstance(found, tuple) else (found,)
        worst = max(worst, difference(tensors(folder, "output", round), [value.numpy() for value in found]))
    return worst


def main():
    torch.set_num_threads(1)
    fine = True
    for case in cases():
        fine &= tell(case.name, "model", "PyTorch", lambda: judge(case, pathlib.Path(sys.argv[1]) / case.name))
    sys.exit(not fine)


if __name__ == "__main__":
    main()
