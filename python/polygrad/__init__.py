"""Polygrad: models and policies that were written and trained in Rust, from Python.

- :class:`Tensor` and :func:`from_dlpack`: tensors that share their memory with NumPy, PyTorch and JAX.
- :class:`Model`: a model of sizes, of an ONNX file, of a run or of the Hub, which learns and answers.
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
