//! Families of ops with a common signature, and the dtypes for which their members are defined.

use super::SavedTensor;
use crate::DType;

macro_rules! named {
    ($(#[$meta:meta])* $family:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $family {
            $($(#[$doc])* $variant,)*
        }

        impl $family {
            /// Every op of the family.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// PyTorch's name for it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

named! {
    /// One tensor in, one of the same shape out. Real functions take floats; the dtype stays, except for predicates.
    UnaryOp {
        /// `-x`.
        Neg = "neg",
        /// `|x|`.
        Abs = "abs",
        /// −1, 0 or 1; 0 for NaN, as in PyTorch.
        Sign = "sign",
        /// `e^x`.
        Exp = "exp",
        /// `e^x - 1`, precise near 0.
        Expm1 = "expm1",
        /// Natural logarithm.
        Log = "log",
        /// `ln(1 + x)`, precise near 0.
        Log1p = "log1p",
        /// Square root.
        Sqrt = "sqrt",
        /// `1 / sqrt(x)`.
        Rsqrt = "rsqrt",
        /// `1 / x`.
        Reciprocal = "reciprocal",
        /// Rounds towards minus infinity.
        Floor = "floor",
        /// Rounds towards plus infinity.
        Ceil = "ceil",
        /// Rounds to the nearest, halves to even.
        Round = "round",
        /// Rounds towards zero.
        Trunc = "trunc",
        /// Sine.
        Sin = "sin",
        /// Cosine.
        Cos = "cos",
        /// Tangent.
        Tan = "tan",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// `1 / (1 + e^-x)`.
        Sigmoid = "sigmoid",
        /// Gauss's error function.
        Erf = "erf",
        /// `max(x, 0)`; NaN stays NaN.
        Relu = "relu",
        /// `x == 0` as bool, for any dtype.
        LogicalNot = "logical_not",
        /// Whether it is NaN, as bool.
        IsNan = "isnan",
        /// Whether it is infinite, as bool.
        IsInf = "isinf",
        /// Whether it is neither NaN nor infinite, as bool.
        IsFinite = "isfinite",
    }
}

impl UnaryOp {
    /// Whether the function is defined for a dtype.
    pub const fn accepts(self, dtype: DType) -> bool {
        match dtype {
            DType::Bool => self.is_predicate(),
            _ => dtype.is_float() || !self.needs_float(),
        }
    }

    /// The tensors saved for its gradient ([`Op::saved`](super::Op::saved)).
    pub(super) const fn saved(self) -> &'static [SavedTensor] {
        match self {
            Self::Exp
            | Self::Expm1
            | Self::Sqrt
            | Self::Rsqrt
            | Self::Reciprocal
            | Self::Tan
            | Self::Tanh
            | Self::Sigmoid
            | Self::Relu => &[SavedTensor::Output(0)],
            Self::Abs | Self::Log | Self::Log1p | Self::Sin | Self::Cos | Self::Erf => &[SavedTensor::Input(0)],
            _ => &[],
        }
    }

    /// See [`Op::gradient_takes_steps`](super::Op::gradient_takes_steps).
    pub(super) const fn gradient_takes_steps(self) -> bool {
        match self {
            Self::Expm1
            | Self::Log1p
            | Self::Sqrt
            | Self::Rsqrt
            | Self::Reciprocal
            | Self::Sin
            | Self::Cos
            | Self::Tan
            | Self::Tanh
            | Self::Sigmoid
            | Self::Erf => true,
            Self::Neg | Self::Abs | Self::Sign | Self::Exp | Self::Log | Self::Relu => false,
            Self::Floor | Self::Ceil | Self::Round | Self::Trunc => false,
            // These have no gradient.
            Self::LogicalNot | Self::IsNan | Self::IsInf | Self::IsFinite => false,
        }
    }

    /// Whether the result is always bool.
    pub const fn is_predicate(self) -> bool {
        matches!(self, Self::LogicalNot | Self::IsNan | Self::IsInf | Self::IsFinite)
    }

    /// Whether it is defined on real numbers only, so that integers become floats first.
    pub const fn needs_float(self) -> bool {
        !matches!(
            self,
            Self::Neg
                | Self::Abs
                | Self::Sign
                | Self::Floor
                | Self::Ceil
                | Self::Round
                | Self::Trunc
                | Self::Relu
                | Self::LogicalNot
                | Self::IsNan
                | Self::IsInf
                | Self::IsFinite
        )
    }
}

named! {
    /// Two tensors of one dtype that broadcast, one out of that dtype.
    ///
    /// On integers, add, sub, mul and pow wrap; a division or remainder by zero is 0.
    BinaryOp {
        /// `a + b`; logical or for bool.
        Add = "add",
        /// `a - b`; not for bool.
        Sub = "sub",
        /// `a * b`; logical and for bool.
        Mul = "mul",
        /// `a / b`; truncated towards zero for integers.
        Div = "div",
        /// `a - b * floor(a / b)`: the sign of the divisor, as in Python.
        Remainder = "remainder",
        /// `a ^ b`. An integer to a negative power is 0, except for bases 1 and −1.
        Pow = "pow",
        /// The larger; NaN if either is NaN.
        Maximum = "maximum",
        /// The smaller; NaN if either is NaN.
        Minimum = "minimum",
        /// The angle of the point (b, a).
        Atan2 = "atan2",
        /// `ln(e^a + e^b)`, which does not overflow.
        LogAddExp = "logaddexp",
        /// Bitwise and; logical for bool. Not for floats.
        And = "bitwise_and",
        /// Bitwise or; logical for bool. Not for floats.
        Or = "bitwise_or",
        /// Bitwise exclusive or; logical for bool. Not for floats.
        Xor = "bitwise_xor",
    }
}

impl BinaryOp {
    /// Whether the function is defined for a dtype.
    pub const fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Add | Self::Mul | Self::Maximum | Self::Minimum => true,
            Self::Sub | Self::Div | Self::Remainder | Self::Pow => !matches!(dtype, DType::Bool),
            Self::Atan2 | Self::LogAddExp => dtype.is_float(),
            Self::And | Self::Or | Self::Xor => !dtype.is_float(),
        }
    }

    /// Whether it is composed of other ops ([`decompose::binary`](crate::decompose::binary)), so that no backend or
    /// driver needs a kernel for it.
    pub const fn is_fused(self) -> bool {
        matches!(self, Self::LogAddExp)
    }

    /// The tensors saved for its gradient ([`Op::saved`](super::Op::saved)).
    pub(super) const fn saved(self) -> &'static [SavedTensor] {
        match self {
            Self::Add | Self::Sub => &[],
            Self::Pow => &[SavedTensor::Input(0), SavedTensor::Input(1), SavedTensor::Output(0)],
            _ => &[SavedTensor::Input(0), SavedTensor::Input(1)],
        }
    }

    /// [`saved`](Self::saved) if one operand is a number, which is on the left if `reverse`.
    pub(super) const fn saved_with_scalar(self, reverse: bool) -> &'static [SavedTensor] {
        match (self, reverse) {
            (Self::Add | Self::Sub | Self::Mul, _) | (Self::Div | Self::Remainder, false) => &[],
            (Self::Pow, _) => &[SavedTensor::Input(0), SavedTensor::Output(0)],
            _ => &[SavedTensor::Input(0)],
        }
    }

    /// See [`Op::gradient_takes_steps`](super::Op::gradient_takes_steps).
    pub(super) const fn gradient_takes_steps(self) -> bool {
        match self {
            Self::Add | Self::Sub | Self::Maximum | Self::Minimum => false,
            Self::Mul | Self::Div | Self::Remainder | Self::Pow | Self::Atan2 | Self::LogAddExp => true,
            // These have no gradient.
            Self::And | Self::Or | Self::Xor => false,
        }
    }

    /// [`gradient_takes_steps`](Self::gradient_takes_steps) if one operand is a number, which is on the left if
    /// `reverse`.
    pub(super) const fn gradient_takes_steps_with_scalar(self, reverse: bool) -> bool {
        match self {
            Self::Mul => false,
            Self::Div | Self::Remainder => reverse,
            _ => self.gradient_takes_steps(),
        }
    }

    /// The ops that are not composed of others.
    pub fn core() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|op| !op.is_fused())
    }
}

