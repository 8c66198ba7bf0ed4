//! Answers to an inference request: JSON, followed by the bytes of tensors.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use polygrad_core::Shape;
use smallvec::SmallVec;

use super::body::{Coding, Pieces};
use super::data::{write, write_text};
use super::request::{Form, Wanted};
use crate::{
    Failure, InferResponse, ModelInfo, NamedValue, Reason, Strings, TensorSpec, Value, datatype_name, protocol,
};

/// The header with the length of the JSON before the bytes.
pub(super) const HEAD_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// Tensors up to this size are copied after the JSON, since one piece is sent faster than two.
const SHORT: usize = 32 << 10;

/// An encoded answer.
pub(super) struct Written {
    json: Vec<u8>,
    tensors: SmallVec<[Bytes; 2]>,
    is_binary: bool,
}

/// Writes an answer.
///
/// # Errors
/// Values that JSON cannot represent; an unknown output.
pub(super) fn answer(
    model: &str,
    info: &ModelInfo,
    response: &InferResponse,
    wanted: &Wanted,
) -> Result<Written, Failure> {
    // Room for tensors copied after the JSON, or for most of the values written as JSON.
    let values = response.outputs.iter().map(|output| output.value.shape().numel());
    let short = (values.sum::<usize>() * 4).min(SHORT);
    let mut written = Written {
        json: Vec::with_capacity(256 + short),
        tensors: SmallVec::new(),
        is_binary: false,
    };
    let json = &mut written.json;
    json.extend_from_slice(b"{\"model_name\":");
    write_text(model, json);
    json.extend_from_slice(b",\"model_version\":\"");
    json.extend_from_slice(itoa::Buffer::new().format(response.version).as_bytes());
    json.push(b'"');
    if let Some(id) = &wanted.id {
        json.extend_from_slice(b",\"id\":");
        write_text(id, json);
    }
    json.extend_from_slice(b",\"outputs\":[");
    match &wanted.outputs {
        None => {
            for output in &response.outputs {
                written.output(output, wanted.form, None)?;
            }
        }
        Some(places) => {
            for (place, form) in places {
                let spec = &info.signature().outputs[*place];
                let output = protocol::output(&response.outputs, spec)?;
                written.output(output, *form, Some(spec))?;
            }
        }
    }
    if written.json.last() == Some(&b',') {
        written.json.pop();
    }
    written.json.extend_from_slice(b"]}");
    Ok(written)
}

impl Written {
    fn output(&mut self, output: &NamedValue, form: Form, spec: Option<&TensorSpec>) -> Result<(), Failure> {
        let value = match (form.classes, spec) {
            (most @ 1.., Some(spec)) => Cow::Owned(classes(output, most, spec)?),
            _ => Cow::Borrowed(&output.value),
        };
        let json = &mut self.json;
        json.extend_from_slice(b"{\"name\":");
        write_text(&output.name, json);
        json.extend_from_slice(b",\"datatype\":\"");
        json.extend_from_slice(datatype_name(value.element()).unwrap_or_default().as_bytes());
        json.extend_from_slice(b"\",\"shape\":[");
        for (axis, &extent) in value.shape().iter().enumerate() {
            if axis > 0 {
                json.push(b',');
            }
            json.extend_from_slice(itoa::Buffer::new().format(extent).as_bytes());
        }
        if form.is_binary {
            let bytes = match &*value {
                Value::Tensor(literal) => literal.to_wire(),
                Value::Strings(strings) => strings.to_wire(),
            };
            json.extend_from_slice(b"],\"parameters\":{\"binary_data_size\":");
            json.extend_from_slice(itoa::Buffer::new().format(bytes.len()).as_bytes());
            json.extend_from_slice(b"}},");
            self.tensors.push(bytes);
            self.is_binary = true;
            return Ok(());
        }
        json.extend_from_slice(b"],\"data\":");
        write(&value, json).map_err(|what| {
            Failure::invalid(format!(
                "the output {:?} has {what}: ask for it with the parameter binary_data",
                output.name
            ))
        })?;
        json.extend_from_slice(b"},");
        Ok(())
    }

    /// Its size in bytes.
    pub(super) fn len(&self) -> usize {
        self.json.len() + self.tensors.iter().map(Bytes::len).sum::<usize>()
    }

    /// The answer, compressed if the client asked for that.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn respond(mut self, coding: Option<Coding>) -> Result<Response, Failure> {
        let length = self.json.len();
        if coding.is_some() || self.len() - length <= SHORT {
            self.json.reserve(self.len() - length);
            for bytes in self.tensors.drain(..) {
                self.json.extend_from_slice(&bytes);
            }
        }
        if let Some(coding) = coding {
            let failed = |error| Failure::new(Reason::Internal, format!("the answer was not compressed: {error}"));
            self.json = coding.compress(&self.json).map_err(failed)?;
        }
        let body = match self.tensors.is_empty() {
            true => Body::from(self.json),
            false => {
                let head = std::iter::once(Bytes::from(self.json));
                Body::new(Pieces(head.chain(self.tensors).collect()))
            }
        };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        let kind = match self.is_binary {
            true => "application/octet-stream",
            false => "application/json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.is_binary {
            headers.insert(HEAD_LENGTH, HeaderValue::from(length));
        }
        if let Some(coding) = coding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        Ok(response)
    }
}

/// The `most` largest numbers of each row, the largest first, as strings `VALUE:INDEX`, or `VALUE:INDEX:LABEL` if there
/// are labels.
pub(crate) fn classes(output: &NamedValue, most: usize, spec: &TensorSpec) -> Result<Value, Failure> {
    let wrong = |error: polygrad_core::Error| Failure::invalid(format!("the output {:?}: {error}", output.name));
    let values = output.value.tensor().map_err(wrong)?.host().to_f64_vec();
    let rows = match spec.batch {
        Some(0) => output.value.shape()[0],
        _ => 1,
    };
    let width = values.len() / rows.max(1);
    let most = most.min(width);
    let mut strings = Vec::with_capacity(rows * most);
    for row in values.chunks(width.max(1)) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let best = order.iter().take(most);
        strings.extend(best.map(|&index| {
            let mut text = format!("{:.6}:{index}", row[index]);
            if let Some(label) = spec.labels.get(index) {
                text += ":";
                text += label;
            }
            Bytes::from(text)
        }));
    }
    let shape = match spec.batch {
        Some(0) => Shape::new(&[rows, most]),
        _ => Shape::new(&[most]),
    };
    let strings = shape.and_then(|shape| Strings::new(shape, strings));
    Ok(Value::Strings(strings.map_err(wrong)?))
}
