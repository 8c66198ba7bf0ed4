//! Handling of every request, of either protocol: tokens, ids, the access log and spans.

use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;
use tracing::instrument::Instrumented;
use tracing::{Instrument, Level};

use crate::connection::Activity;
use crate::grpc;
use crate::http::{Address, Refused, is_openai};
use crate::origin;
use crate::server::Shared;
use crate::{Failure, Reason, Tokens};

/// The target of the access log's events.
const ACCESS: &str = "polygrad_serve::access";

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest request id that is accepted from a client.
const LONGEST_ID: usize = 128;

#[derive(Clone)]
pub(crate) struct FrontLayer(pub(crate) Arc<Shared>);

impl<S> Layer<S> for FrontLayer {
    type Service = Front<S>;

    fn layer(&self, inner: S) -> Front<S> {
        Front {
            inner,
            shared: Arc::clone(&self.0),
            connection: None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Front<S> {
    inner: S,
    shared: Arc<Shared>,
    /// `None` when the router is part of another program, which owns its connections.
    connection: Option<Arc<Activity>>,
}

impl<S: Clone> Front<S> {
    /// The same service, for the requests of one connection.
    pub(crate) fn on(&self, connection: &Arc<Activity>) -> Self {
        Self {
            connection: Some(Arc::clone(connection)),
            ..self.clone()
        }
    }
}

impl<S: Service<Request<Body>, Response = Response, Error = Infallible>> Service<Request<Body>> for Front<S> {
    type Response = Response;
    type Error = Infallible;
    type Future = Fronted<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let id = request_id(request.headers());
        let (request, entry) = match is_logged() {
            true => Entry::begin(request, &id),
            false => (request, None),
        };
        let form = Form::of(&request);
        let is_health = is_health(request.uri().path());
        let answer = match self.admit(is_health, &request) {
            Ok(()) => {
                let span = span(&request, &id);
                Answer::Coming {
                    answer: self.inner.call(request).instrument(span),
                }
            }
            Err(failure) => Answer::Refused {
                answer: Some(form.refuse(failure)),
            },
        };
        Fronted {
            answer,
            id: Some(id),
            entry,
            // Health checks are always answered.
            connection: self.connection.clone().filter(|_| !is_health),
            form,
        }
    }
}

impl<S> Front<S> {
    /// Fails if the request must not be answered.
    fn admit(&self, is_health: bool, request: &Request<Body>) -> Result<(), Failure> {
        if is_health {
            return Ok(());
        }
        let is_guest = self.connection.as_ref().is_some_and(|connection| !connection.has_place);
        if is_guest && !is_readiness(request.uri().path()) {
            let message = "too many connections are open, on the whole or from this address: come again later";
            return Err(Failure::new(Reason::Busy(LATER), message));
        }
        let options = &self.shared.options;
        match &options.tokens {
            Some(tokens) => owns(tokens, request.headers()),
            None => origin::check(options, request),
        }
    }
}

/// When to retry if there was no place for the connection.
const LATER: Duration = Duration::from_secs(1);

/// Whether an address only says whether the server is alive.
fn is_health(path: &str) -> bool {
    path.starts_with("/v2/health/") || grpc::HEALTH.contains(&path)
}

/// Whether an address says whether a model is ready.
fn is_readiness(path: &str) -> bool {
    path.starts_with("/v2/models/") && path.ends_with("/ready") || path == grpc::READY
}

pin_project! {
    pub(crate) struct Fronted<F> {
        #[pin]
        answer: Answer<F>,
        id: Option<HeaderValue>,
        entry: Option<Box<Entry>>,
        connection: Option<Arc<Activity>>,
        form: Form,
    }
}

pin_project! {
    #[project = AnswerProjection]
    enum Answer<F> {
        Coming { #[pin] answer: Instrumented<F> },
        Refused { answer: Option<Response> },
    }
}

impl<F: Future<Output = Result<Response, Infallible>>> Future for Fronted<F> {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = match this.answer.project() {
            AnswerProjection::Coming { answer } => ready!(answer.poll(cx))?,
            AnswerProjection::Refused { answer } => answer.take().unwrap_or_default(),
        };
        let room = this
            .connection
            .take()
            .map(|connection| connection.may_wait(weight(&response)));
        if let Some(Err(failure)) = room {
            response = this.form.refuse(failure);
        }
        if let Some(id) = this.id.take() {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        Poll::Ready(Ok(match this.entry.take() {
            Some(entry) => entry.answered(response),
            None => response,
        }))
    }
}

/// The client's id for its request, or a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_fit = |id: &&HeaderValue| {
        let id = id.as_bytes();
        !id.is_empty() && id.len() <= LONGEST_ID && id.iter().all(u8::is_ascii_graphic)
    };
    let given = headers.get(REQUEST_ID).filter(is_fit);
    given
        .cloned()
        .unwrap_or_else(|| HeaderValue::from_bytes(&new_id()).unwrap_or(HeaderValue::from_static("0")))
}

/// Sixteen hexadecimal digits that this process has not given before.
pub(crate) fn new_id() -> [u8; 16] {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish()));
    // Multiplying by an odd number maps different counters to different ids.
    let id = NEXT.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    std::array::from_fn(|i| b"0123456789abcdef"[(id >> (60 - 4 * i)) as usize & 15])
}

