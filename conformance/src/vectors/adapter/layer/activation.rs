//! Activation functions.

use polygrad_nn::{
    CELU, ELU, GELU, GLU, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid, LogSoftmax, Mish, PReLUConfig, ReLU,
    ReLU6, SELU, SiLU, Sigmoid, Softmax, Softplus, Softsign, Tanh,
};
use polygrad_tensor::{Backend, Device};

use super::{Layer, axis, number};
use crate::vectors::call::{Call, CaseError, CaseResult, NAMED, unsupported};

pub(super) fn activation<B: Backend>(name: &str, call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    Ok(match name {
        "ReLU" => Box::new(ReLU),
        "SiLU" => Box::new(SiLU),
        "Sigmoid" => Box::new(Sigmoid),
        "Tanh" => Box::new(Tanh),
        "Mish" => Box::new(Mish),
        "ReLU6" => Box::new(ReLU6),
        "Hardsigmoid" => Box::new(Hardsigmoid),
        "Hardswish" => Box::new(Hardswish),
        "SELU" => Box::new(SELU),
        "LogSigmoid" => Box::new(LogSigmoid),
        "Softsign" => Box::new(Softsign),
        "PReLU" => {
            let config = PReLUConfig::new().init(number(call, "init", 0.25)?);
            Box::new(
                config
                    .num_parameters(call.size(NAMED, "num_parameters", 1)?)
                    .build(device)?,
            )
        }
        "CELU" => Box::new(CELU(number(call, "alpha", 1.0)?)),
        "Hardtanh" => Box::new(Hardtanh {
            min_val: number(call, "min_val", -1.0)?,
            max_val: number(call, "max_val", 1.0)?,
        }),
        "GLU" => Box::new(GLU(call.int(NAMED, "dim", -1)?)),
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
