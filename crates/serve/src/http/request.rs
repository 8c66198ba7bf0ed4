//! Inference requests: JSON, followed by the bytes of tensors.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use bytes::Bytes;
use polygrad_core::{MAX_RANK, Shape};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::{Array, SmallVec};

use super::data;
use crate::{Failure, InferRequest, NamedValue, SequenceId, SequenceStep, Signature, Value, datatype, protocol};

/// A parsed request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: InferRequest,
    pub(super) wanted: Wanted,
}

/// The contents and form of the answer.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) id: Option<String>,
    /// The outputs' indices in the signature; `None` for all outputs.
    pub(super) outputs: Option<SmallVec<[(usize, Form); 4]>>,
    /// The form of outputs that are not named.
    pub(super) form: Form,
}

impl Wanted {
    /// Whether values are written as JSON.
    pub(super) fn is_text(&self) -> bool {
        match &self.outputs {
            None => !self.form.is_binary,
            Some(outputs) => outputs.iter().any(|(_, form)| !form.is_binary || form.classes > 0),
        }
    }
}

/// How an output is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// As bytes after the JSON.
    pub(super) is_binary: bool,
    /// Only this many of the largest values, as strings `VALUE:INDEX`; 0 for all values.
    pub(super) classes: usize,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    parameters: Option<RequestParameters<'a>>,
    #[serde(borrow)]
    inputs: Few<[Input<'a>; 1], 256>,
    #[serde(borrow)]
    outputs: Option<Few<[Output<'a>; 1], 256>>,
}

#[derive(Default, Deserialize)]
struct RequestParameters<'a> {
    #[serde(borrow)]
    sequence_id: Option<Id<'a>>,
    sequence_start: Option<bool>,
    sequence_end: Option<bool>,
    priority: Option<u64>,
    /// In microseconds.
    timeout: Option<u64>,
    binary_data_output: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a sequence_id is a number from 0 or a text")]
enum Id<'a> {
    Number(u64),
    #[serde(borrow)]
    Text(Cow<'a, str>),
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    shape: Few<[usize; MAX_RANK], MAX_RANK>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    parameters: Option<InputParameters>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct InputParameters {
    binary_data_size: Option<usize>,
    shared_memory_region: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    parameters: Option<OutputParameters>,
}

#[derive(Default, Deserialize)]
struct OutputParameters {
    binary_data: Option<bool>,
    #[serde(default)]
    classification: usize,
    shared_memory_region: Option<IgnoredAny>,
}

/// A text that is not copied if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A list of at most `MOST`.
struct Few<A: Array, const MOST: usize>(SmallVec<A>);

impl<'de, A: Array<Item: Deserialize<'de>>, const MOST: usize> Deserialize<'de> for Few<A, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<A, const MOST: usize>(PhantomData<A>);

        impl<'de, A: Array<Item: Deserialize<'de>>, const MOST: usize> Visitor<'de> for List<A, MOST> {
            type Value = Few<A, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST}")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
                let mut few = SmallVec::new();
                while let Some(next) = list.next_element()? {
                    if few.len() == MOST {
                        return Err(S::Error::custom(format_args!("a list of more than {MOST}")));
                    }
                    few.push(next);
                }
                Ok(Few(few))
            }
        }

        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// Reads a body whose first `head` bytes are JSON, or all of it if that is `None`.
///
/// # Errors
/// An invalid request, or one that does not fit a model with this signature.
pub(super) fn read(body: &Bytes, head: Option<usize>, signature: &Signature) -> Result<Asked, Failure> {
    let length = head.unwrap_or(body.len());
    if length > body.len() {
        return Err(Failure::invalid(format!(
            "Inference-Header-Content-Length is {length}, and the body has {} bytes",
            body.len()
        )));
    }
    let wrong =
        |error: &dyn fmt::Display| Failure::invalid(format!("the JSON is not that of an inference request: {error}"));
    // Validated at once rather than string by string.
    let head = str::from_utf8(&body[..length]).map_err(|error| wrong(&error))?;
    let head: Head<'_> = serde_json::from_str(head).map_err(|error| wrong(&error))?;
    let parameters = head.parameters.unwrap_or_default();
    let mut rest = body.slice(length..);
    let mut inputs = Vec::with_capacity(head.inputs.0.len());
    for input in head.inputs.0 {
        inputs.push(self::input(input, body, &mut rest)?);
    }
    if !rest.is_empty() {
        return Err(Failure::invalid(format!(
            "{} bytes behind the JSON belong to no input: binary_data_size says how many are whose",
            rest.len()
        )));
    }
    let form = Form {
        is_binary: parameters.binary_data_output.unwrap_or(false),
        classes: 0,
    };
    let outputs = head
        .outputs
        .map(|outputs| outputs.0)
        .filter(|outputs| !outputs.is_empty());
    Ok(Asked {
        wanted: Wanted {
            id: head.id.map(|id| id.0.into_owned()),
            outputs: outputs.map(|outputs| places(&outputs, form, signature)).transpose()?,
            form,
        },
        request: InferRequest {
            inputs,
            priority: parameters.priority.unwrap_or(0),
            deadline: parameters.timeout.and_then(deadline),
            sequence: sequence(&parameters),
        },
    })
}