/// Fails unless the request has a valid token.
fn owns(tokens: &Tokens, headers: &HeaderMap) -> Result<(), Failure> {
    let refused = |message: &str| Err(Failure::new(Reason::Unauthenticated, message));
    let Some(given) = headers.get(AUTHORIZATION) else {
        return refused("this server asks for a token: send the header Authorization: Bearer TOKEN");
    };
    match given.as_bytes().split_at_checked("Bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") && tokens.contains(token) => Ok(()),
        _ => refused("the header Authorization has no token that this server knows"),
    }
}

/// How a rejection is written: in the protocol of the request.
#[derive(Clone, Copy)]
enum Form {
    Grpc,
    OpenAi,
    Inference,
}

impl Form {
    fn of(request: &Request<Body>) -> Self {
        match grpc::is_grpc(request.headers()) {
            true => Self::Grpc,
            false if is_openai(request.uri().path()) => Self::OpenAi,
            false => Self::Inference,
        }
    }

    fn refuse(self, failure: Failure) -> Response {
        let asks_for_token = failure.reason == Reason::Unauthenticated;
        let mut response = match self {
            Self::Grpc => return tonic::Status::from(failure).into_http(),
            Self::OpenAi => Refused::from(failure).into_response(),
            Self::Inference => failure.into_response(),
        };
        if asks_for_token {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// The size in bytes of an answer whose body does not know its length before it is read.
#[derive(Clone, Copy)]
pub(crate) struct Weight(pub(crate) usize);

/// The smallest known size of an answer in bytes, without its headers.
pub(crate) fn weight(response: &Response) -> usize {
    let told = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    response
        .extensions()
        .get()
        .map_or(told, |Weight(bytes)| told.max(*bytes))
}

#[cfg(feature = "otel")]
fn span(request: &Request<Body>, id: &HeaderValue) -> tracing::Span {
    crate::telemetry::span(request, id)
}

#[cfg(not(feature = "otel"))]
fn span(_request: &Request<Body>, _id: &HeaderValue) -> tracing::Span {
    tracing::Span::none()
}

fn is_logged() -> bool {
    tracing::enabled!(target: ACCESS, Level::INFO)
}

/// The model that a gRPC call was for, since its address does not contain it.
#[derive(Clone)]
pub(crate) struct Named(String);

impl Named {
    /// `None` if the access log is off.
    pub(crate) fn new(model: &str) -> Option<Self> {
        is_logged().then(|| Self(model.to_owned()))
    }
}

/// The access log's entry for a request, written when its answer was sent or abandoned.
struct Entry {
    began: Instant,
    method: Method,
    uri: Uri,
    id: HeaderValue,
    model: Option<String>,
    received: Arc<AtomicU64>,
    sent: u64,
    status: Option<StatusCode>,
    grpc_status: Option<HeaderValue>,
}

impl Entry {
    fn begin(request: Request<Body>, id: &HeaderValue) -> (Request<Body>, Option<Box<Self>>) {
        let received = Arc::new(AtomicU64::new(0));
        let is_model = |address: &Address<'_>| address.model != "stats";
        let named = Address::of(request.uri().path()).filter(is_model);
        let entry = Self {
            began: Instant::now(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            id: id.clone(),
            model: named.map(|address| address.model.to_owned()),
            received: Arc::clone(&received),
            sent: 0,
            status: None,
            grpc_status: None,
        };
        let request = request.map(|body| {
            Body::new(Counted {
                body,
                count: move |frame: &Frame<Bytes>| {
                    received.fetch_add(length(frame), Relaxed);
                },
            })
        });
        (request, Some(Box::new(entry)))
    }

    fn answered(mut self: Box<Self>, response: Response) -> Response {
        self.status = Some(response.status());
        self.grpc_status = response.headers().get(GRPC_STATUS).cloned();
        if let Some(Named(model)) = response.extensions().get() {
            self.model = Some(model.clone());
        }
        response.map(|body| {
            Body::new(Counted {
                body,
                count: move |frame: &Frame<Bytes>| self.see(frame),
            })
        })
    }

    fn see(&mut self, frame: &Frame<Bytes>) {
        self.sent += length(frame);
        if let Some(status) = frame.trailers_ref().and_then(|trailers| trailers.get(GRPC_STATUS)) {
            self.grpc_status = Some(status.clone());
        }
    }
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

impl Drop for Entry {
    fn drop(&mut self) {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        tracing::info!(
            target: ACCESS,
            method = %self.method,
            path = self.uri.path(),
            // `None` if the client disconnected before there was an answer.
            status = self.status.map(|status| status.as_u16()),
            grpc_status = self.grpc_status.as_ref().map(text),
            us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX),
            received = self.received.load(Relaxed),
            sent = self.sent,
            id = text(&self.id),
            model = self.model.as_deref(),
        );
    }
}

fn length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

/// A body that reports each of its frames to `count`.
struct Counted<C> {
    body: Body,
    count: C,
}

impl<C: FnMut(&Frame<Bytes>) + Unpin> HttpBody for Counted<C> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            (self.count)(frame);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
