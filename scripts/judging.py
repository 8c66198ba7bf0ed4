"""Code shared by the Python judges: reads recorded tensors, compares results, and prints the differences."""

import numpy as np
import onnx
import onnx.numpy_helper

TOLERANCE = 1e-5


def tensors(folder, kind, round):
    """The tensors of one round, in order."""
    found = []
    while (path := folder / f"{kind}_{round}_{len(found)}.pb").exists():
        found.append(onnx.numpy_helper.to_array(onnx.load_tensor(path)))
    return found


def difference(expected, found):
    """The largest difference over all outputs, relative to each output's largest value."""
    if len(found) != len(expected):
        raise ValueError(f"{len(found)} outputs, not {len(expected)}")
    worst = 0.0
    for a, b in zip(expected, found):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValueError(f"{b.dtype}{b.shape}, not {a.dtype}{a.shape}")
        if not np.array_equal(np.isnan(a.astype(np.float64)), np.isnan(b.astype(np.float64))):
            raise ValueError("numbers here are none there")
        a, b = np.nan_to_num(a.astype(np.float64)), np.nan_to_num(b.astype(np.float64))
        largest = float(np.abs(a).max(initial=0.0)) or 1.0
        worst = max(worst, float(np.abs(a - b).max(initial=0.0)) / largest)
    return worst


def tell(model, file, judge, compute):
    """Prints model, file, judge and `compute`'s result, or `x` and the error. Returns whether it is small enough."""
    try:
        worst = compute()
    except Exception as error:  # noqa: BLE001
        print(model, file, judge, "x", " ".join(f"{type(error).__name__}: {error}".split()), sep="\t", flush=True)
        return False
    print(model, file, judge, f"{worst:e}", sep="\t", flush=True)
    return worst <= TOLERANCE
