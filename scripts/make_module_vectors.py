"""Records results of PyTorch's layers and losses, with which Polygrad's are compared.

    python3 scripts/make_module_vectors.py

Writes conformance/data/modules, in f64, in the format of scripts/vector_set.py. `op` is the class, such as "nn.Linear",
`a` has the inputs of the call and `kw` the class's keyword arguments; for layers `kw` also has "state.<name>": the
state dict before the call, with random values, and "train": false in evaluation mode. The outputs are the layer's,
followed by its buffers after the call, in the order of their names. Every float input and parameter has a gradient.

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11. Any CPU build of PyTorch 2.13 runs it.
"""

import pathlib

import torch

from vector_set import VectorSet

OUT = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "modules"
LIMIT = 1_000_000


def r(*shape):
    return torch.randn(shape, dtype=torch.float64)


def i(low, high, *shape):
    return torch.randint(low, high, shape)


def layers():
    """(class, init, inputs, train) of every layer."""
    yield "Linear", {"in_features": 5, "out_features": 3}, [r(4, 5)]
    yield "Linear", {"in_features": 5, "out_features": 3, "bias": False}, [r(2, 4, 5)]
    yield "Linear", {"in_features": 5, "out_features": 3}, [r(5)]

    c1 = {"in_channels": 4, "out_channels": 6, "kernel_size": 3}
    yield "Conv1d", c1, [r(2, 4, 9)]
    yield "Conv1d", {**c1, "stride": 2, "padding": 1}, [r(2, 4, 9)]
    yield "Conv1d", {**c1, "padding": 2, "dilation": 2, "groups": 2}, [r(2, 4, 9)]
    yield "Conv1d", {**c1, "padding": "same", "bias": False}, [r(2, 4, 9)]
    c2 = {"in_channels": 4, "out_channels": 6, "kernel_size": 3}
    yield "Conv2d", c2, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "padding": 1}, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "stride": 2, "padding": 1}, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "stride": [2, 1], "padding": [0, 2]}, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "dilation": 2, "padding": 2}, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "groups": 2, "bias": False}, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "out_channels": 4, "groups": 4, "padding": 1}, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "kernel_size": [1, 4], "padding": "valid"}, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "padding": "same", "dilation": [1, 2]}, [r(2, 4, 6, 7)]
    yield "Conv2d", {**c2, "kernel_size": 1, "stride": 2}, [r(2, 4, 6, 7)]

    yield "MaxPool1d", {"kernel_size": 2}, [r(2, 3, 7)]
    yield "MaxPool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, [r(2, 3, 8)]
    yield "MaxPool1d", {"kernel_size": 2, "stride": 1, "dilation": 2}, [r(2, 3, 7)]
    yield "MaxPool2d", {"kernel_size": 2}, [r(2, 3, 6, 7)]
    yield "MaxPool2d", {"kernel_size": 2, "ceil_mode": True}, [r(2, 3, 5, 7)]
    yield "MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, [r(2, 3, 6, 7)]
    yield "MaxPool2d", {"kernel_size": [2, 3], "stride": [1, 2], "padding": [1, 0]}, [r(2, 3, 6, 7)]
    yield "MaxPool2d", {"kernel_size": 2, "stride": 2, "dilation": 2}, [r(2, 3, 6, 7)]
    # Equal values in a window: the first one in row-major order takes the gradient.
    yield "MaxPool2d", {"kernel_size": 2}, [i(0, 2, 2, 3, 6, 6).to(torch.float64)]
    yield "AvgPool1d", {"kernel_size": 2}, [r(2, 3, 7)]
    yield "AvgPool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, [r(2, 3, 8)]
    yield "AvgPool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}, [r(2, 3, 8)]
    yield "AvgPool2d", {"kernel_size": 2}, [r(2, 3, 6, 7)]
    yield "AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, [r(2, 3, 6, 7)]
    yield "AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}, [r(2, 3, 6, 7)]
    yield "AvgPool2d", {"kernel_size": [3, 2], "ceil_mode": True, "padding": 1}, [r(2, 3, 6, 7)]
    for count in (True, False):
        init = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": count}
        yield "AvgPool2d", init, [r(2, 3, 6, 6)]
    for size in (1, 2, 3, [3, 2], [4, 1], [None, 2], [8, 9]):
        yield "AdaptiveAvgPool2d", {"output_size": size}, [r(2, 3, 6, 7)]

    for train in (True, False):
        yield "BatchNorm1d", {"num_features": 3}, [r(5, 3)], train
        yield "BatchNorm1d", {"num_features": 3, "momentum": 0.3, "eps": 1e-3}, [r(4, 3, 5)], train
        yield "BatchNorm2d", {"num_features": 3}, [r(4, 3, 3, 2)], train
        yield "BatchNorm2d", {"num_features": 3, "momentum": None}, [r(4, 3, 3, 2)], train
        yield "BatchNorm2d", {"num_features": 3, "affine": False}, [r(4, 3, 3, 2)], train
        yield "BatchNorm2d", {"num_features": 3, "track_running_stats": False}, [r(4, 3, 3, 2)], train
    yield "LayerNorm", {"normalized_shape": 6}, [r(4, 6)]
    yield "LayerNorm", {"normalized_shape": [3, 4], "eps": 1e-3}, [r(2, 3, 4)]
    yield "LayerNorm", {"normalized_shape": [6], "elementwise_affine": False}, [r(2, 3, 6)]
    yield "LayerNorm", {"normalized_shape": [6], "bias": False}, [r(2, 3, 6)]
    yield "GroupNorm", {"num_groups": 2, "num_channels": 4}, [r(3, 4, 5)]
    yield "GroupNorm", {"num_groups": 4, "num_channels": 4, "eps": 1e-3}, [r(2, 4, 3, 2)]
    yield "GroupNorm", {"num_groups": 1, "num_channels": 4, "affine": False}, [r(2, 4)]
    for train in (True, False):
        tracked = {"num_features": 3, "track_running_stats": True}
        yield "InstanceNorm1d", {"num_features": 3}, [r(2, 3, 5)], train
        yield "InstanceNorm1d", {**tracked, "affine": True, "momentum": 0.3, "eps": 1e-3}, [r(2, 3, 5)], train
        yield "InstanceNorm2d", {"num_features": 3, "affine": True}, [r(2, 3, 4, 2)], train
        yield "InstanceNorm2d", tracked, [r(2, 3, 4, 2)], train
        yield "InstanceNorm2d", tracked, [r(3, 4, 2)], train
    yield "Embedding", {"num_embeddings": 7, "embedding_dim": 4}, [i(0, 7, 3, 5)]
    yield "Embedding", {"num_embeddings": 7, "embedding_dim": 4, "padding_idx": 2}, [i(0, 4, 3, 5)]
    yield "Embedding", {"num_embeddings": 7, "embedding_dim": 4, "padding_idx": -1}, [i(4, 7, 6)]

    x = r(4, 5) * 3
    yield "Flatten", {}, [r(2, 3, 4)]
    yield "Flatten", {"start_dim": 0, "end_dim": 1}, [r(2, 3, 4)]
    yield "Dropout", {"p": 0.5}, [x], False
    yield "Dropout", {"p": 0.0}, [x], True
    for name in ("ReLU", "SiLU", "Sigmoid", "Tanh", "GELU", "ELU", "LeakyReLU", "Softplus"):
        yield name, {}, [x]
    yield "GELU", {"approximate": "tanh"}, [x]
    yield "ELU", {"alpha": 0.6}, [x]
    yield "LeakyReLU", {"negative_slope": 0.2}, [x]
    yield "Softplus", {"beta": 2.0, "threshold": 3.0}, [x]
    for dim in (1, 0):
        yield "Softmax", {"dim": dim}, [x]
        yield "LogSoftmax", {"dim": dim}, [x]


