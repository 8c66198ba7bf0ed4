//! Functions of single elements.

use polygrad_core::{Activation, BinaryOp, CompareOp, DType, Error, Result, Shape, UnaryOp, decompose};

use crate::export::call::{Call, is_exact};
use crate::export::{Onnx, OnnxTensor};

type T = OnnxTensor;

pub(crate) fn unary(op: UnaryOp, x: &T) -> Result<T> {
    if op.is_predicate() {
        return predicate(op, x);
    }
    let whole = !x.dtype.is_float();
    Ok(match op {
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc if whole => x.clone(),
        UnaryOp::Neg => x.map("Neg")?,
        UnaryOp::Abs => x.map("Abs")?,
        UnaryOp::Sign => x.map("Sign")?,
        UnaryOp::Exp => x.map("Exp")?,
        UnaryOp::Expm1 => binary(BinaryOp::Sub, &x.map("Exp")?, &x.number(1.0))?,
        UnaryOp::Log => x.map("Log")?,
        UnaryOp::Log1p => binary(BinaryOp::Add, x, &x.number(1.0))?.map("Log")?,
        UnaryOp::Sqrt => x.map("Sqrt")?,
        UnaryOp::Rsqrt => x.map("Sqrt")?.map("Reciprocal")?,
        UnaryOp::Reciprocal => x.map("Reciprocal")?,
        UnaryOp::Floor => x.map("Floor")?,
        UnaryOp::Ceil => x.map("Ceil")?,
        UnaryOp::Round => x.map("Round")?,
        UnaryOp::Trunc => binary(BinaryOp::Mul, &x.map("Sign")?, &x.map("Abs")?.map("Floor")?)?,
        UnaryOp::Sin => x.map("Sin")?,
        UnaryOp::Cos => x.map("Cos")?,
        UnaryOp::Tan => x.map("Tan")?,
        UnaryOp::Tanh => x.map("Tanh")?,
        UnaryOp::Sigmoid => x.map("Sigmoid")?,
        UnaryOp::Erf => x.map("Erf")?,
        UnaryOp::Relu => x.map("Relu")?,
        _ => return Err(unknown(op.name())),
    })
}

fn predicate(op: UnaryOp, x: &T) -> Result<T> {
    if op == UnaryOp::LogicalNot {
        return match x.dtype {
            DType::Bool => x.map("Not"),
            _ => compare(CompareOp::Eq, x, &x.number(0.0)),
        };
    }
    let test = |name| x.recording.one(Call::of(name, [x]).gives(x.shape, DType::Bool));
    match op {
        // An integer is neither NaN nor infinite, and equals itself.
        _ if !x.dtype.is_float() => match op {
            UnaryOp::IsFinite => compare(CompareOp::Eq, x, x),
            _ => compare(CompareOp::Ne, x, x),
        },
        UnaryOp::IsNan => test("IsNaN"),
        UnaryOp::IsInf => test("IsInf"),
        UnaryOp::IsFinite => binary(BinaryOp::Or, &test("IsNaN")?, &test("IsInf")?)?.map("Not"),
        _ => Err(unknown(op.name())),
    }
}

pub(crate) fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
    let shape = a.shape.broadcast(&b.shape)?;
    let emit = |name| a.recording.one(Call::of(name, [a, b]).gives(shape, a.dtype));
    if a.dtype == DType::Bool {
        return match op {
            BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or => emit("Or"),
            BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::And => emit("And"),
            BinaryOp::Xor => emit("Xor"),
            _ => Err(unknown(op.name())),
        };
    }
    match op {
        BinaryOp::Add => emit("Add"),
        BinaryOp::Sub => emit("Sub"),
        BinaryOp::Mul => emit("Mul"),
        BinaryOp::Div => emit("Div"),
        // As here, Mod has the sign of the divisor, but only for integers.
        BinaryOp::Remainder if a.dtype.is_float() => {
            let quotient = emit("Div")?.map("Floor")?;
            binary(BinaryOp::Sub, a, &binary(BinaryOp::Mul, &quotient, b)?)
        }
        BinaryOp::Remainder => emit("Mod"),
        BinaryOp::Pow => emit("Pow"),
        BinaryOp::Maximum => emit("Max"),
        BinaryOp::Minimum => emit("Min"),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
            let opset = a.recording.state().opset;
            if !opset.has_bitwise() {
                return Err(
                    Error::unsupported(format!("opset {} has no op on single bits", opset.version()))
                        .with_hint("write the model for opset 18 or later"),
                );
            }
            emit(match op {
                BinaryOp::And => "BitwiseAnd",
                BinaryOp::Or => "BitwiseOr",
                _ => "BitwiseXor",
            })
        }
        _ => Err(unknown(op.name())),
    }
}

