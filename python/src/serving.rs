//! Serves models in a thread of this process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use polygrad::serve::{Model as Service, Pool, Repository, Server as Answering, ServerOptions, Settings};
use polygrad::{Error, ErrorKind, Result};
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::errors::raised;

/// A model that is served over HTTP and gRPC until `stop`, or the end of a `with` block.
#[pyclass(module = "polygrad", frozen)]
pub(crate) struct Server {
    address: SocketAddr,
    name: String,
    running: Mutex<Option<Running>>,
}

struct Running {
    shutdown: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

fn unserved(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("the model cannot be served: {what}"))
}

impl Server {
    pub(crate) fn start(model: Arc<dyn Service>, name: &str, host: &str, port: u16, threads: usize) -> Result<Self> {
        let address = host.parse().map_err(|_| {
            Error::invalid(format!("{host:?} is no IP address"))
                .with_hint("give one of this machine, such as 127.0.0.1")
        })?;
        let repository = Repository::new(Pool::new(threads)?);
        repository.add(name, 1, move || Ok(Arc::clone(&model)), Settings::default())?;
        repository.load(name).map_err(|failure| unserved(failure.message))?;
        let server = Answering::new(repository, ServerOptions::default());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build();
        let runtime = runtime.map_err(unserved)?;
        let address = SocketAddr::new(address, port);
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address));
        let listener = listener.map_err(|error| {
            unserved(format!("{address}: {error}")).with_hint("choose another port, or 0 for one that is free")
        })?;
        let address = listener.local_addr().map_err(unserved)?;
        let (shutdown, told) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("polygrad-serve".to_owned())
            .spawn(move || {
                // Dropping the sender ends it, too.
                runtime.block_on(server.serve(listener, async { drop(told.await) }));
                runtime.shutdown_background();
            });
        let thread = thread.map_err(unserved)?;
        Ok(Self {
            address,
            name: name.to_owned(),
            running: Mutex::new(Some(Running { shutdown, thread })),
        })
    }

    fn end(&self) -> Result<()> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { shutdown, thread }) = running else {
            return Ok(());
        };
        // If the server has ended by itself, its thread reports the reason.
        let _ = shutdown.send(());
        thread
            .join()
            .map_err(|_| Error::new(ErrorKind::Io, "the server has panicked"))
    }
}

#[pymethods]
impl Server {
    /// The address: `http://127.0.0.1:8000`.
    #[getter]
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The model's name in requests.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Accepts no more requests, answers those already accepted, and ends. A second call does nothing.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.end()).map_err(raised)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.stop(py)
    }

    fn __repr__(&self) -> String {
        let is_running = self.running.lock().is_ok_and(|running| running.is_some());
        let state = if is_running { "answers" } else { "was stopped" };
        format!("polygrad.Server({} at {}, {state})", self.name, self.url())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error can no longer be reported.
        let _ = Python::try_attach(|py| py.detach(|| self.end()));
    }
}
