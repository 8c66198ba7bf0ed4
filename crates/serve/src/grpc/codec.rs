//! Conversion of gRPC messages to requests, and of answers to messages.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use bytes::Bytes;
use polygrad_core::{Element, Error, HostTensor, Result, Shape};
use polygrad_onnx::graph::{ElementType, Literal};
use smallvec::SmallVec;
use tonic::metadata::MetadataMap;

use super::proto::infer_parameter::ParameterChoice;
use super::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use super::proto::model_infer_response::InferOutputTensor;
use super::proto::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use crate::http::classes;
use crate::value::shown;
use crate::{
    Failure, InferRequest, InferResponse, NamedValue, SequenceId, SequenceStep, Signature, Strings, Value, datatype,
    protocol,
};

type Parameters = BTreeMap<String, InferParameter>;

/// The answer that a request asks for.
pub(super) struct Wanted {
    model: String,
    id: String,
    /// The outputs, by their indices in the signature, and how many of the largest classes of each to return; 0 for the
    /// values. Empty for all outputs.
    outputs: SmallVec<[(usize, usize); 4]>,
    /// Whether the answer says that it is the last one.
    says_final: bool,
}

/// Parses a version number; `None` for the version that is served by default.
pub(super) fn version(text: &str) -> Result<Option<u64>, Failure> {
    match text {
        "" => Ok(None),
        text => protocol::version(text).map(Some),
    }
}

/// The deadline of a call, from its header `grpc-timeout`.
pub(super) fn deadline(metadata: &MetadataMap) -> Result<Option<Instant>, Failure> {
    let Some(value) = metadata.get("grpc-timeout") else {
        return Ok(None);
    };
    let wrong = || {
        Failure::invalid(format!(
            "grpc-timeout is up to eight digits and one of H, M, S, m, u and n, and this is {value:?}"
        ))
    };
    let text = value.to_str().map_err(|_| wrong())?;
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    if number.len() > 8 || !number.bytes().all(|c| c.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let time = match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return Err(wrong()),
    };
    Ok(Instant::now().checked_add(time))
}

/// Reads a request for a model with this signature. Its call ends at `until`.
pub(super) fn read(
    request: ModelInferRequest,
    signature: &Signature,
    until: Option<Instant>,
) -> Result<(InferRequest, Wanted), Failure> {
    let parameters = Read(&request.parameters);
    let timeout = parameters.number("timeout")?.filter(|&timeout| timeout > 0);
    let timeout = timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_micros(timeout)));
    let (priority, sequence) = (parameters.number("priority")?.unwrap_or(0), parameters.sequence()?);
    let says_final = parameters.flag("triton_enable_empty_final_response")?;
    let wanted = Wanted {
        model: request.model_name,
        id: request.id,
        outputs: read_outputs(request.outputs, signature)?,
        says_final,
    };
    let request = InferRequest {
        inputs: read_inputs(request.inputs, request.raw_input_contents)?,
        priority,
        deadline: [until, timeout].into_iter().flatten().min(),
        sequence,
    };
    Ok((request, wanted))
}

fn read_inputs(inputs: Vec<InferInputTensor>, raw: Vec<Bytes>) -> Result<Vec<NamedValue>, Failure> {
    if !raw.is_empty() && raw.len() != inputs.len() {
        return Err(Failure::invalid(format!(
            "raw_input_contents has {} entries for {} inputs: give one for each, or none",
            raw.len(),
            inputs.len()
        )));
    }
    let mut raw = raw.into_iter();
    let values = inputs.into_iter().map(|input| {
        let InferInputTensor {
            name,
            datatype: named,
            shape,
            parameters,
            contents,
        } = input;
        no_shared_memory(&Read(&parameters), &name)?;
        let Some(element) = datatype(&named) else {
            return Err(Failure::invalid(format!(
                "the input {name:?} is of datatype {named:?}, which the protocol lacks"
            )));
        };
        let raw = raw.next();
        if raw.is_some() && contents.is_some() {
            return Err(Failure::invalid(format!(
                "the input {name:?} is in contents and in raw_input_contents: give one of them"
            )));
        }
        let value = read_shape(&shape).and_then(|shape| match raw {
            Some(raw) => Value::from_wire(element, shape, raw),
            None => read_contents(element, shape, contents.unwrap_or_default()),
        });
        let value = value.map_err(|error| Failure::invalid(format!("in the input {name:?}: {error}")))?;
        Ok(NamedValue { name, value })
    });
    values.collect()
}

fn read_shape(shape: &[i64]) -> Result<Shape> {
    let negative = |_| Error::shape(format!("the shape {shape:?} is negative"));
    let extents = shape.iter().map(|&extent| usize::try_from(extent).map_err(negative));
    Shape::new(&extents.collect::<Result<SmallVec<[usize; 8]>>>()?)
}