pub(crate) fn compare(op: CompareOp, a: &T, b: &T) -> Result<T> {
    let shape = a.shape.broadcast(&b.shape)?;
    // ONNX does not order bools.
    if a.dtype == DType::Bool && !matches!(op, CompareOp::Eq | CompareOp::Ne) {
        return compare(op, &cast(a, DType::I32)?, &cast(b, DType::I32)?);
    }
    let emit = |name| a.recording.one(Call::of(name, [a, b]).gives(shape, DType::Bool));
    match op {
        CompareOp::Eq => emit("Equal"),
        CompareOp::Ne => emit("Equal")?.map("Not"),
        CompareOp::Lt => emit("Less"),
        CompareOp::Le => emit("LessOrEqual"),
        CompareOp::Gt => emit("Greater"),
        CompareOp::Ge => emit("GreaterOrEqual"),
        _ => Err(unknown(op.name())),
    }
}

pub(crate) fn select(condition: &T, a: &T, b: &T) -> Result<T> {
    let shape = select_shape(condition, a, b)?;
    if a.dtype == DType::Bool {
        // ONNX Runtime has no Where on bools.
        let chosen = binary(BinaryOp::And, condition, a)?;
        let other = binary(BinaryOp::And, &condition.map("Not")?, b)?;
        return binary(BinaryOp::Or, &chosen, &other);
    }
    let call = Call::of("Where", [condition, a, b]);
    condition.recording.one(call.gives(shape, a.dtype))
}

pub(crate) fn select_shape(condition: &T, a: &T, b: &T) -> Result<Shape> {
    condition.shape.broadcast(&a.shape)?.broadcast(&b.shape)
}

pub(crate) fn cast(x: &T, dtype: DType) -> Result<T> {
    let id = x.recording.state().cast(x.id, x.dtype, dtype)?;
    Ok(x.recording.tensor(id))
}

pub(crate) fn activation(op: Activation, x: &T) -> Result<T> {
    let has_gelu = x.recording.state().opset.has_gelu();
    match op {
        Activation::Relu => x.map("Relu"),
        Activation::Tanh => x.map("Tanh"),
        Activation::Sigmoid => x.map("Sigmoid"),
        Activation::Gelu if has_gelu => x.map("Gelu"),
        // The op's function stores its constants as f32.
        Activation::GeluTanh if has_gelu && x.dtype != DType::F64 => {
            x.like(Call::of("Gelu", [x]).text("approximate", "tanh"))
        }
        // ONNX Runtime computes it, and HardSigmoid that it is made of, only in f32.
        Activation::HardSwish { scale: 1.0, shift: 0.0 } if x.dtype == DType::F32 => x.map("HardSwish"),
        Activation::Softplus { beta: 1.0, threshold } if threshold >= same_from(x.dtype) => x.map("Softplus"),
        Activation::Elu { alpha } if is_exact(alpha, x.dtype) => x.like(Call::of("Elu", [x]).float("alpha", alpha)),
        Activation::LeakyRelu { slope } if is_exact(slope, x.dtype) => {
            x.like(Call::of("LeakyRelu", [x]).float("alpha", slope))
        }
        other => decompose::activation::<Onnx>(other, x),
    }
}

/// The smallest x for which `ln(1 + exp(x))` equals x in a dtype: `exp(-x)` is below half a unit in the last place.
fn same_from(dtype: DType) -> f64 {
    if dtype == DType::F64 { 34.0 } else { 16.0 }
}

/// Whether there is an ONNX op for a function of two operands.
pub(crate) fn has_binary(op: BinaryOp) -> bool {
    op != BinaryOp::Atan2
}

/// An op that ONNX lacks.
pub(crate) fn unknown(name: &'static str) -> Error {
    Error::unsupported("ONNX has no op for this, and it is not made of others here")
        .with_op(name)
        .with_hint("compute it from other ops, or outside the model")
}
