//! MPI as an engine of [`Communicator`]: processes that `mpirun` started compute together.
//!
//! ```no_run
//! use polygrad_core::communicator::{Communicator, DEFAULT_TIMEOUT, HostSliceMut, Reduction};
//! use polygrad_mpi::Mpi;
//!
//! # fn main() -> polygrad_core::Result<()> {
//! let comm = Mpi::init(DEFAULT_TIMEOUT)?;
//! let mut values = [comm.rank() as f32; 3];
//! comm.all_reduce(HostSliceMut::new(&mut values), Reduction::Sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! The library is loaded when it is asked for, so that one program runs under each of these: Open MPI 4 and 5
//! (`libmpi.so.40`), and every MPI with the standard binary interface of MPI 5 (`libmpi_abi.so.1`; MPICH 5 has it).
//! `POLYGRAD_MPI_LIBRARY` names another file. It has to be the library of the MPI whose `mpirun` starts the processes.
//!
//! Under `mpirun --with-ft ulfm` of Open MPI 5 the ranks that are left after one has died go on with
//! [`Communicator::shrink`]; any other MPI stops all of them. The last handle ends MPI when it is dropped: drop it
//! before the process exits, or `mpirun` takes that for a failure.
//!
//! Every value passes through memory of the engine's own, since MPI may write to it after the time limit of a
//! call; host memory only.

mod ffi;
mod find;
mod group;
mod notes;
mod session;
mod waiting;
mod wire;

#[cfg(doc)]
use polygrad_core::communicator::Communicator;

pub use group::Mpi;
