//! The protocol over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use crate::server::Shared;

pub(crate) fn routes(shared: &Arc<Shared>) -> Router {
    Router::new()
        .route("/v2/health/ready", get(ready))
        .with_state(Arc::clone(shared))
}

async fn ready(State(shared): State<Arc<Shared>>) -> StatusCode {
    match shared.repository.is_ready() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}
