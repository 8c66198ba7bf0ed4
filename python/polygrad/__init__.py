"""Polygrad: models and policies that were written and trained in Rust, from Python.

- :class:`Tensor` and :func:`from_dlpack`: tensors that share their memory with NumPy, PyTorch and JAX.
- :class:`Model`: a model of sizes, of an ONNX file or of a run, which learns and answers.
- :mod:`polygrad.rl`: policies that learn in Gymnasium's vector environments.
"""

from ._errors import ArgumentError, Error
from ._model import History, Model
from ._polygrad import Tensor, from_dlpack
from . import rl

__all__ = ["ArgumentError", "Error", "History", "Model", "Tensor", "from_dlpack", "rl"]
