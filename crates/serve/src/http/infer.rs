//! Inference.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::answer::{HEAD_LENGTH, answer};
use super::body::{Coding, LONG, offload, read};
use super::request::Asked;
use super::{Answer, Target, request};
use crate::server::Shared;
use crate::{Failure, ModelInfo};

pub(crate) async fn infer(shared: Arc<Shared>, request: Request) -> Answer {
    let (Parts { uri, headers, .. }, body) = request.into_parts();
    let target = Target::of(&uri)?;
    let info = shared.repository.get(&target.model, target.version)?;
    // Rejected before the body is read, which would be wasted work.
    info.admit()?;
    let coding = Coding::of_answer(&headers);
    let Asked { request, wanted } = ask(&headers, body, &info, shared.options.max_body_bytes).await?;
    let response = info.infer(request).await?;
    // Roughly the size of the JSON that will be written; raw bytes are copied quickly.
    let values = response.outputs.iter().map(|output| output.value.shape().numel());
    let work = match coding.is_some() || wanted.is_text() {
        true => values.sum::<usize>() * 8,
        false => 0,
    };
    let write = move || answer(&target.model, &info, &response, &wanted)?.respond(coding);
    match work > LONG {
        true => offload(write).await,
        false => write(),
    }
}

/// Reads a request.
async fn ask(headers: &HeaderMap, body: Body, info: &ModelInfo, limit: usize) -> Result<Asked, Failure> {
    let head = head_length(headers)?;
    let body = read(headers, body, head.unwrap_or(0), limit).await?;
    if head.unwrap_or(body.len()) <= LONG {
        return request::read(&body, head, info.signature());
    }
    let info = info.clone();
    offload(move || request::read(&body, head, info.signature())).await
}

/// The length of the JSON before the bytes of tensors; `None` if there are no bytes.
fn head_length(headers: &HeaderMap) -> Result<Option<usize>, Failure> {
    let Some(text) = headers.get(HEAD_LENGTH) else {
        return Ok(None);
    };
    let length = text.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || {
        Failure::invalid(format!(
            "Inference-Header-Content-Length is no number of bytes: {text:?}"
        ))
    };
    length.map(Some).ok_or_else(wrong)
}
