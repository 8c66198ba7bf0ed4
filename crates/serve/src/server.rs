//! The server: models, options, and the addresses.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, Uri};
use axum::routing::get;
use tokio::sync::watch;
use tower_layer::Layer;

use crate::direct::Direct;
use crate::front::{Front, FrontLayer};
use crate::listen::{Limits, Traffic};
use crate::unread::Unread;
use crate::{Repository, Tokens};

/// Options of a server that apply to all models.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The server's name in its metadata.
    pub name: String,
    /// The longest body of a request, in bytes, both compressed and uncompressed.
    pub max_body_bytes: usize,
    /// Whether requests may load and unload models.
    pub control: bool,
    /// Whether `/` has a page for trying models. A program that includes the router may have its own page there.
    pub page: bool,
    /// The limits of [`Server::serve`] on connections.
    pub limits: Limits,
    /// Tokens, of which each request except health checks must have one; `None` if no token is needed.
    pub tokens: Option<Tokens>,
    /// Names of the server beside its IP addresses and `localhost`. If there are neither tokens nor TLS, which would
    /// show that a request is meant for this server, other names in the header `Host` are rejected, since any page may
    /// make its own name resolve to this machine. `*` is any name.
    pub allowed_hosts: Vec<String>,
    /// Makes [`Server::serve`] use TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<crate::Tls>,
}

impl Default for ServerOptions {
    /// Bodies of 64 MiB, no control of models, the page, the default limits, no tokens, no names, and no TLS.
    fn default() -> Self {
        Self {
            name: "polygrad".to_owned(),
            max_body_bytes: 64 << 20,
            control: false,
            page: true,
            limits: Limits::default(),
            tokens: None,
            allowed_hosts: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl ServerOptions {
    pub(crate) fn has_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }
}

/// The supported extensions of the protocol.
pub(crate) const EXTENSIONS: [&str; 7] = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "sequence",
    "statistics",
];

/// Answers requests for the models of a repository. Clones are handles to the same one.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Shared>);

/// The state shared by all requests.
pub(crate) struct Shared {
    pub(crate) repository: Repository,
    pub(crate) options: ServerOptions,
    pub(crate) traffic: Traffic,
    pub(crate) unread: Unread,
    /// Whether the server is shutting down.
    draining: watch::Sender<bool>,
}

impl Server {
    /// Serves the models of a repository.
    pub fn new(repository: Repository, options: ServerOptions) -> Self {
        Self(Arc::new(Shared {
            repository,
            options,
            traffic: Traffic::default(),
            unread: Unread::default(),
            draining: watch::Sender::default(),
        }))
    }

    /// The Open Inference Protocol over HTTP and gRPC, and the metrics, as part of a program's own router.
    pub fn router(&self) -> Router {
        self.routes().layer(FrontLayer(Arc::clone(&self.0)))
    }

    /// Like [`Server::router`], for a dedicated server: every other address is answered with 404.
    pub(crate) fn service(&self) -> Front<Direct> {
        let whole = self.routes().fallback(async |uri: Uri, headers: HeaderMap| {
            if crate::grpc::is_grpc(&headers) {
                return crate::grpc::unknown(&uri);
            }
            crate::http::not_found(uri).await
        });
        // Wrapped around the whole router, since wrapping each route would cost an allocation for each request.
        FrontLayer(Arc::clone(&self.0)).layer(Direct::new(whole, &self.0))
    }

    fn routes(&self) -> Router {
        let shared = Arc::clone(&self.0);
        let metrics = get(async move || crate::metrics::page(&shared));
        crate::http::routes(&self.0)
            .merge(crate::grpc::routes(&self.0))
            .route("/metrics", metrics)
    }
}

impl Shared {
    /// Whether all models answer, and the server is not shutting down.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_draining() && self.repository.is_ready()
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Tells all connections that the server is shutting down.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Completes when the server begins to shut down.
    pub(crate) async fn drained(&self) {
        // The sender lives as long as `self`.
        let _ = self.draining.subscribe().wait_for(|&draining| draining).await;
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