def more_layers():
    """Layers that were added later."""
    yield "BatchNorm1d", {"num_features": 3, "bias": False}, [r(4, 3, 5)]
    yield "GroupNorm", {"num_groups": 2, "num_channels": 4, "bias": False}, [r(2, 4, 3)]
    yield "InstanceNorm1d", {"num_features": 3, "affine": True, "bias": False}, [r(2, 3, 5)]
    yield "RMSNorm", {"normalized_shape": 6}, [r(4, 6)]
    yield "RMSNorm", {"normalized_shape": [3, 4], "eps": 1e-3}, [r(2, 3, 4)]
    yield "RMSNorm", {"normalized_shape": [6], "elementwise_affine": False}, [r(2, 3, 6)]

    t1 = {"in_channels": 4, "out_channels": 6, "kernel_size": 3}
    yield "ConvTranspose1d", t1, [r(2, 4, 5)]
    yield "ConvTranspose1d", {**t1, "stride": 2, "padding": 1, "output_padding": 1, "bias": False}, [r(2, 4, 5)]
    yield "ConvTranspose1d", {**t1, "stride": 2, "dilation": 3, "output_padding": 2, "groups": 2}, [r(2, 4, 1)]
    t2 = {"in_channels": 4, "out_channels": 2, "kernel_size": 3}
    yield "ConvTranspose2d", t2, [r(2, 4, 3, 4)]
    yield "ConvTranspose2d", {**t2, "stride": 2, "padding": 1, "output_padding": 1}, [r(2, 4, 3, 4)]
    yield "ConvTranspose2d", {**t2, "kernel_size": [2, 3], "stride": [2, 1], "padding": [0, 1]}, [r(2, 4, 3, 4)]
    yield "ConvTranspose2d", {**t2, "groups": 2, "dilation": [1, 2], "bias": False}, [r(1, 4, 3, 3)]
    yield "ConvTranspose2d", {**t2, "out_channels": 4, "groups": 4, "kernel_size": 2, "stride": 2}, [r(2, 4, 2, 3)]

    yield "Upsample", {"scale_factor": 2}, [r(2, 3, 4)]
    yield "Upsample", {"size": 7}, [r(2, 3, 4)]
    yield "Upsample", {"size": (5, 3)}, [r(2, 2, 3, 4)]
    yield "Upsample", {"size": 5, "mode": "nearest-exact"}, [r(2, 2, 3, 4)]
    yield "Upsample", {"scale_factor": 2.5, "mode": "linear"}, [r(2, 3, 4)]
    for align in (False, True):
        yield "Upsample", {"scale_factor": 2, "mode": "bilinear", "align_corners": align}, [r(2, 2, 3, 4)]
        yield "Upsample", {"scale_factor": 1.7, "mode": "bicubic", "align_corners": align}, [r(1, 2, 4, 5)]
    scales = {"scale_factor": (1.5, 2.6), "mode": "bilinear"}
    for recompute in (False, True):
        yield "Upsample", {**scales, "recompute_scale_factor": recompute}, [r(1, 2, 3, 4)]
    yield "Upsample", {"scale_factor": 2, "mode": "trilinear"}, [r(1, 2, 2, 3, 2)]
    yield "Upsample", {"size": (2, 3), "mode": "area"}, [r(1, 2, 5, 4)]

    yield "PixelShuffle", {"upscale_factor": 2}, [r(2, 8, 2, 3)]
    yield "PixelShuffle", {"upscale_factor": 3}, [r(9, 2, 1)]
    yield "PixelShuffle", {"upscale_factor": 2}, [r(2, 1, 4, 1, 2)]
    yield "PixelUnshuffle", {"downscale_factor": 2}, [r(2, 2, 4, 6)]
    yield "PixelUnshuffle", {"downscale_factor": 3}, [r(1, 3, 6)]


