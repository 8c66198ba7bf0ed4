//! The table of ops: the CUDA C of each op, by the class of its dtype.
//!
//! CUDA's functions are within 2 units in the last place (f32: `sinf`, `cosf`, `tanhf`, `erff`, `expm1f` 2, `expf`,
//! `logf`, `log1pf` 1; `tanf` 4, the most that the contract allows), except `powf` (4) and `atan2f` (3), which are
//! computed in f64 and rounded. For f64, `tan` has 2, `pow` 2, `atan2` 2, `erf` 2. Source: the tables of the CUDA C++
//! programming guide, "Mathematical functions".

use polygrad_core::{BinaryOp, CompareOp, DType, UnaryOp};

/// Classes of dtypes that share their expressions. f16 and bf16 are computed in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Single,
    Double,
    Int,
    Bool,
}

impl Class {
    pub(crate) const fn of(dtype: DType) -> Self {
        match dtype {
            DType::F64 => Self::Double,
            DType::F16 | DType::BF16 | DType::F32 => Self::Single,
            DType::Bool => Self::Bool,
            DType::U8 | DType::I32 | DType::I64 => Self::Int,
        }
    }
}

/// The expression of a function of `x`, of type `C`.
pub(crate) fn unary(op: UnaryOp, class: Class) -> Option<&'static str> {
    use Class::{Bool, Double, Int, Single};
    Some(match (op, class) {
        (UnaryOp::LogicalNot, _) => "x == 0",
        (UnaryOp::IsNan, _) => "is_nan(x)",
        (UnaryOp::IsInf, _) => "!is_finite(x) && !is_nan(x)",
        (UnaryOp::IsFinite, _) => "is_finite(x)",
        (_, Bool) => return None,
        (UnaryOp::Neg, Int) => "wrap_sub((C)0, x)",
        (UnaryOp::Neg, _) => "-x",
        (UnaryOp::Abs, Int) => "x < 0 ? wrap_sub((C)0, x) : x",
        (UnaryOp::Abs, Single) => "fabsf(x)",
        (UnaryOp::Abs, Double) => "fabs(x)",
        (UnaryOp::Sign, _) => "sign_of(x)",
        (UnaryOp::Relu, _) => "x < 0 ? (C)0 : x",
        (UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc, Int) => "x",
        (UnaryOp::Floor, Single) => "floorf(x)",
        (UnaryOp::Floor, Double) => "floor(x)",
        (UnaryOp::Ceil, Single) => "ceilf(x)",
        (UnaryOp::Ceil, Double) => "ceil(x)",
        (UnaryOp::Round, Single) => "rintf(x)",
        (UnaryOp::Round, Double) => "rint(x)",
        (UnaryOp::Trunc, Single) => "truncf(x)",
        (UnaryOp::Trunc, Double) => "trunc(x)",
        (_, Int) => return None,
        (UnaryOp::Exp, Single) => "expf(x)",
        (UnaryOp::Exp, Double) => "exp(x)",
        (UnaryOp::Expm1, Single) => "expm1f(x)",
        (UnaryOp::Expm1, Double) => "expm1(x)",
        (UnaryOp::Log, Single) => "logf(x)",
        (UnaryOp::Log, Double) => "log(x)",
        (UnaryOp::Log1p, Single) => "log1pf(x)",
        (UnaryOp::Log1p, Double) => "log1p(x)",
        (UnaryOp::Sqrt, Single) => "sqrtf(x)",
        (UnaryOp::Sqrt, Double) => "sqrt(x)",
        (UnaryOp::Rsqrt, Single) => "1.0f / sqrtf(x)",
        (UnaryOp::Rsqrt, Double) => "1.0 / sqrt(x)",
        (UnaryOp::Reciprocal, _) => "(C)1 / x",
        (UnaryOp::Sin, Single) => "sinf(x)",
        (UnaryOp::Sin, Double) => "sin(x)",
        (UnaryOp::Cos, Single) => "cosf(x)",
        (UnaryOp::Cos, Double) => "cos(x)",
        (UnaryOp::Tan, Single) => "tanf(x)",
        (UnaryOp::Tan, Double) => "tan(x)",
        (UnaryOp::Tanh, Single) => "tanhf(x)",
        (UnaryOp::Tanh, Double) => "tanh(x)",
        (UnaryOp::Sigmoid, _) => "sigmoid(x)",
        (UnaryOp::Erf, Single) => "erff(x)",
        (UnaryOp::Erf, Double) => "erf(x)",
        _ => return None,
    })
}

/// The expression of a function of `a` and `b`, of type `C`.
pub(crate) fn binary(op: BinaryOp, class: Class) -> Option<&'static str> {
    use Class::{Bool, Double, Int, Single};
    Some(match (op, class) {
        (BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or, Bool) => "a || b",
        (BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::And, Bool) => "a && b",
        (BinaryOp::Xor, Bool) => "a != b",
        (_, Bool) => return None,
        (BinaryOp::Add, Int) => "wrap_add(a, b)",
        (BinaryOp::Sub, Int) => "wrap_sub(a, b)",
        (BinaryOp::Mul, Int) => "wrap_mul(a, b)",
        (BinaryOp::Div, Int) => "quotient(a, b)",
        (BinaryOp::Pow, Int) => "int_pow(a, b)",
        (BinaryOp::And, Int) => "a & b",
        (BinaryOp::Or, Int) => "a | b",
        (BinaryOp::Xor, Int) => "a ^ b",
        (BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, _) | (BinaryOp::Atan2, Int) => return None,
        (BinaryOp::Add, _) => "a + b",
        (BinaryOp::Sub, _) => "a - b",
        (BinaryOp::Mul, _) => "a * b",
        (BinaryOp::Div, _) => "a / b",
        (BinaryOp::Remainder, _) => "floored(a, b)",
        (BinaryOp::Maximum, _) => "larger(a, b)",
        (BinaryOp::Minimum, _) => "smaller(a, b)",
        (BinaryOp::Pow, Single) => "(f32)pow((f64)a, (f64)b)",
        (BinaryOp::Pow, Double) => "pow(a, b)",
        (BinaryOp::Atan2, Single) => "(f32)atan2((f64)a, (f64)b)",
        (BinaryOp::Atan2, Double) => "atan2(a, b)",
        _ => return None,
    })
}

/// The expression of a comparison of `a` and `b`.
pub(crate) fn compare(op: CompareOp) -> Option<&'static str> {
    Some(match op {
        CompareOp::Eq => "a == b",
        CompareOp::Ne => "a != b",
        CompareOp::Lt => "a < b",
        CompareOp::Le => "a <= b",
        CompareOp::Gt => "a > b",
        CompareOp::Ge => "a >= b",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_what_is_defined_and_nothing_else() {
        for dtype in DType::ALL {
            let class = Class::of(dtype);
            for &op in UnaryOp::ALL {
                assert_eq!(unary(op, class).is_some(), op.accepts(dtype), "{} {dtype}", op.name());
            }
            for op in BinaryOp::core() {
                assert_eq!(binary(op, class).is_some(), op.accepts(dtype), "{} {dtype}", op.name());
            }
        }
        assert!(CompareOp::ALL.iter().all(|&op| compare(op).is_some()));
    }
}
