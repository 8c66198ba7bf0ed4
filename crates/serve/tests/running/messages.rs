//! Messages of gRPC.

use bytes::Bytes;

use super::proto::infer_parameter::ParameterChoice;
use super::proto::model_infer_request::InferInputTensor;
use super::proto::{InferParameter, ModelInferRequest, ModelInferResponse};

pub(crate) fn input(datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor {
        name: "x".to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        ..InferInputTensor::default()
    }
}

pub(crate) fn raw(model: &str, datatype: &str, shape: &[i64], bytes: &[u8]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: model.to_owned(),
        inputs: vec![input(datatype, shape)],
        raw_input_contents: vec![Bytes::copy_from_slice(bytes)],
        ..ModelInferRequest::default()
    }
}

pub(crate) fn float(model: &str, value: f32) -> ModelInferRequest {
    raw(model, "FP32", &[1, 1], &value.to_le_bytes())
}

pub(crate) fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter {
        parameter_choice: Some(choice),
    }
}

pub(crate) fn with(mut request: ModelInferRequest, name: &str, choice: ParameterChoice) -> ModelInferRequest {
    request.parameters.insert(name.to_owned(), parameter(choice));
    request
}

pub(crate) fn first_float(response: &ModelInferResponse) -> f32 {
    f32::from_le_bytes(response.raw_output_contents[0][..4].try_into().unwrap())
}