def latest_layers():
    """Layers that were added last: three spatial axes, padding modes, inputs without a batch, positions."""
    c3 = {"in_channels": 2, "out_channels": 4, "kernel_size": 2}
    yield "Conv3d", c3, [r(2, 2, 3, 4, 3)]
    yield "Conv3d", {**c3, "kernel_size": [3, 2, 1], "stride": [2, 1, 3], "padding": [1, 0, 2]}, [r(1, 2, 4, 3, 4)]
    yield "Conv3d", {**c3, "kernel_size": 3, "padding": 1, "groups": 2, "bias": False}, [r(1, 2, 3, 3, 4)]
    yield "Conv3d", {**c3, "dilation": [1, 2, 2], "padding": "same"}, [r(1, 2, 3, 4, 3)]
    yield "Conv3d", c3, [r(2, 3, 4, 3)]
    t3 = {"in_channels": 4, "out_channels": 2, "kernel_size": 2}
    yield "ConvTranspose3d", t3, [r(2, 4, 2, 3, 2)]
    yield "ConvTranspose3d", {**t3, "kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1}, [r(1, 4, 2, 1, 2)]
    several = {**t3, "groups": 2, "stride": [1, 2, 3], "dilation": [2, 1, 1], "output_padding": [1, 0, 2], "bias": False}
    yield "ConvTranspose3d", several, [r(1, 4, 2, 3, 2)]
    yield "ConvTranspose3d", t3, [r(4, 2, 3, 2)]
    for train in (True, False):
        tracked = {"num_features": 3, "track_running_stats": True}
        yield "BatchNorm3d", {"num_features": 3}, [r(2, 3, 2, 3, 2)], train
        yield "BatchNorm3d", {"num_features": 3, "momentum": 0.3, "eps": 1e-3}, [r(1, 3, 2, 3, 2)], train
        yield "InstanceNorm3d", {"num_features": 3, "affine": True}, [r(2, 3, 2, 3, 2)], train
        yield "InstanceNorm3d", tracked, [r(2, 3, 2, 1, 2)], train
        yield "InstanceNorm3d", tracked, [r(3, 2, 3, 2)], train
    pool = {"kernel_size": [2, 3, 2], "stride": [1, 2, 2], "padding": [1, 1, 0], "ceil_mode": True}
    yield "MaxPool3d", {"kernel_size": 2}, [r(2, 2, 4, 3, 5)]
    yield "MaxPool3d", {**pool, "dilation": [2, 1, 1]}, [r(1, 2, 4, 3, 5)]
    yield "MaxPool3d", {"kernel_size": 2, "return_indices": True}, [r(2, 4, 3, 5)]
    yield "AvgPool3d", {"kernel_size": 2}, [r(2, 2, 4, 3, 5)]
    for count in (True, False):
        yield "AvgPool3d", {**pool, "count_include_pad": count}, [r(1, 2, 4, 3, 5)]
    yield "AvgPool3d", {**pool, "divisor_override": 5}, [r(2, 4, 3, 5)]
    for size in (2, [1, None, 3], [5, 2, 4]):
        for name in ("AdaptiveAvgPool3d", "AdaptiveMaxPool3d"):
            yield name, {"output_size": size}, [r(2, 2, 4, 3, 5)]
    yield "Upsample", {"scale_factor": 2}, [r(1, 2, 2, 3, 2)]
    yield "Upsample", {"size": (3, 2, 4), "mode": "trilinear", "align_corners": True}, [r(1, 2, 2, 3, 2)]

    for mode in ("reflect", "replicate", "circular"):
        padded = {"in_channels": 2, "out_channels": 2, "kernel_size": 3, "padding_mode": mode}
        yield "Conv1d", {**padded, "padding": 2}, [r(2, 2, 5)]
        yield "Conv1d", {**padded, "kernel_size": 4, "padding": "same"}, [r(2, 5)]
        yield "Conv2d", {**padded, "padding": [1, 2], "stride": [1, 2]}, [r(2, 2, 3, 4)]
        yield "Conv2d", {**padded, "kernel_size": [2, 3], "padding": "same", "dilation": [1, 2]}, [r(1, 2, 4, 5)]
        yield "Conv2d", {**padded, "padding": 0}, [r(1, 2, 4, 3)]
        yield "Conv3d", {**padded, "kernel_size": 2, "padding": [1, 0, 1]}, [r(1, 2, 2, 3, 2)]

    one = {"in_channels": 2, "out_channels": 3, "kernel_size": 2}
    yield "Conv1d", one, [r(2, 5)]
    yield "Conv2d", {**one, "padding": 1}, [r(2, 3, 4)]
    yield "ConvTranspose1d", one, [r(2, 5)]
    yield "ConvTranspose2d", {**one, "stride": 2, "bias": False}, [r(2, 3, 4)]
    yield "InstanceNorm1d", {"num_features": 3, "affine": True}, [r(3, 5)]
    for name, shape in (("1d", (2, 7)), ("2d", (2, 5, 7))):
        yield f"MaxPool{name}", {"kernel_size": 2}, [r(*shape)]
        yield f"MaxPool{name}", {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True}, [r(*shape)]
        yield f"AvgPool{name}", {"kernel_size": 2}, [r(*shape)]
        yield f"AdaptiveAvgPool{name}", {"output_size": 3}, [r(*shape)]
        for size in (1, 3, 7, 9):
            yield f"AdaptiveMaxPool{name}", {"output_size": size, "return_indices": True}, [r(*shape)]
        # Equal values: the first one takes the gradient.
        yield f"AdaptiveMaxPool{name}", {"output_size": 4}, [i(0, 2, 2, *shape).to(torch.float64)]
    yield "MaxPool2d", {"kernel_size": 2, "return_indices": True}, [r(2, 2, 4, 5)]
    yield "AvgPool2d", {"kernel_size": 3, "padding": 1, "ceil_mode": True, "divisor_override": 2}, [r(1, 2, 4, 5)]
    yield "AdaptiveMaxPool2d", {"output_size": [None, 2], "return_indices": True}, [r(2, 2, 4, 5)]
    yield "AdaptiveMaxPool2d", {"output_size": [2, 5], "return_indices": True}, [r(2, 2, 4, 5)]
    yield "AdaptiveMaxPool3d", {"output_size": [3, 2, 2], "return_indices": True}, [r(2, 4, 3, 5)]


def bags():
    """(init, index, offsets, with per_sample_weights) of EmbeddingBag."""
    sizes = {"num_embeddings": 7, "embedding_dim": 4}
    for mode in ("sum", "mean", "max"):
        init = {**sizes, "mode": mode}
        yield init, i(0, 7, 3, 4), None, False
        yield init, i(0, 7, 8), [0, 3, 3, 5], False
        yield init, i(0, 7, 6), [0, 0, 6], False
        yield {**init, "padding_idx": 2}, torch.tensor([[2, 2, 2], [2, 1, 6], [0, 3, 3]]), None, False
        yield {**init, "padding_idx": -1}, torch.tensor([6, 1, 1, 6, 6, 4]), [0, 2, 3, 5], False
        yield {**init, "include_last_offset": True}, i(0, 7, 5), [0, 1, 4, 5], False
    yield {**sizes, "mode": "sum"}, i(0, 7, 3, 4), None, True
    yield {**sizes, "mode": "sum", "padding_idx": 1}, i(0, 4, 8), [0, 3, 3, 5], True
    yield {**sizes, "mode": "sum", "include_last_offset": True}, i(0, 7, 5), [0, 1, 5], True
    yield {**sizes, "mode": "max"}, i(0, 3, 0), [0, 0], False


def activations():
    """Activation functions that were added later: at random numbers, at their kinks and at large numbers."""
    x = r(4, 6) * 3
    edges = torch.tensor([-1e9, -800.0, -30.0, -3.0, -1.0, -0.0, 0.0, 1.0, 3.0, 6.0, 30.0, 800.0, 1e9], dtype=torch.float64)
    for name in ("Mish", "ReLU6", "Hardsigmoid", "Hardswish", "SELU", "CELU", "LogSigmoid", "Softsign", "Hardtanh"):
        yield name, {}, [x]
        yield name, {}, [edges]
    yield "CELU", {"alpha": 0.5}, [x]
    yield "Hardtanh", {"min_val": -2.0, "max_val": 3.0}, [x]
    for n, shape in ((1, (4, 6)), (6, (4, 6)), (3, (2, 3, 2, 2)), (1, (5,)), (1, ())):
        yield "PReLU", {"num_parameters": n}, [r(*shape)]
    yield "PReLU", {"init": 0.1}, [edges]
    yield "GLU", {}, [x]
    yield "GLU", {"dim": 0}, [x]


def losses():
    """(class, init, inputs) of every loss; the inputs end with the target."""
    for reduction in ("mean", "sum", "none"):
        how = {"reduction": reduction}
        yield "MSELoss", how, [r(4, 3), r(4, 3)]
        yield "L1Loss", how, [r(4, 3), r(4, 3)]
        yield "HuberLoss", how, [r(4, 3) * 2, r(4, 3)]
        yield "SmoothL1Loss", how, [r(4, 3) * 2, r(4, 3)]
        yield "BCELoss", how, [torch.rand(4, 3, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64)]
        for log_target in (False, True):
            target = torch.log_softmax(r(4, 3), 1) if log_target else torch.softmax(r(4, 3), 1)
            yield "KLDivLoss", {**how, "log_target": log_target}, [torch.log_softmax(r(4, 3), 1), target]
        yield "BCEWithLogitsLoss", how, [r(4, 3) * 3, torch.rand(4, 3, dtype=torch.float64)]
        yield "CrossEntropyLoss", how, [r(5, 4), i(0, 4, 5)]
        yield "CrossEntropyLoss", {**how, "label_smoothing": 0.1}, [r(5, 4), i(0, 4, 5)]
        yield "CrossEntropyLoss", {**how, "ignore_index": 1}, [r(6, 4), torch.tensor([0, 1, 3, 1, 2, 0])]
        yield "CrossEntropyLoss", {**how, "weight": torch.rand(4, dtype=torch.float64)}, [r(5, 4), i(0, 4, 5)]
        yield (
            "CrossEntropyLoss",
            {**how, "weight": torch.rand(4, dtype=torch.float64), "label_smoothing": 0.2, "ignore_index": 1},
            [r(6, 4), torch.tensor([0, 1, 3, 1, 2, 0])],
        )
        yield "CrossEntropyLoss", how, [r(5, 4), torch.softmax(r(5, 4), 1)]
        yield (
            "CrossEntropyLoss",
            {**how, "label_smoothing": 0.1, "weight": torch.rand(4, dtype=torch.float64)},
            [r(5, 4), torch.softmax(r(5, 4), 1)],
        )
        yield "CrossEntropyLoss", how, [r(2, 4, 3, 2), i(0, 4, 2, 3, 2)]
        yield "NLLLoss", how, [torch.log_softmax(r(5, 4), 1), i(0, 4, 5)]
        weight = torch.rand(4, dtype=torch.float64)
        yield (
            "NLLLoss",
            {**how, "weight": weight, "ignore_index": 1},
            [torch.log_softmax(r(6, 4), 1), torch.tensor([0, 1, 3, 1, 2, 0])],
        )
        yield "NLLLoss", how, [torch.log_softmax(r(2, 4, 3), 1), i(0, 4, 2, 3)]
    yield "CrossEntropyLoss", {}, [r(4), torch.tensor(2)]
    yield "HuberLoss", {"delta": 0.4}, [r(4, 3), r(4, 3)]
    yield "SmoothL1Loss", {"beta": 0.3}, [r(4, 3), r(4, 3)]
    yield "SmoothL1Loss", {"beta": 0.0}, [r(4, 3), r(4, 3)]
    yield "KLDivLoss", {"reduction": "batchmean"}, [torch.log_softmax(r(4, 3), 1), torch.softmax(r(4, 3), 1)]
    extreme = torch.tensor([[0.0], [1.0], [1e-300], [0.5]], dtype=torch.float64)
    weight = torch.rand(4, 1, dtype=torch.float64)
    yield "BCELoss", {"weight": weight}, [extreme, torch.tensor([[0.0], [0.0], [1.0], [1.0]], dtype=torch.float64)]
    y = torch.rand(4, 3, dtype=torch.float64)
    yield "BCEWithLogitsLoss", {"weight": torch.rand(3, dtype=torch.float64)}, [r(4, 3), y]
    yield "BCEWithLogitsLoss", {"pos_weight": torch.rand(3, dtype=torch.float64) * 4}, [r(4, 3), y]
    yield (
        "BCEWithLogitsLoss",
        {"weight": torch.rand(4, 1, dtype=torch.float64), "pos_weight": torch.rand(3, dtype=torch.float64) * 4},
        [r(4, 3) * 30, y],
    )


def more_losses():
    """Losses that were added later."""

    def signs(*shape):
        return (i(0, 2, *shape) * 2 - 1).to(torch.float64)

    def lengths(*values):
        return torch.tensor(values)

    for reduction in ("mean", "sum", "none"):
        how = {"reduction": reduction}
        yield "TripletMarginLoss", how, [r(4, 3), r(4, 3), r(4, 3)]
        yield "TripletMarginLoss", {**how, "p": 1.5, "margin": 0.7, "eps": 1e-3, "swap": True}, [r(2, 4, 3), r(2, 4, 3), r(2, 4, 3)]
        yield "CosineEmbeddingLoss", how, [r(6, 3), r(6, 3), signs(6)]
        yield "CosineEmbeddingLoss", {**how, "margin": 0.3}, [r(6, 3), r(6, 3), signs(6)]
        yield "MarginRankingLoss", {**how, "margin": 0.4}, [r(6), r(6), signs(6)]
        yield "HingeEmbeddingLoss", how, [r(4, 3), signs(4, 3)]
        yield "SoftMarginLoss", how, [r(4, 3) * 5, signs(4, 3).long()]
        yield "MultiMarginLoss", how, [r(4, 5), i(0, 5, 4)]
        weight = torch.rand(5, dtype=torch.float64)
        yield "MultiMarginLoss", {**how, "p": 2, "margin": 0.6, "weight": weight}, [r(4, 5), i(0, 5, 4)]
        yield "MultiLabelMarginLoss", how, [r(3, 4), torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [1, 1, 2, 0]])]
        yield "MultiLabelSoftMarginLoss", {**how, "weight": torch.rand(3, dtype=torch.float64)}, [r(4, 3) * 3, i(0, 2, 4, 3).double()]
        yield "PoissonNLLLoss", {**how, "full": True}, [r(4, 3), i(1, 6, 4, 3).double()]
        yield "PoissonNLLLoss", {**how, "log_input": False, "eps": 1e-3}, [torch.rand(4, 3, dtype=torch.float64) * 4, i(0, 6, 4, 3).double()]
        yield "GaussianNLLLoss", {**how, "full": True}, [r(4, 3), r(4, 3), torch.rand(4, 3, dtype=torch.float64)]
        yield "GaussianNLLLoss", {**how, "eps": 0.5}, [r(4, 3), r(4, 3), torch.rand(4, 1, dtype=torch.float64)]
        labels = torch.tensor([[1, 1, 2], [3, 0, 0], [2, 3, 2]])
        yield "CTCLoss", how, [r(7, 3, 4) * 2, labels, lengths(7, 5, 6), lengths(3, 1, 2)]
        # No labels in no steps, labels that fit no alignment, and labels that fit exactly one.
        labels = torch.tensor([[9, 9, 9], [0, 0, 1], [0, 0, 9], [1, 0, 1]])
        init = {**how, "blank": 2, "zero_infinity": True}
        yield "CTCLoss", init, [r(4, 4, 3), labels, lengths(0, 4, 3, 3), lengths(0, 3, 2, 3)]
    yield "MarginRankingLoss", {}, [r(4, 2), r(4, 2), signs(4, 2)]
    yield "SoftMarginLoss", {}, [torch.tensor([-700.0, -30.0, 0.0, 30.0, 700.0], dtype=torch.float64), signs(5).long()]
    yield "MultiMarginLoss", {}, [r(5), torch.tensor(3)]
    yield "MultiLabelMarginLoss", {}, [r(4), torch.tensor([2, -1, 0, 1])]
    yield "MultiLabelSoftMarginLoss", {}, [r(3) * 300, i(0, 2, 3).double()]
    yield "CosineEmbeddingLoss", {"margin": -0.2}, [r(3), r(3), torch.tensor(-1.0, dtype=torch.float64)]
    yield "GaussianNLLLoss", {"eps": 1e-6}, [r(2, 3), r(2, 3), torch.tensor([0.0, 2.0], dtype=torch.float64)]