fn read_contents(element: ElementType, shape: Shape, contents: InferTensorContents) -> Result<Value> {
    let wire = |bytes: Result<Bytes>| Value::from_wire(element, shape, bytes?);
    match element {
        ElementType::Bool => numbers(element, shape, contents.bool_contents),
        ElementType::I8 => wire(pack(&contents.int_contents, |v| {
            Some(i8::try_from(v).ok()?.to_le_bytes())
        })),
        ElementType::I16 => wire(pack(&contents.int_contents, |v| {
            Some(i16::try_from(v).ok()?.to_le_bytes())
        })),
        ElementType::I32 => numbers(element, shape, contents.int_contents),
        ElementType::I64 => numbers(element, shape, contents.int64_contents),
        ElementType::U8 => wire(pack(&contents.uint_contents, |v| {
            Some(u8::try_from(v).ok()?.to_le_bytes())
        })),
        ElementType::U16 => wire(pack(&contents.uint_contents, |v| {
            Some(u16::try_from(v).ok()?.to_le_bytes())
        })),
        ElementType::U32 => wire(pack(&contents.uint_contents, |v| Some(v.to_le_bytes()))),
        ElementType::U64 => wire(pack(&contents.uint64_contents, |v| Some(v.to_le_bytes()))),
        ElementType::F32 => numbers(element, shape, contents.fp32_contents),
        ElementType::F64 => numbers(element, shape, contents.fp64_contents),
        ElementType::String => Ok(Value::Strings(Strings::new(shape, contents.bytes_contents)?)),
        _ => Err(Error::dtype(format!(
            "contents has no field for {}: give it in raw_input_contents",
            shown(element)
        ))),
    }
}

fn numbers<T: Element>(element: ElementType, shape: Shape, values: Vec<T>) -> Result<Value> {
    Ok(Value::Tensor(Literal::new(element, HostTensor::new(shape, values)?)?))
}

/// The bytes of values that have a wider type in the message.
fn pack<T: Copy + Display, const N: usize>(values: &[T], bytes: impl Fn(T) -> Option<[u8; N]>) -> Result<Bytes> {
    let mut packed = Vec::with_capacity(values.len() * N);
    for &value in values {
        let value = bytes(value)
            .ok_or_else(|| Error::out_of_range(format!("{value} does not fit the datatype, which has {N} bytes")))?;
        packed.extend_from_slice(&value);
    }
    Ok(packed.into())
}

fn read_outputs(
    outputs: Vec<InferRequestedOutputTensor>,
    signature: &Signature,
) -> Result<SmallVec<[(usize, usize); 4]>, Failure> {
    let places = outputs
        .into_iter()
        .map(|InferRequestedOutputTensor { name, parameters }| {
            let parameters = Read(&parameters);
            no_shared_memory(&parameters, &name)?;
            let place = protocol::output_place(signature, &name)?;
            let classes = parameters.number("classification")?.unwrap_or(0);
            Ok((place, usize::try_from(classes).unwrap_or(usize::MAX)))
        });
    places.collect()
}

fn no_shared_memory(parameters: &Read<'_>, name: &str) -> Result<(), Failure> {
    let region = parameters.get("shared_memory_region");
    region.map_or(Ok(()), |_| Err(protocol::in_shared_memory(name)))
}

/// Writes the requested outputs as raw bytes.
pub(super) fn write(
    wanted: Wanted,
    response: InferResponse,
    signature: &Signature,
) -> Result<ModelInferResponse, Failure> {
    let InferResponse { version, outputs } = response;
    let found = match wanted.outputs.is_empty() {
        true => outputs,
        false => pick(&wanted.outputs, &outputs, signature)?,
    };
    let mut outputs = Vec::with_capacity(found.len());
    let mut raw_output_contents = Vec::with_capacity(found.len());
    for NamedValue { name, value } in found {
        outputs.push(InferOutputTensor {
            name,
            datatype: shown(value.element()).to_owned(),
            shape: value.shape().iter().map(|&extent| extent as i64).collect(),
            ..InferOutputTensor::default()
        });
        raw_output_contents.push(value.to_wire());
    }
    let last = InferParameter {
        parameter_choice: Some(ParameterChoice::BoolParam(true)),
    };
    let last = wanted.says_final.then(|| ("triton_final_response".to_owned(), last));
    Ok(ModelInferResponse {
        model_name: wanted.model,
        model_version: version.to_string(),
        id: wanted.id,
        parameters: last.into_iter().collect(),
        outputs,
        raw_output_contents,
    })
}

fn pick(wanted: &[(usize, usize)], found: &[NamedValue], signature: &Signature) -> Result<Vec<NamedValue>, Failure> {
    let picked = wanted.iter().map(|&(place, most)| {
        let spec = &signature.outputs[place];
        let output = protocol::output(found, spec)?;
        match most {
            0 => Ok(output.clone()),
            most => Ok(NamedValue {
                name: spec.name.clone(),
                value: classes(output, most, spec)?,
            }),
        }
    });
    picked.collect()
}

/// Reads parameters.
struct Read<'a>(&'a Parameters);

impl Read<'_> {
    fn get(&self, name: &str) -> Option<&ParameterChoice> {
        self.0.get(name)?.parameter_choice.as_ref()
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let number = match self.get(name) {
            None => return Ok(None),
            Some(ParameterChoice::Uint64Param(number)) => Some(*number),
            Some(ParameterChoice::Int64Param(number)) => u64::try_from(*number).ok(),
            Some(_) => None,
        };
        let wrong = || Failure::invalid(format!("the parameter {name} is a whole number from 0"));
        number.map(Some).ok_or_else(wrong)
    }

    fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.get(name) {
            None => Ok(false),
            Some(ParameterChoice::BoolParam(flag)) => Ok(*flag),
            Some(_) => Err(Failure::invalid(format!("the parameter {name} is true or false"))),
        }
    }

    fn sequence(&self) -> Result<Option<SequenceStep>, Failure> {
        let id = match self.get("sequence_id") {
            Some(ParameterChoice::StringParam(text)) => {
                Some(SequenceId::Text(text.clone())).filter(|_| !text.is_empty())
            }
            _ => self.number("sequence_id")?.filter(|&id| id > 0).map(SequenceId::Number),
        };
        let (start, end) = (self.flag("sequence_start")?, self.flag("sequence_end")?);
        Ok(id.map(|id| SequenceStep { id, start, end }))
    }
}
