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
//! The library is loaded at run time, so that one program runs under each of these: Open MPI 4 and 5 (`libmpi.so.40`),
//! and every MPI with the standard binary interface of MPI 5 (`libmpi_abi.so.1`; MPICH 5 has it).
//! `POLYGRAD_MPI_LIBRARY` names another file. It must be the library of the MPI whose `mpirun` starts the processes.
//!
//! Under `mpirun --with-ft ulfm` of Open MPI 5 the remaining ranks can continue with [`Communicator::shrink`] after one
//! has died; any other MPI stops all of them. The last handle finalizes MPI when it is dropped: drop it before the
//! process exits, since `mpirun` otherwise treats that as a failure.
//!
//! Every value is copied through the engine's own memory, since MPI may still write to it after a call's time limit.
//! Only host memory is supported.

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
