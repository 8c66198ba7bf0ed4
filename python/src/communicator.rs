//! Processes that train together.

use std::sync::Arc;

use polygrad::communicator::Communicator as Group;
use pyo3::prelude::*;

use crate::errors::raised;

/// This process's handle of a group that a launcher has started, for `fit(communicator=…)`.
#[pyclass(module = "polygrad.communicator", frozen)]
pub(crate) struct Communicator(pub(crate) Arc<dyn Group>);

#[pymethods]
impl Communicator {
    /// The number of this process, counted from 0.
    #[getter]
    fn rank(&self) -> usize {
        self.0.rank()
    }

    /// The number of processes.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    /// Waits until all processes have called this.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.barrier()).map_err(raised)
    }

    fn __repr__(&self) -> String {
        format!(
            "polygrad.communicator.Communicator(rank {} of {})",
            self.rank(),
            self.size()
        )
    }
}

/// Joins the processes that a launcher has started.
#[pyfunction]
#[pyo3(signature = (engine, /))]
pub(crate) fn join(py: Python<'_>, engine: &str) -> PyResult<Communicator> {
    let joined = py.detach(|| polygrad::communicator::open(engine));
    joined.map(Communicator).map_err(raised)
}
