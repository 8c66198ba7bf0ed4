//! Activation functions.

use polygrad_nn::{ELU, GELU, LeakyReLU, LogSoftmax, ReLU, SiLU, Sigmoid, Softmax, Softplus, Tanh};
use polygrad_tensor::Backend;

use super::{Layer, axis, number};
use crate::vectors::call::{Call, CaseError, CaseResult, NAMED, unsupported};

pub(super) fn activation<B: Backend>(name: &str, call: &Call<'_, B>) -> CaseResult<Layer<B>> {
    Ok(match name {
        "ReLU" => Box::new(ReLU),
        "SiLU" => Box::new(SiLU),
        "Sigmoid" => Box::new(Sigmoid),
        "Tanh" => Box::new(Tanh),
        "GELU" => match call.text(NAMED, "approximate")? {
            None | Some("none") => Box::new(GELU::Exact),
            Some("tanh") => Box::new(GELU::Tanh),
            Some(other) => return unsupported(format!("argument approximate={other}")),
        },
        "ELU" => Box::new(ELU(number(call, "alpha", 1.0)?)),
        "LeakyReLU" => Box::new(LeakyReLU(number(call, "negative_slope", 0.01)?)),
        "Softplus" => Box::new(Softplus {
            beta: number(call, "beta", 1.0)?,
            threshold: number(call, "threshold", 20.0)?,
        }),
        "Softmax" => Box::new(Softmax(axis(call, "dim")?)),
        "LogSoftmax" => Box::new(LogSoftmax(axis(call, "dim")?)),
        _ => return Err(CaseError::OtherFamily),
    })
}
