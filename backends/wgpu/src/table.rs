//! The table of ops: the shader expression of each op, for each kind of number.

use polygrad_core::{BinaryOp, CompareOp, DType, UnaryOp};

/// How numbers are represented in a shader. Bool is `bool`, u8 a `u32` that is truncated to eight bits; all floats are
/// f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    I32,
    I64,
    U8,
    Bool,
}

impl Kind {
    pub(crate) const fn of(dtype: DType) -> Self {
        match dtype {
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Self::Float,
            DType::I32 => Self::I32,
            DType::I64 => Self::I64,
            DType::U8 => Self::U8,
            DType::Bool => Self::Bool,
        }
    }

    /// Prefix of the library's integer functions.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Float => "f",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 | Self::Bool => "u8",
        }
    }

    /// The literal of a small number.
    pub(crate) fn literal(self, value: i32) -> String {
        match self {
            Self::Float => format!("{value}.0"),
            Self::I32 => format!("{value}"),
            Self::I64 => format!("{value}li"),
            Self::U8 => format!("{value}u"),
            Self::Bool => (if value != 0 { "true" } else { "false" }).to_owned(),
        }
    }
}

/// An op with one operand; `None` if it is not defined.
pub(crate) fn unary(op: UnaryOp, dtype: DType, x: &str) -> Option<String> {
    if !op.accepts(dtype) {
        return None;
    }
    let kind = Kind::of(dtype);
    let zero = kind.literal(0);
    let one = kind.literal(1);
    if kind == Kind::Float {
        return float_unary(op, x);
    }
    Some(match op {
        UnaryOp::LogicalNot if kind == Kind::Bool => format!("!{x}"),
        UnaryOp::LogicalNot => format!("({x} == {zero})"),
        UnaryOp::IsNan | UnaryOp::IsInf => "false".to_owned(),
        UnaryOp::IsFinite => "true".to_owned(),
        UnaryOp::Neg if kind == Kind::U8 => format!("((0u - {x}) & 255u)"),
        UnaryOp::Neg => format!("({zero} - {x})"),
        UnaryOp::Abs if kind == Kind::U8 => x.to_owned(),
        UnaryOp::Abs => format!("select({x}, {zero} - {x}, {x} < {zero})"),
        UnaryOp::Sign if kind == Kind::U8 => format!("min({x}, 1u)"),
        UnaryOp::Sign => format!("select(select({zero}, {one}, {x} > {zero}), {zero} - {one}, {x} < {zero})"),
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => x.to_owned(),
        UnaryOp::Relu => format!("max({x}, {zero})"),
        _ => return None,
    })
}

fn float_unary(op: UnaryOp, x: &str) -> Option<String> {
    let function = match op {
        UnaryOp::Neg => "f_neg",
        UnaryOp::Abs => "f_abs",
        UnaryOp::Sign => "f_sign",
        UnaryOp::Exp => "p_exp",
        UnaryOp::Expm1 => "p_expm1",
        UnaryOp::Log => "p_log",
        UnaryOp::Log1p => "p_log1p",
        UnaryOp::Sqrt => "p_sqrt",
        UnaryOp::Rsqrt => "p_rsqrt",
        UnaryOp::Reciprocal => return Some(format!("p_div(1.0, {x})")),
        UnaryOp::Floor => "f_floor",
        UnaryOp::Ceil => "f_ceil",
        UnaryOp::Round => "f_round",
        UnaryOp::Trunc => "f_trunc",
        UnaryOp::Sin => "p_sin",
        UnaryOp::Cos => "p_cos",
        UnaryOp::Tan => "p_tan",
        UnaryOp::Tanh => "p_tanh",
        UnaryOp::Sigmoid => "p_sigmoid",
        UnaryOp::Erf => "p_erf",
        UnaryOp::Relu => "f_relu",
        UnaryOp::LogicalNot => "f_is_zero",
        UnaryOp::IsNan => "f_is_nan",
        UnaryOp::IsInf => "f_is_inf",
        UnaryOp::IsFinite => "f_is_finite",
        _ => return None,
    };
    Some(format!("{function}({x})"))
}

