//! Models and requests for the tests.
#![allow(dead_code, unreachable_pub, reason = "each program uses a part")]

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;

use crate::support::{accumulate, add_sub, identity, shifted};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use polygrad_core::Error;
use polygrad_serve::{DATATYPES, Pool, Repository, Server, ServerOptions, Settings};
use serde_json::Value as Json;
use tower::ServiceExt;

/// All models used by the tests, and one that cannot be loaded.
pub fn router_with(options: ServerOptions, settings: Settings) -> Router {
    let repository = Repository::new(Pool::new(1).unwrap());
    for (element, name) in DATATYPES {
        let name = format!("identity_{}", name.to_lowercase());
        repository
            .add(&name, 1, move || Ok(identity(element)), settings.clone())
            .unwrap();
    }
    repository
        .add("add_sub", 1, || Ok(add_sub()), settings.clone())
        .unwrap();
    repository
        .add("accumulate", 1, || Ok(accumulate()), settings.clone())
        .unwrap();
    repository
        .add("shifted", 1, || Ok(shifted()), settings.clone())
        .unwrap();
    for (name, ..) in repository.index() {
        repository.load(&name).unwrap();
    }
    if options.control {
        let broken = || Err(Error::invalid("the file is damaged"));
        repository.add("broken", 1, broken, settings).unwrap();
    }
    Server::new(repository, options).router()
}

pub fn router() -> Router {
    router_with(ServerOptions::default(), Settings::default())
}

/// A request.
pub struct Asked {
    method: Method,
    path: String,
    headers: HeaderMap,
    pub body: Vec<u8>,
    /// The number of frames of the body.
    pub parts: usize,
    /// Whether the body is incomplete.
    pub broken: bool,
}

pub fn body(path: &str, body: &[u8]) -> Asked {
    let mut asked = Asked::of("POST", path);
    asked.body = body.to_vec();
    asked
}

impl Asked {
    pub fn of(method: &str, path: &str) -> Self {
        Self {
            method: method.parse().unwrap(),
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Vec::new(),
            parts: 1,
            broken: false,
        }
    }

    pub fn get(path: &str) -> Self {
        Self::of("GET", path)
    }

    pub fn post(path: &str, json: &Json) -> Self {
        body(path, json.to_string().as_bytes())
    }

    /// JSON, followed by bytes.
    pub fn binary(path: &str, json: &Json, bytes: &[u8]) -> Self {
        let head = json.to_string();
        let whole = [head.as_bytes(), bytes].concat();
        body(path, &whole).header("inference-header-content-length", &head.len().to_string())
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, HeaderValue::from_str(value).unwrap());
        self
    }

    /// The answer; its trailers are added to its headers.
    pub async fn answer(self, router: &Router) -> (StatusCode, HeaderMap, Bytes) {
        let sent = match (self.parts, self.broken) {
            (1, false) => Body::from(self.body),
            (parts, broken) => {
                let size = self.body.len().div_ceil(parts).max(1);
                let frames: Vec<std::io::Result<Bytes>> = self
                    .body
                    .chunks(size)
                    .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
                    .collect();
                let end = broken.then(|| Err(std::io::Error::other("gone")));
                Body::from_stream(futures_util::stream::iter(frames.into_iter().chain(end)))
            }
        };
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .body(sent)
            .unwrap();
        *request.headers_mut() = self.headers;
        let answer: Result<_, Infallible> = router.clone().oneshot(request).await;
        let (mut parts, body) = answer.unwrap().into_parts();
        let body = whole(body, &mut parts.headers).await;
        (parts.status, parts.headers, body)
    }

    /// The JSON of a successful answer.
    pub async fn json(self, router: &Router) -> Json {
        let (status, headers, body) = self.answer(router).await;
        assert_eq!(status, StatusCode::OK, "{}", text(&body));
        assert_eq!(headers["content-type"], "application/json");
        serde_json::from_slice(&body).unwrap()
    }

    /// The message of an error.
    pub async fn error(self, router: &Router, wanted: StatusCode) -> String {
        let (status, headers, body) = self.answer(router).await;
        assert_eq!(status, wanted, "{}", text(&body));
        assert_eq!(headers["content-type"], "application/json");
        let json: Json = serde_json::from_slice(&body).unwrap();
        assert_eq!(json.as_object().unwrap().len(), 1);
        json["error"].as_str().unwrap().to_owned()
    }
}

async fn whole(mut body: Body, headers: &mut HeaderMap) -> Bytes {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame.unwrap().into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => headers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    bytes.into()
}

/// The JSON and the bytes of an answer with both.
pub async fn binary(router: &Router, asked: Asked) -> (Json, Vec<u8>) {
    let (status, headers, body) = asked.answer(router).await;
    assert_eq!(status, StatusCode::OK, "{}", text(&body));
    assert_eq!(headers["content-type"], "application/octet-stream");
    let length: usize = headers["inference-header-content-length"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    (
        serde_json::from_slice(&body[..length]).unwrap(),
        body[length..].to_vec(),
    )
}

pub fn text(body: &[u8]) -> &str {
    std::str::from_utf8(body).unwrap()
}
