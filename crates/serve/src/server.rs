//! A server: models, options, and the addresses under which they answer.

use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use crate::Repository;

/// How a server treats requests, whatever model they are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// What the server calls itself.
    pub name: String,
    /// The longest body of a request, in bytes, compressed and not.
    pub max_body_bytes: usize,
    /// Whether requests may load and unload models.
    pub control: bool,
    /// Whether there is a page at `/` to try models; a program that puts the router into its own may have one there.
    pub page: bool,
}

impl Default for ServerOptions {
    /// Bodies of 64 MiB, no control of models, and the page.
    fn default() -> Self {
        Self {
            name: "polygrad".to_owned(),
            max_body_bytes: 64 << 20,
            control: false,
            page: true,
        }
    }
}

/// Answers requests for the models of a repository. Clones are handles to the same one.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

/// What every request sees.
pub(crate) struct Shared {
    pub(crate) repository: Repository,
    pub(crate) options: ServerOptions,
}

impl Server {
    /// Serves the models of a repository.
    pub fn new(repository: Repository, options: ServerOptions) -> Self {
        Self(Arc::new(Shared { repository, options }))
    }

    /// The Open Inference Protocol over HTTP and gRPC, to be part of a program's own router.
    pub fn router(&self) -> Router {
        crate::http::routes(&self.0).merge(crate::grpc::routes(&self.0))
    }

    /// Answers whoever connects until `shutdown` is over, and then requests that were accepted.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send + 'static) -> usize {
        // It ends without an error.
        let _ = axum::serve(listener, self.router())
            .with_graceful_shutdown(shutdown)
            .await;
        0
    }
}