named! {
    /// Two tensors of one dtype that broadcast, bool out. Comparisons with NaN are false, except `Ne`.
    CompareOp {
        /// `a == b`.
        Eq = "eq",
        /// `a != b`.
        Ne = "ne",
        /// `a < b`.
        Lt = "lt",
        /// `a <= b`.
        Le = "le",
        /// `a > b`.
        Gt = "gt",
        /// `a >= b`.
        Ge = "ge",
    }
}

impl CompareOp {
    /// The comparison with its operands exchanged: `a < b` is `b > a`.
    #[must_use]
    pub const fn swapped(self) -> Self {
        match self {
            Self::Eq => Self::Eq,
            Self::Ne => Self::Ne,
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
        }
    }
}

named! {
    /// Reductions over a set of axes. The dtype stays, except for `Any` and `All`, which are bool to bool.
    ///
    /// Over nothing: sum 0, prod 1, any false, all true; max, min and mean are an error. NaN propagates.
    ReduceOp {
        /// Sum, pairwise or compensated; f16 and bf16 add up in f32.
        Sum = "sum",
        /// Arithmetic mean, for floats.
        Mean = "mean",
        /// Product.
        Prod = "prod",
        /// Largest.
        Max = "amax",
        /// Smallest.
        Min = "amin",
        /// Whether any is true.
        Any = "any",
        /// Whether all are true.
        All = "all",
    }
}

