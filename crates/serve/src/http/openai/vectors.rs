//! Vectors of texts.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use polygrad_core::{DType, HostTensor, Result as Computed, Shape};
use polygrad_onnx::graph::Dim;
use serde::Serialize;

use super::request::{self, Reading};
use super::{Answer, Refused, body, found, of_json, read};
use crate::server::Shared;
use crate::{Failure, InferRequest, ModelInfo, NamedValue, Reason, Strings, Value};

#[derive(Serialize)]
struct Whole<'a> {
    object: &'static str,
    data: Vec<Vector>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Vector {
    object: &'static str,
    index: usize,
    embedding: Numbers,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    Floats(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

pub(in super::super) async fn embeddings(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    let (Parts { headers, .. }, body) = request.into_parts();
    let asked = read(&headers, body, &shared, request::reading).await?;
    let lacking =
        "gives no vectors of texts, as folders with tokenizer.json and sentence-transformers' modules.json do";
    let info = found(&shared, &asked.model, |service| service.encoder().is_some(), lacking)?;
    // Checked before anything is computed, if the model's signature gives the width.
    let dims = info.signature().outputs.first().map(|spec| &spec.dims[..]);
    if let Some(&[.., Dim::Fixed(width)]) = dims {
        must_have(asked.dimensions, width)?;
    }
    let mut parts = Vec::new();
    // Each chunk can be computed with the texts of other requests.
    for texts in asked.texts.chunks(info.max_batch_size()) {
        parts.push(vectors(&info, texts).await?);
    }
    let answered = body::offload(move || Ok(answer(&asked, &info, &parts)));
    answered.await?
}

/// Fails if the requested length of vectors differs from the model's.
fn must_have(dimensions: Option<usize>, width: usize) -> Result<(), Refused> {
    match dimensions.filter(|&dimensions| dimensions != width) {
        None => Ok(()),
        Some(dimensions) => {
            let message = format!("dimensions is {dimensions}, and vectors of this model have {width}: leave it out");
            Err(Refused::field("dimensions", message))
        }
    }
}

/// The vectors of texts, in their order.
async fn vectors(info: &ModelInfo, texts: &[String]) -> Result<HostTensor, Failure> {
    let strings = texts
        .iter()
        .map(|text| Bytes::copy_from_slice(text.as_bytes()))
        .collect();
    let value = Shape::new(&[texts.len()]).and_then(|shape| Strings::new(shape, strings));
    let value = Value::Strings(value.map_err(|error| Failure::of_run(&error))?);
    let request = InferRequest {
        inputs: vec![NamedValue {
            name: "text".to_owned(),
            value,
        }],
        ..InferRequest::default()
    };
    let answer = info.infer(request).await?;
    let first = answer.outputs.first().map(|output| output.value.tensor());
    match first {
        Some(Ok(vectors)) if vectors.host().shape().rank() == 2 && vectors.host().shape()[0] == texts.len() => {
            Ok(vectors.host().cast(DType::F32))
        }
        _ => Err(Failure::new(Reason::Internal, "the model gave no vector for each text")),
    }
}

fn answer(asked: &Reading, info: &ModelInfo, parts: &[HostTensor]) -> Answer {
    let width = parts.first().map_or(0, |part| part.shape()[1]);
    must_have(asked.dimensions, width)?;
    let of_run = |error: polygrad_core::Error| Failure::of_run(&error);
    let encoder = info.service().encoder();
    let counts = asked.texts.iter().filter_map(|text| Some(encoder?.count(text)));
    let tokens: usize = counts.sum::<Computed<usize>>().map_err(of_run)?;
    let mut data = Vec::with_capacity(asked.texts.len());
    for part in parts {
        for row in part.to_vec::<f32>().map_err(of_run)?.chunks(width.max(1)) {
            let bytes = || row.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
            data.push(Vector {
                object: "embedding",
                index: data.len(),
                embedding: match asked.is_base64 {
                    true => Numbers::Base64(BASE64_STANDARD.encode(bytes())),
                    false => Numbers::Floats(row.to_vec()),
                },
            });
        }
    }
    Ok(of_json(&Whole {
        object: "list",
        data,
        model: &asked.model,
        usage: Usage {
            prompt_tokens: tokens,
            total_tokens: tokens,
        },
    }))
}
