//! Single numbers as operands.

use std::fmt;

use crate::{DType, bf16, f16};

/// One number of any kind, before it takes a tensor's dtype. Two floats are equal if their bits are: NaN equals NaN,
/// and 0 differs from −0.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

impl Eq for Scalar {}

impl Scalar {
    /// As a real number.
    pub const fn to_f64(self) -> f64 {
        match self {
            Self::Bool(value) => value as u8 as f64,
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// As an integer; real numbers are truncated and saturated.
    pub const fn to_i64(self) -> i64 {
        match self {
            Self::Bool(value) => value as i64,
            Self::Int(value) => value,
            Self::Float(value) => value as i64,
        }
    }

    /// The dtype of a tensor made from this number if none is given.
    pub const fn default_dtype(self) -> DType {
        match self {
            Self::Bool(_) => DType::Bool,
            Self::Int(_) => DType::I64,
            Self::Float(_) => DType::F32,
        }
    }
}

macro_rules! from {
    ($($variant:ident: $($type:ident)*;)*) => {$($(
        impl From<$type> for Scalar {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )*)*};
}

from! {
    Bool: bool;
    Int: u8 i32 i64;
    Float: f32 f64 f16 bf16;
}

impl From<usize> for Scalar {
    /// Values above `i64::MAX` saturate.
    fn from(value: usize) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => fmt::Display::fmt(value, f),
            Self::Int(value) => fmt::Display::fmt(value, f),
            Self::Float(value) => fmt::Display::fmt(value, f),
        }
    }
}
