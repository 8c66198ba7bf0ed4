"""Polygrad: models and policies that were written and trained in Rust, from Python.

- :class:`Tensor` and :func:`from_dlpack`: tensors that share their memory with NumPy, PyTorch and JAX.
- :class:`Model`: a model of an ONNX file or of a run, which answers.
- :mod:`polygrad.rl`: policies that learn in Gymnasium's vector environments.
"""

from ._errors import ArgumentError, Error
from ._polygrad import Model, Tensor, from_dlpack
from . import rl

__all__ = ["ArgumentError", "Error", "Model", "Tensor", "from_dlpack", "rl"]