impl ReduceOp {
    /// The tensors saved for its gradient ([`Op::saved`](super::Op::saved)).
    pub(super) const fn saved(self) -> &'static [SavedTensor] {
        match self {
            Self::Prod => &[SavedTensor::Input(0)],
            Self::Max | Self::Min => &[SavedTensor::Input(0), SavedTensor::Output(0)],
            Self::Sum | Self::Mean | Self::Any | Self::All => &[],
        }
    }

    /// See [`Op::gradient_takes_steps`](super::Op::gradient_takes_steps).
    pub(super) const fn gradient_takes_steps(self) -> bool {
        match self {
            Self::Prod | Self::Max | Self::Min => true,
            Self::Sum | Self::Mean | Self::Any | Self::All => false,
        }
    }

    /// Whether the reduction is defined for a dtype.
    pub const fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Max | Self::Min => true,
            Self::Sum | Self::Prod => !matches!(dtype, DType::Bool),
            Self::Mean => dtype.is_float(),
            Self::Any | Self::All => matches!(dtype, DType::Bool),
        }
    }

    /// Whether a reduction over no elements is an error.
    pub const fn needs_elements(self) -> bool {
        matches!(self, Self::Mean | Self::Max | Self::Min)
    }
}

named! {
    /// The position of an extreme along one axis, as i64. The first one wins a tie; NaN counts as the extreme.
    ArgOp {
        /// Position of the largest.
        Max = "argmax",
        /// Position of the smallest.
        Min = "argmin",
    }
}

macro_rules! activations {
    ($(#[$meta:meta])* $family:ident {
        $($(#[$doc:meta])* $variant:ident $({ $($(#[$field_doc:meta])* $field:ident: f64 = $default:literal,)* })? = $name:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum $family {
            $($(#[$doc])* $variant $({ $($(#[$field_doc])* $field: f64,)* })?,)*
        }

        impl $family {
            /// Every function, with PyTorch's defaults for its parameters.
            pub const ALL: &[Self] = &[$(Self::$variant $({ $($field: $default,)* })?,)*];

            /// PyTorch's name for it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant $({ $($field: _,)* })? => $name,)*
                }
            }
        }
    };
}

activations! {
    /// Activation functions: one tensor in, one of the same shape and float dtype out.
    Activation {
        /// `max(x, 0)`.
        Relu = "relu",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// `1 / (1 + e^-x)`.
        Sigmoid = "sigmoid",
        /// `x Φ(x)` with the exact normal distribution function. Source: Hendrycks and Gimpel 2016.
        Gelu = "gelu",
        /// GELU by `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
        GeluTanh = "gelu",
        /// `x sigmoid(x)`.
        Silu = "silu",
        /// `scale · x · min(max(x + 3, 0), 6) / 6 + shift`; its derivative is 0 at −3, and `scale` at 3. Some networks
        /// for small devices learn the two numbers. Source: Howard et al., "Searching for MobileNetV3" (2019).
        HardSwish {
            /// Factor of the result.
            scale: f64 = 1.0,
            /// Number that is added to it.
            shift: f64 = 0.0,
        } = "hardswish",
        /// `ln(1 + e^(βx)) / β`, and `x` itself where `βx > threshold`.
        Softplus {
            /// Sharpness β.
            beta: f64 = 1.0,
            /// Above this value of `βx` it is the identity.
            threshold: f64 = 20.0,
        } = "softplus",
        /// `x` for `x > 0`, else `α (e^x - 1)`.
        Elu {
            /// The scale α of the negative part.
            alpha: f64 = 1.0,
        } = "elu",
        /// `x` for `x > 0`, else `slope · x`.
        LeakyRelu {
            /// Slope of the negative part.
            slope: f64 = 0.01,
        } = "leaky_relu",
    }
}

impl Activation {
    /// Whether its gradient is computed from the output (true) or from the input (false).
    pub const fn saves_output(self) -> bool {
        matches!(self, Self::Relu | Self::Tanh | Self::Sigmoid)
    }

    /// The tensors saved for its gradient ([`Op::saved`](super::Op::saved)).
    pub(super) const fn saved(self) -> &'static [SavedTensor] {
        if self.saves_output() {
            &[SavedTensor::Output(0)]
        } else {
            &[SavedTensor::Input(0)]
        }
    }
}
