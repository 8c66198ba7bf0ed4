"""Processes that train together: those that ``mpirun`` starts, of Open MPI, MPICH or what mpi4py runs on."""

from __future__ import annotations

from ._polygrad import Communicator
from ._polygrad import join as _join

__all__ = ["Communicator", "mpi"]


def mpi(timeout: float | None = None) -> Communicator:
    """Joins the processes of ``mpirun -n 2 python train.py``, for ``Model.fit(communicator=…)``.

    The MPI library is the launcher's, and is looked for when this is called, once in a process. mpi4py may have started
    MPI before.

    Args:
        timeout: Seconds after which a process that does not answer counts as lost. Default: 300.

    Raises:
        polygrad.Error: There is no MPI, or another one than the launcher's.
    """
    return _join("mpi" if timeout is None else f"mpi:timeout={timeout}")
