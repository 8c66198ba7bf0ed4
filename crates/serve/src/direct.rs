//! A shortcut past the router for the address with the most requests: inference.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::future::RouteFuture;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::http::{self, Answer};
use crate::server::Shared;

/// Answers requests for all addresses. Inference requests skip the router, which would look up the address, store the
/// match and clone the handler for each.
#[derive(Clone)]
pub(crate) struct Direct {
    router: Router,
    shared: Arc<Shared>,
}

impl Direct {
    pub(crate) fn new(router: Router, shared: &Arc<Shared>) -> Self {
        Self {
            router,
            shared: Arc::clone(shared),
        }
    }
}

impl Service<Request<Body>> for Direct {
    type Response = Response;
    type Error = Infallible;
    type Future = Directed;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Directed {
        if request.method() == Method::POST && http::is_inference(request.uri().path()) {
            let shared = Arc::clone(&self.shared);
            return Directed::Inference {
                answer: Box::pin(http::infer(shared, request)),
            };
        }
        Directed::Routed {
            answer: self.router.call(request),
        }
    }
}

pin_project! {
    /// An answer in progress.
    #[project = DirectedProjection]
    pub(crate) enum Directed {
        Inference { answer: Pin<Box<dyn Future<Output = Answer> + Send>> },
        Routed { #[pin] answer: RouteFuture<Infallible> },
    }
}

impl Future for Directed {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            DirectedProjection::Inference { answer } => {
                answer.as_mut().poll(cx).map(|answer| Ok(answer.into_response()))
            }
            DirectedProjection::Routed { answer } => answer.poll(cx),
        }
    }
}
