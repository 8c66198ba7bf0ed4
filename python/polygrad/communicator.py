"""Processes that train together, started by ``mpirun`` of Open MPI, MPICH or another MPI that mpi4py supports."""

from __future__ import annotations

from ._polygrad import Communicator
from ._polygrad import join as _join

__all__ = ["Communicator", "mpi"]


def mpi(timeout: float | None = None) -> Communicator:
    """Joins the processes of ``mpirun -n 2 python train.py``, for ``Model.fit(communicator=…)``.

    The first call in a process searches the launcher's MPI library. mpi4py may have initialized MPI before.

    Args:
        timeout: Seconds after which a process that does not answer counts as lost. Default: 300.

    Raises:
        polygrad.Error: If there is no MPI, or it is not the launcher's.
    """
    return _join("mpi" if timeout is None else f"mpi:timeout={timeout}")
