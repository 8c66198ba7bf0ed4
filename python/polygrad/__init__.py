"""Polygrad: models and policies that were written and trained in Rust, from Python.

- :class:`Tensor` and :func:`from_dlpack`: tensors that share their memory with NumPy, PyTorch and JAX.
- :class:`Model`: a model of sizes, of an ONNX file, of a run or of the Hub, which learns and answers.
- :mod:`polygrad.rl`: policies that learn in Gymnasium's vector environments.
- :mod:`polygrad.envs`: environments in Rust, for Gymnasium.
- :mod:`polygrad.communicator`: processes that train together.
"""

import sys

from ._errors import ArgumentError, Error
from ._model import History, Model, Quantized
from ._polygrad import Server, Tensor, from_dlpack, merge
from . import communicator, rl

# Whoever has Gymnasium gets our environments there, and whoever has not does not wait for it.
if "gymnasium" in sys.modules:
    from . import envs as envs

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