/// Counted from now on; `None` for a timeout of 0, and for one too long to represent.
fn deadline(microseconds: u64) -> Option<Instant> {
    (microseconds > 0).then(|| Instant::now().checked_add(Duration::from_micros(microseconds)))?
}

/// `None` for the number 0 and the empty text.
fn sequence(parameters: &RequestParameters<'_>) -> Option<SequenceStep> {
    let id = match parameters.sequence_id.as_ref()? {
        Id::Number(0) => return None,
        Id::Number(number) => SequenceId::Number(*number),
        Id::Text(text) if text.is_empty() => return None,
        Id::Text(text) => SequenceId::Text(text.clone().into_owned()),
    };
    Some(SequenceStep {
        id,
        start: parameters.sequence_start.unwrap_or(false),
        end: parameters.sequence_end.unwrap_or(false),
    })
}

fn no_shared_memory(region: Option<&IgnoredAny>, name: &str) -> Result<(), Failure> {
    region.map_or(Ok(()), |_| Err(protocol::in_shared_memory(name)))
}

/// The requested outputs, by their indices in the signature.
fn places(outputs: &[Output<'_>], form: Form, signature: &Signature) -> Result<SmallVec<[(usize, Form); 4]>, Failure> {
    let mut places: SmallVec<[(usize, Form); 4]> = SmallVec::new();
    for output in outputs {
        let place = protocol::output_place(signature, &output.name)?;
        if places.iter().any(|(found, _)| *found == place) {
            return Err(Failure::invalid(format!(
                "the output {:?} is asked for twice",
                output.name
            )));
        }
        let mut own = form;
        if let Some(parameters) = &output.parameters {
            no_shared_memory(parameters.shared_memory_region.as_ref(), &output.name)?;
            own.is_binary = parameters.binary_data.unwrap_or(form.is_binary);
            own.classes = parameters.classification;
        }
        places.push((place, own));
    }
    Ok(places)
}

/// Reads an input, from its JSON or from the front of the remaining bytes.
fn input(input: Input<'_>, body: &Bytes, rest: &mut Bytes) -> Result<NamedValue, Failure> {
    let name = &*input.name;
    let Some(element) = datatype(&input.datatype) else {
        return Err(Failure::invalid(format!(
            "{name:?} is of datatype {:?}, which there is not: take one such as FP32 or INT64",
            input.datatype
        )));
    };
    let wrong = |error| Failure::invalid(format!("the input {name:?}: {error}"));
    let shape = Shape::new(&input.shape.0).map_err(wrong)?;
    let parameters = input.parameters.unwrap_or_default();
    no_shared_memory(parameters.shared_memory_region.as_ref(), name)?;
    let value = match (input.data, parameters.binary_data_size) {
        (Some(_), Some(_)) => Err(Failure::invalid(format!(
            "{name:?} has both data and binary_data_size: leave one out"
        ))),
        (None, None) => Err(Failure::invalid(format!(
            "{name:?} has no data: write them as data, or send bytes and their number as binary_data_size"
        ))),
        (Some(data), None) => data::read(name, element, shape, data, body),
        (None, Some(size)) if size > rest.len() => Err(Failure::invalid(format!(
            "{name:?} is said to have {size} bytes, and {} are left behind the JSON (is Inference-Header-Content-Length \
             the length of the JSON?)",
            rest.len()
        ))),
        (None, Some(size)) => Value::from_wire(element, shape, rest.split_to(size)).map_err(wrong),
    };
    Ok(NamedValue {
        value: value?,
        name: input.name.into_owned(),
    })
}
