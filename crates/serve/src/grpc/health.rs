//! gRPC's own health checks.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tonic::{Request, Response, Status};

use super::proto::health::health_check_response::ServingStatus;
use super::proto::health::health_server::Health as Calls;
use super::proto::health::{HealthCheckRequest, HealthCheckResponse};
use crate::server::Shared;

pub(super) struct Health(pub(super) Arc<Shared>);

/// How often the state of the models is checked.
const INTERVAL: Duration = Duration::from_secs(1);

/// The services that are checked; the empty name stands for all of them.
const SERVICES: [&str; 2] = ["", "inference.GRPCInferenceService"];

fn response(shared: &Shared, is_known: bool) -> HealthCheckResponse {
    let status = match shared.is_ready() {
        _ if !is_known => ServingStatus::ServiceUnknown,
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    };
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Calls for Health {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        match request.get_ref().service.as_str() {
            service if SERVICES.contains(&service) => Ok(Response::new(response(&self.0, true))),
            service => Err(Status::not_found(format!("there is no service {service:?}"))),
        }
    }

    /// Streams the current state and every change of it, until the server shuts down.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let is_known = SERVICES.contains(&request.get_ref().service.as_str());
        let first = (Arc::clone(&self.0), None);
        let states = stream::unfold(first, move |(shared, last)| async move {
            loop {
                let is_last = shared.is_draining();
                let now = response(&shared, is_known);
                if last != Some(now) {
                    return Some((Ok(now), (shared, Some(now))));
                }
                if is_last {
                    return None;
                }
                // Check the state again, whichever comes first.
                let _ = tokio::time::timeout(INTERVAL, shared.drained()).await;
            }
        });
        Ok(Response::new(Box::pin(states)))
    }
}
