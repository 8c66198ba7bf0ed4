//! The protocol over HTTP: JSON, and tensors as bytes with the binary extension.

mod answer;
mod body;
mod data;
mod infer;
mod info;
mod openai;
mod page;
mod request;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use serde::Serialize;

pub(crate) use answer::classes;
pub(crate) use infer::infer;
pub(crate) use openai::Refused;

use crate::server::Shared;
use crate::{Failure, Reason, protocol};

pub(crate) type Answer = Result<Response, Failure>;

pub(crate) fn routes(shared: &Arc<Shared>) -> Router {
    let mut router = Router::new();
    for (path, methods) in pages(shared) {
        if path != "/" || shared.options.page {
            router = router.route(path, methods);
        }
    }
    router
        .route("/v1/{*page}", any(not_found))
        .route("/v2/{*page}", any(not_found))
        .method_not_allowed_fallback(not_allowed)
        .with_state(Arc::clone(shared))
}

/// All addresses, as described in `openapi.json`.
fn pages(shared: &Arc<Shared>) -> [(&'static str, MethodRouter<Arc<Shared>>); 24] {
    // Without axum's extractors, which would take each request apart and reassemble it.
    let inference = || {
        let shared = Arc::clone(shared);
        post(move |request| infer(shared, request))
    };
    [
        ("/", get(page::page)),
        (
            "/openapi.json",
            get(async || text_of_json(include_str!("openapi.json"))),
        ),
        ("/v1/models", get(openai::models)),
        ("/v1/models/{model}", get(openai::model)),
        ("/v1/completions", post(openai::completions)),
        ("/v1/chat/completions", post(openai::chat)),
        ("/v1/embeddings", post(openai::embeddings)),
        ("/v2", get(info::server)),
        ("/v2/health/live", get(info::live)),
        ("/v2/health/ready", get(info::ready)),
        ("/v2/models/stats", get(info::statistics_of_all)),
        ("/v2/models/{model}", get(info::model)),
        ("/v2/models/{model}/ready", get(info::model_ready)),
        ("/v2/models/{model}/config", get(info::config)),
        ("/v2/models/{model}/stats", get(info::statistics)),
        ("/v2/models/{model}/infer", inference()),
        ("/v2/models/{model}/versions/{version}", get(info::model)),
        ("/v2/models/{model}/versions/{version}/ready", get(info::model_ready)),
        ("/v2/models/{model}/versions/{version}/config", get(info::config)),
        ("/v2/models/{model}/versions/{version}/stats", get(info::statistics)),
        ("/v2/models/{model}/versions/{version}/infer", inference()),
        ("/v2/repository/index", post(info::index)),
        ("/v2/repository/models/{model}/load", post(info::load)),
        ("/v2/repository/models/{model}/unload", post(info::unload)),
    ]
}

/// The model that an address names.
struct Target {
    model: String,
    version: Option<u64>,
}

impl FromRequestParts<Arc<Shared>> for Target {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Result<Self, Failure> {
        Self::of(&parts.uri)
    }
}

impl Target {
    fn of(uri: &Uri) -> Result<Self, Failure> {
        let address = Address::of(uri.path()).unwrap_or_default();
        Ok(Self {
            model: address.model.to_owned(),
            version: address.version.map(protocol::version).transpose()?,
        })
    }
}

/// An address that begins with that of a model, split into parts. Names only have characters that are never escaped in
/// an address.
#[derive(Default)]
pub(crate) struct Address<'a> {
    pub(crate) model: &'a str,
    version: Option<&'a str>,
    /// The part after the model and its version.
    rest: &'a str,
}

impl<'a> Address<'a> {
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        let rest = path
            .strip_prefix("/v2/models/")
            .or_else(|| path.strip_prefix("/v2/repository/models/"))?;
        let (model, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let (version, rest) = match rest.strip_prefix("versions/") {
            Some(rest) => {
                let (version, rest) = rest.split_once('/').unwrap_or((rest, ""));
                (Some(version), rest)
            }
            None => (None, rest),
        };
        Some(Self { model, version, rest })
    }
}

/// Whether this is the address of an inference, as in [`pages`].
pub(crate) fn is_inference(path: &str) -> bool {
    let is_meant =
        |address: Address<'_>| !address.model.is_empty() && address.version != Some("") && address.rest == "infer";
    path.starts_with("/v2/models/") && Address::of(path).is_some_and(is_meant)
}

/// Whether errors at this address are in OpenAI's form.
pub(crate) fn is_openai(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/")
}

pub(crate) async fn not_found(uri: Uri) -> Response {
    refusal(
        Reason::NotFound,
        &uri,
        format!("there is no {}: see /openapi.json", uri.path()),
    )
}

async fn not_allowed(uri: Uri) -> Response {
    let message = format!("{} takes another method: see /openapi.json", uri.path());
    let mut response = refusal(Reason::Invalid, &uri, message);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

fn refusal(reason: Reason, uri: &Uri, message: String) -> Response {
    let failure = Failure::new(reason, message);
    match is_openai(uri.path()) {
        true => Refused::from(failure).into_response(),
        false => failure.into_response(),
    }
}

#[derive(Serialize)]
struct Refusal<'a> {
    error: &'a str,
}

impl Failure {
    /// Sets the status for the reason, and the time to retry.
    fn respond(&self, mut response: Response) -> Response {
        *response.status_mut() = match self.reason {
            Reason::Invalid => StatusCode::BAD_REQUEST,
            Reason::NotFound => StatusCode::NOT_FOUND,
            Reason::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::Unauthenticated => StatusCode::UNAUTHORIZED,
            Reason::Forbidden => StatusCode::FORBIDDEN,
            Reason::Busy(_) | Reason::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Reason::Late => StatusCode::GATEWAY_TIMEOUT,
            Reason::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Reason::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if let Reason::Busy(wait) = self.reason {
            let seconds = wait.as_millis().div_ceil(1000);
            let seconds = HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX));
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}

impl IntoResponse for Failure {
    /// The status for the reason, and the message as `{"error": …}`.
    fn into_response(self) -> Response {
        self.respond(json(&Refusal { error: &self.message }))
    }
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => text_of_json(text),
        Err(error) => {
            tracing::error!("an answer could not be written: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn text_of_json(text: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(text.into());
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inference_is_told_by_its_address() {
        for path in [
            "/v2/models/a/infer",
            "/v2/models/versions/infer",
            "/v2/models/a.b-1/versions/2/infer",
        ] {
            assert!(is_inference(path), "{path}");
        }
        for path in [
            "/v2/models//infer",
            "/v2/models/infer",
            "/v2/models/a/infer/",
            "/v2/models/a/b/infer",
            "/v2/models/a/versions//infer",
            "/v2/models/a/versions/1/2/infer",
            "/v2/models/a/versions/1",
            "/v2/repository/models/a/infer",
            "/v2/models/a/ready",
            "/inference.GRPCInferenceService/ModelInfer",
        ] {
            assert!(!is_inference(path), "{path}");
        }
    }
}
