//! The protocol over gRPC.

mod about;
mod codec;
mod health;
mod service;

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::any_service;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Status};

use crate::server::Shared;
use crate::{Failure, Reason};

/// Generated from `proto/`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
mod proto {
    tonic::include_proto!("inference");

    pub(super) mod health {
        tonic::include_proto!("grpc.health.v1");
    }
}

use proto::grpc_inference_service_server::GrpcInferenceServiceServer;
use proto::health::health_server::HealthServer;

/// The call with a stream of requests, which the client may keep open for as long as it likes.
pub(crate) const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// The call whose answer is a stream that may be silent for long.
pub(crate) const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// The call that asks whether a model is ready.
pub(crate) const READY: &str = "/inference.GRPCInferenceService/ModelReady";

/// Calls that only say whether the server is alive.
pub(crate) const HEALTH: [&str; 4] = [
    "/grpc.health.v1.Health/Check",
    WATCH,
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
];

/// Whether a request is a call of gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The answer to an unknown call.
pub(crate) fn unknown(uri: &Uri) -> Response {
    Status::unimplemented(format!("there is no call {}", uri.path())).into_http()
}

pub(crate) fn routes(shared: &Arc<Shared>) -> Router {
    // Answers are not compressed: every client announces that it can decompress, which does not mean that it wants to.
    let models = GrpcInferenceServiceServer::new(service::Models(Arc::clone(shared)))
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
        .max_decoding_message_size(shared.options.max_body_bytes)
        .max_encoding_message_size(usize::MAX);
    let health = HealthServer::new(health::Health(Arc::clone(shared)));
    Router::new()
        .route("/inference.GRPCInferenceService/{call}", any_service(models))
        .route("/grpc.health.v1.Health/{call}", any_service(health))
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let code = match failure.reason {
            Reason::Invalid => Code::InvalidArgument,
            Reason::NotFound => Code::NotFound,
            Reason::TooLarge | Reason::Busy(_) => Code::ResourceExhausted,
            Reason::Unauthenticated => Code::Unauthenticated,
            Reason::Forbidden => Code::PermissionDenied,
            Reason::Unavailable => Code::Unavailable,
            Reason::Late => Code::DeadlineExceeded,
            Reason::Unsupported => Code::Unimplemented,
            Reason::Internal => Code::Internal,
        };
        Self::new(code, failure.message)
    }
}