/// An op with two operands; `None` if it is not defined.
pub(crate) fn binary(op: BinaryOp, dtype: DType, a: &str, b: &str) -> Option<String> {
    if !op.accepts(dtype) {
        return None;
    }
    let kind = Kind::of(dtype);
    if kind == Kind::Bool {
        return Some(match op {
            BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or => format!("({a} || {b})"),
            BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::And => format!("({a} && {b})"),
            BinaryOp::Xor => format!("({a} != {b})"),
            _ => return None,
        });
    }
    let infix = |sign: &str| match kind {
        Kind::U8 => format!("(({a} {sign} {b}) & 255u)"),
        _ => format!("({a} {sign} {b})"),
    };
    let call = |name: &str| format!("{}_{name}({a}, {b})", kind.prefix());
    Some(match (op, kind) {
        (BinaryOp::Add, _) => infix("+"),
        (BinaryOp::Sub, _) => infix("-"),
        (BinaryOp::Mul, _) => infix("*"),
        (BinaryOp::Div, Kind::Float) => format!("p_div({a}, {b})"),
        (BinaryOp::Div, _) => call("div"),
        (BinaryOp::Remainder, Kind::Float) => format!("p_remainder({a}, {b})"),
        (BinaryOp::Remainder, _) => call("rem"),
        (BinaryOp::Pow, Kind::Float) => format!("p_pow({a}, {b})"),
        (BinaryOp::Pow, _) => call("pow"),
        (BinaryOp::Maximum, Kind::Float) => call("max"),
        (BinaryOp::Maximum, _) => format!("max({a}, {b})"),
        (BinaryOp::Minimum, Kind::Float) => call("min"),
        (BinaryOp::Minimum, _) => format!("min({a}, {b})"),
        (BinaryOp::Atan2, _) => format!("p_atan2({a}, {b})"),
        (BinaryOp::And, _) => infix("&"),
        (BinaryOp::Or, _) => infix("|"),
        (BinaryOp::Xor, _) => infix("^"),
        _ => return None,
    })
}

/// A comparison.
pub(crate) fn compare(op: CompareOp, dtype: DType, a: &str, b: &str) -> Option<String> {
    let sign = match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
        _ => return None,
    };
    Some(match Kind::of(dtype) {
        Kind::Bool => match op {
            CompareOp::Eq | CompareOp::Ne => format!("({a} {sign} {b})"),
            _ => format!("(u32({a}) {sign} u32({b}))"),
        },
        // A compiler that assumes that there are no NaN may change the plain comparison.
        Kind::Float => match op {
            CompareOp::Ne => format!("({a} != {b} || f_is_nan({a}) || f_is_nan({b}))"),
            _ => format!("({a} {sign} {b} && !f_is_nan({a}) && !f_is_nan({b}))"),
        },
        _ => format!("({a} {sign} {b})"),
    })
}

/// A conversion like that of `Element::from_scalar`; the result is not yet rounded to f16 or bf16.
pub(crate) fn cast(from: DType, to: DType, x: &str) -> String {
    match (Kind::of(from), Kind::of(to)) {
        (a, b) if a == b => x.to_owned(),
        (Kind::Float, Kind::I32) => format!("f_to_i32({x})"),
        (Kind::Float, Kind::I64) => format!("f_to_i64({x})"),
        (Kind::Float, Kind::U8) => format!("f_to_u8({x})"),
        (Kind::Float, Kind::Bool) => format!("!f_is_zero({x})"),
        (Kind::Bool, to) => format!("select({}, {}, {x})", to.literal(0), to.literal(1)),
        (from, Kind::Bool) => format!("({x} != {})", from.literal(0)),
        (_, Kind::Float) => format!("f32({x})"),
        (Kind::I32, Kind::I64) => format!("i64({x})"),
        (Kind::U8, Kind::I32) => format!("i32({x})"),
        (Kind::U8, Kind::I64) => format!("i64({x})"),
        (Kind::I64, Kind::I32) => format!("bitcast<i32>(i64_low({x}))"),
        (Kind::I64, Kind::U8) => format!("(i64_low({x}) & 255u)"),
        (_, Kind::U8) => format!("(bitcast<u32>({x}) & 255u)"),
        (_, to) => format!("{}({x})", to.prefix()),
    }
}

/// A value rounded to its dtype, if computed in a wider one.
pub(crate) fn rounded(dtype: DType, x: &str) -> String {
    match dtype {
        DType::F16 | DType::BF16 => format!("{}_round({x})", dtype.name()),
        _ => x.to_owned(),
    }
}
