"""Polygrad: models and policies, implemented and trained in Rust, for Python.

- :class:`Tensor` and :func:`from_dlpack`: tensors that share their memory with NumPy, PyTorch and JAX.
- :class:`Model`: a new model, or one from an ONNX file, a run or the Hub, for training and inference.
- :mod:`polygrad.rl`: policies that learn in Gymnasium's vector environments.
- :mod:`polygrad.envs`: environments in Rust, for Gymnasium.
- :mod:`polygrad.communicator`: processes that train together.
"""

from ._errors import ArgumentError, Error
from ._model import History, Model, Quantized
from ._polygrad import Server, Tensor, from_dlpack, merge
from ._register import register as _register
from . import communicator, rl

_register()

__all__ = [
    "ArgumentError",
    "Error",
    "History",
    "Model",
    "Quantized",
    "Server",
    "Tensor",
    "communicator",
    "from_dlpack",
    "merge",
    "rl",
]
