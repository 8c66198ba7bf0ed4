//! Ops on each element.

use polygrad_core::BinaryOp;
use polygrad_tensor::{Backend, ClampBound, DType, Result, RoundingMode, Scalar, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, one, unsupported};

/// Both operands; a number takes the other's dtype, unless it is of a higher kind.
fn operands<B: Backend>(call: &Call<'_, B>) -> CaseResult<(Tensor<B>, Tensor<B>)> {
    let like = |scalar: Scalar, other: &Tensor<B>| {
        let dtype = other.dtype().promote_scalar(scalar);
        Tensor::full((), scalar, (&other.device(), dtype))
    };
    Ok(match (call.scalar(0, "input"), call.scalar(1, "other")) {
        (Some(a), None) => {
            let b = call.tensor(1, "other")?;
            (like(a, b)?, b.clone())
        }
        (None, Some(b)) => {
            let a = call.tensor(0, "input")?;
            (a.clone(), like(b, a)?)
        }
        _ => (call.tensor(0, "input")?.clone(), call.tensor(1, "other")?.clone()),
    })
}

/// An operation on two tensors, or on a tensor and a number, which is not rounded to a tensor's dtype.
fn binary<B: Backend>(call: &Call<'_, B>, op: BinaryOp) -> CaseOutputs<B> {
    one(match (call.scalar(0, "input"), call.scalar(1, "other")) {
        (Some(a), None) => call.tensor(1, "other")?.binary_scalar(op, a, true)?,
        (None, Some(b)) => call.tensor(0, "input")?.binary_scalar(op, b, false)?,
        _ => call.tensor(0, "input")?.binary(op, call.tensor(1, "other")?)?,
    })
}

/// Addition or subtraction of an operand that is scaled by `alpha`.
fn sum<B: Backend>(call: &Call<'_, B>, op: BinaryOp) -> CaseOutputs<B> {
    let Some(alpha) = call.scalar(9, "alpha") else {
        return binary(call, op);
    };
    let (a, b) = operands(call)?;
    one(a.binary(op, &b.binary_scalar(BinaryOp::Mul, alpha, false)?)?)
}

fn pow<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    one(match (call.scalar(0, "input"), call.scalar(1, "exponent")) {
        (Some(base), _) => call.tensor(1, "exponent")?.binary_scalar(BinaryOp::Pow, base, true)?,
        (None, Some(exponent)) => call.tensor(0, "input")?.pow(exponent)?,
        (None, None) => call.tensor(0, "input")?.pow(call.tensor(1, "exponent")?)?,
    })
}

fn div<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let Some(mode) = call.text(9, "rounding_mode")? else {
        return binary(call, BinaryOp::Div);
    };
    let (a, b) = operands(call)?;
    one(match mode {
        "floor" => a.div_rounded(&b, RoundingMode::Floor)?,
        "trunc" => a.div_rounded(&b, RoundingMode::Trunc)?,
        other => return unsupported(format!("argument rounding_mode={other}")),
    })
}

fn round<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let decimals = call.int(1, "decimals", 0)?;
    let scale = 10f64.powi(i32::try_from(decimals.unsigned_abs()).unwrap_or(i32::MAX));
    one(match decimals {
        0 => x.round()?,
        1.. => ((x * scale)?.round()? / scale)?,
        _ => ((x / scale)?.round()? * scale)?,
    })
}

fn clamp<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let bound = |position, name| {
        let tensor = call.optional_tensor(position, name)?.map(ClampBound::Tensor);
        Ok::<_, CaseError>(tensor.or_else(|| call.scalar(position, name).map(ClampBound::Number)))
    };
    one(call.tensor(0, "input")?.clamp(bound(1, "min")?, bound(2, "max")?)?)
}

fn gelu<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    one(match call.text(1, "approximate")? {
        None | Some("none") => x.gelu()?,
        Some("tanh") => x.gelu_tanh()?,
        Some(other) => return unsupported(format!("argument approximate={other}")),
    })
}

fn masked_fill<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let (x, mask) = (call.tensor(0, "input")?, call.tensor(1, "mask")?);
    one(match call.scalar(2, "value") {
        Some(value) => x.masked_fill(mask, value)?,
        None => Tensor::where_(mask, call.tensor(2, "value")?, x)?,
    })
}