def randomize(module):
    """Random values for all parameters and buffers, since fresh ones are often zeros and ones."""
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if name == "running_var":
                value.uniform_(0.5, 2.0)
            elif name == "num_batches_tracked":
                value.fill_(3)
            else:
                value.normal_()


def leaves_of(x):
    """A copy of an input that requires gradients."""
    if isinstance(x, (list, tuple)):
        return tuple(leaves_of(value) for value in x)
    return x.clone().requires_grad_(x.is_floating_point())


def add_case(vectors, index, name, init, inputs, train=True):
    module = getattr(torch.nn, name)(**init).to(torch.float64)
    if not any(isinstance(value, torch.Tensor) for value in init.values()):
        randomize(module)
    # PyTorch's gradient of this loss is only right after a log softmax, so the recorded input is that of a log softmax
    # before it.
    run = (lambda x, *others: module(x.log_softmax(-1), *others)) if name == "CTCLoss" else None
    add_module(vectors, f"nn.{name}/{index}", name, init, module, inputs, train, run)


def add_module(vectors, k, name, init, module, inputs, train=True, run=None, extra=None, op=None):
    """Adds a case of this module on these inputs. `run` is called like the module, `extra` has arguments that the
    module lacks,  and `op` is the case's op if it is not in torch.nn."""
    kw = {key: vectors.encode(value, f"{k}/k.{key}") for key, value in {**init, **(extra or {})}.items()}
    module.train(train)
    fixed = {key for key, value in init.items() if isinstance(value, torch.Tensor)}
    if not train:
        kw["train"] = False
    for key, value in module.state_dict().items():
        if key not in fixed:
            kw[f"state.{key}"] = vectors.encode(value, f"{k}/k.state.{key}")
    inputs = [leaves_of(x) for x in inputs]
    args = [vectors.encode(x, f"{k}/a.{n}") for n, x in enumerate(inputs)]
    wanted = [leaf for n, x in enumerate(inputs) for leaf in vectors.leaves(x, f"{k}/a.{n}")]
    wanted += [(f"{k}/k.state.{key}", p) for key, p in module.named_parameters()]
    outputs = [value for _, value in vectors.leaves((run or module)(*inputs), k)]
    state = module.state_dict()
    buffers = [value for key, value in sorted(module.named_buffers()) if key in state and key not in fixed]
    n = vectors.outputs(k, [*outputs, *buffers], wanted)
    vectors.cases.append({"k": k, "op": op or f"nn.{name}", "var": "", "a": args, "kw": kw, "n": n})


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vectors = VectorSet()
    count = {}
    # The inputs of the first cases are drawn before any case runs. The later cases are drawn afterwards, so that the
    # first ones do not change.
    for cases in ([*layers(), *losses()], more_layers(), latest_layers(), activations(), more_losses()):
        for name, *rest in cases:
            count[name] = count.get(name, 0) + 1
            add_case(vectors, count[name] - 1, name, *rest)
    for index, (init, x, offsets, weighted) in enumerate(bags()):
        name, module = "EmbeddingBag", torch.nn.EmbeddingBag(**init).to(torch.float64)
        randomize(module)
        starts = None if offsets is None else torch.tensor(offsets)
        run = lambda x, w=None: module(x, starts, w)
        inputs = [x, r(*x.shape)] if weighted else [x]
        extra = {} if offsets is None else {"offsets": offsets}
        add_module(vectors, f"nn.{name}/{index}", name, init, module, inputs, True, run, extra)
        count[name] = index + 1
    vectors.save(OUT, LIMIT)
    print(", ".join(f"{name} {n}" for name, n in count.items()))


if __name__ == "__main__":
    main()
