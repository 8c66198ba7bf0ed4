//! Texts and vectors in the form of OpenAI's API: `/v1/models`, `/v1/completions`, `/v1/chat/completions` and
//! `/v1/embeddings`.

mod answer;
mod request;
mod vectors;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{body, json as of_json};
use crate::server::Shared;
use crate::service::{Event, Service};
use crate::{Failure, ModelInfo, Reason};
use answer::{Events, Whole, Wording};
pub(super) use vectors::embeddings;

type Answer = Result<Response, Refused>;

/// A failure in OpenAI's form.
#[derive(Debug)]
pub(crate) struct Refused {
    failure: Failure,
    /// The invalid field of the request.
    field: Option<&'static str>,
    code: Option<&'static str>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            field: None,
            code: None,
        }
    }
}

impl Refused {
    /// An error about an invalid field.
    fn field(name: &'static str, message: impl Into<String>) -> Self {
        Self {
            failure: Failure::invalid(message),
            field: Some(name),
            code: None,
        }
    }

    fn json(&self) -> Json {
        let kind = match self.failure.reason {
            Reason::Unauthenticated => "authentication_error",
            Reason::Busy(_) | Reason::Unavailable | Reason::Late | Reason::Internal => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {
            "message": self.failure.message,
            "type": kind,
            "param": self.field,
            "code": self.code,
        }})
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        self.failure.respond(of_json(&self.json()))
    }
}

pub(super) async fn models(State(shared): State<Arc<Shared>>) -> Response {
    let mut names: Vec<String> = shared.repository.index().into_iter().map(|(name, ..)| name).collect();
    names.dedup();
    let all: Vec<Json> = names
        .iter()
        .filter_map(|name| Some(about(name, &listed(&shared, name).ok()?)))
        .collect();
    of_json(&json!({"object": "list", "data": all}))
}

pub(super) async fn model(State(shared): State<Arc<Shared>>, uri: Uri) -> Answer {
    let name = uri.path().strip_prefix("/v1/models/").unwrap_or_default();
    Ok(of_json(&about(name, &listed(&shared, name)?)))
}

fn about(name: &str, info: &ModelInfo) -> Json {
    json!({"id": name, "object": "model", "created": answer::seconds(info.service().since()), "owned_by": "polygrad"})
}

fn listed(shared: &Shared, name: &str) -> Result<ModelInfo, Refused> {
    let fits = |service: &Service| service.language().is_some() || service.encoder().is_some();
    found(shared, name, fits, "neither writes texts nor gives vectors of them")
}

/// The model, if it `fits`; otherwise an error that says what is `lacking`.
fn found(shared: &Shared, name: &str, fits: impl Fn(&Service) -> bool, lacking: &str) -> Result<ModelInfo, Refused> {
    let refused = |failure: Failure| Refused {
        code: (failure.reason == Reason::NotFound).then_some("model_not_found"),
        field: Some("model"),
        failure,
    };
    let info = shared.repository.get(name, None).map_err(refused)?;
    match fits(info.service()) {
        true => Ok(info),
        false => Err(refused(Failure::new(
            Reason::NotFound,
            format!("model {name:?} {lacking}: ask it at /v2/models/{name}/infer"),
        ))),
    }
}

pub(super) async fn completions(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    write(&shared, request, Wording::Text).await
}

pub(super) async fn chat(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    write(&shared, request, Wording::Chat).await
}

async fn write(shared: &Shared, request: Request, wording: Wording) -> Answer {
    let (Parts { headers, .. }, body) = request.into_parts();
    let asked = read(&headers, body, shared, move |body| request::writing(body, wording)).await?;
    let info = found(
        shared,
        &asked.model,
        |service| service.language().is_some(),
        "writes no texts",
    )?;
    let count = asked.order.prompts.len();
    let mut events = info.service().write(asked.order).await?;
    let prompt_tokens = match next(&mut events).await? {
        Event::Begun(tokens) => tokens,
        other => return Err(unexpected(&other)),
    };
    let mut whole = Whole::new(wording, asked.model, prompt_tokens, count);
    if asked.stream {
        return Ok(Events::new(whole, events, asked.with_usage).into_response());
    }
    while whole.is_open() {
        let event = next(&mut events).await?;
        whole.add(event)?;
    }
    Ok(of_json(&whole.answer()))
}

async fn read<T: Send + 'static>(
    headers: &HeaderMap,
    body: axum::body::Body,
    shared: &Shared,
    parse: impl FnOnce(&[u8]) -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    let body = body::read(headers, body, 0, shared.options.max_body_bytes).await?;
    if body.len() <= body::LONG {
        return parse(&body);
    }
    body::offload(move || Ok(parse(&body))).await?
}

async fn next(events: &mut UnboundedReceiver<Event>) -> Result<Event, Refused> {
    match events.recv().await {
        Some(Event::Failed(failure)) => Err(failure.into()),
        Some(event) => Ok(event),
        None => Err(broken().into()),
    }
}

/// The error if the writing thread ends without a last event, as after a panic.
fn broken() -> Failure {
    Failure::new(Reason::Internal, "the model ended before its text did")
}

fn unexpected(event: &Event) -> Refused {
    Failure::new(Reason::Internal, format!("{event:?} was not expected here")).into()
}