fn dropout<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let p = call.float(1, "p", 0.5)?;
    one(if call.flag(2, "training", true)? {
        x.dropout(p)?
    } else {
        x.clone()
    })
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let unary = |method: fn(&Tensor<B>) -> Result<Tensor<B>>| one(method(call.tensor(0, "input")?)?);
    let compared = |method: fn(&Tensor<B>, &Tensor<B>) -> Result<Tensor<B>>| {
        let (a, b) = operands(call)?;
        one(method(&a, &b)?)
    };
    match call.op() {
        "add" => sum(call, BinaryOp::Add),
        "sub" => sum(call, BinaryOp::Sub),
        "mul" => binary(call, BinaryOp::Mul),
        "div" => div(call),
        "fmod" => one(match call.scalar(1, "other") {
            Some(other) => call.tensor(0, "input")?.fmod(other)?,
            None => call.tensor(0, "input")?.fmod(call.tensor(1, "other")?)?,
        }),
        "pow" => pow(call),
        "max" if call.optional_tensor(1, "other")?.is_some() => binary(call, BinaryOp::Maximum),
        "min" if call.optional_tensor(1, "other")?.is_some() => binary(call, BinaryOp::Minimum),
        "neg" => unary(Tensor::neg),
        "exp" => unary(Tensor::exp),
        "log" => unary(Tensor::log),
        "log1p" => unary(Tensor::log1p),
        "expm1" => unary(Tensor::expm1),
        "sqrt" => unary(Tensor::sqrt),
        "rsqrt" => unary(Tensor::rsqrt),
        "reciprocal" => unary(Tensor::reciprocal),
        "abs" => unary(Tensor::abs),
        "sign" => unary(Tensor::sign),
        "floor" => unary(Tensor::floor),
        "ceil" => unary(Tensor::ceil),
        "round" => round(call),
        "sin" => unary(Tensor::sin),
        "cos" => unary(Tensor::cos),
        "tan" => unary(Tensor::tan),
        "tanh" => unary(Tensor::tanh),
        "sigmoid" => unary(Tensor::sigmoid),
        "erf" => unary(Tensor::erf),
        "clamp" => clamp(call),
        "where" => {
            let (mut condition, mut a) = (call.tensor(0, "condition")?, call.tensor(1, "input")?);
            // OpInfo's own order has the input first.
            if condition.dtype() != DType::Bool && a.dtype() == DType::Bool {
                (condition, a) = (a, condition);
            }
            one(Tensor::where_(condition, a, call.tensor(2, "other")?)?)
        }
        "masked_fill" => masked_fill(call),
        "eq" => compared(|a, b| a.eq(b)),
        "ne" => compared(|a, b| a.ne(b)),
        "lt" => compared(|a, b| a.lt(b)),
        "le" => compared(|a, b| a.le(b)),
        "gt" => compared(|a, b| a.gt(b)),
        "ge" => compared(|a, b| a.ge(b)),
        "logical_and" => compared(Tensor::logical_and),
        "logical_or" => compared(Tensor::logical_or),
        "logical_not" => unary(Tensor::logical_not),
        "isnan" => unary(Tensor::isnan),
        "isfinite" => unary(Tensor::isfinite),
        "nn.functional.relu" => unary(Tensor::relu),
        "nn.functional.silu" => unary(Tensor::silu),
        "nn.functional.gelu" => gelu(call),
        "nn.functional.leaky_relu" => {
            one(call
                .tensor(0, "input")?
                .leaky_relu(call.float(1, "negative_slope", 0.01)?)?)
        }
        "nn.functional.elu" => one(call.tensor(0, "input")?.elu(call.float(1, "alpha", 1.0)?)?),
        "nn.functional.softplus" => {
            let (beta, threshold) = (call.float(1, "beta", 1.0)?, call.float(2, "threshold", 20.0)?);
            one(call.tensor(0, "input")?.softplus(beta, threshold)?)
        }
        "nn.functional.dropout" => dropout(call),
        name => match BinaryOp::ALL.iter().find(|op| op.name() == name) {
            Some(op) => binary(call, *op),
            None => Err(CaseError::OtherFamily),
        },
    }
}
