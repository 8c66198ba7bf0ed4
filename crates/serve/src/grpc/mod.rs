//! The protocol over gRPC.

use std::sync::Arc;

use axum::Router;

use crate::server::Shared;

pub(crate) fn routes(_shared: &Arc<Shared>) -> Router {
    Router::new()
}
