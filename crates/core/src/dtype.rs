//! Element types and the one table by which they promote.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

use crate::{Error, Result, Scalar};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// `bool`, one byte, 0 or 1.
    Bool,
    /// `u8`.
    U8,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// `f32`, the default for real numbers.
    F32,
    /// `f64`.
    F64,
}

use DType::{BF16, Bool, F16, F32, F64, I32, I64, U8};

/// What two dtypes become when they meet; PyTorch's rules. Rows and columns in the order of [`DType::ALL`].
const PROMOTION: [[DType; 8]; 8] = [
    // Bool U8    I32   I64   F16   BF16  F32   F64
    [Bool, U8, I32, I64, F16, BF16, F32, F64],     // Bool
    [U8, U8, I32, I64, F16, BF16, F32, F64],       // U8
    [I32, I32, I32, I64, F16, BF16, F32, F64],     // I32
    [I64, I64, I64, I64, F16, BF16, F32, F64],     // I64
    [F16, F16, F16, F16, F16, F32, F32, F64],      // F16
    [BF16, BF16, BF16, BF16, F32, BF16, F32, F64], // BF16
    [F32, F32, F32, F32, F32, F32, F32, F64],      // F32
    [F64, F64, F64, F64, F64, F64, F64, F64],      // F64
];

impl DType {
    /// Every dtype.
    pub const ALL: [Self; 8] = [Bool, U8, I32, I64, F16, BF16, F32, F64];

    /// Bytes per element.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Bool | U8 => 1,
            F16 | BF16 => 2,
            I32 | F32 => 4,
            I64 | F64 => 8,
        }
    }

    /// f16, bf16, f32 or f64. Only these carry gradients.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// u8, i32 or i64.
    #[inline]
    pub const fn is_int(self) -> bool {
        matches!(self, U8 | I32 | I64)
    }

    /// What two tensors of these dtypes become when they meet in an op.
    #[inline]
    pub const fn promote(self, other: Self) -> Self {
        PROMOTION[self as usize][other as usize]
    }

    /// What a tensor of this dtype becomes when it meets a scalar: the scalar changes the dtype only when it is of a
    /// higher kind (bool < integer < float), as in PyTorch.
    pub const fn promote_scalar(self, scalar: Scalar) -> Self {
        match (self, scalar) {
            (Bool, Scalar::Int(_)) => I64,
            (Bool | U8 | I32 | I64, Scalar::Float(_)) => F32,
            _ => self,
        }
    }

    /// The dtype for results that are real numbers: itself for a float, f32 for integers and bool.
    #[inline]
    pub const fn to_float(self) -> Self {
        if self.is_float() { self } else { F32 }
    }

    /// Its short name: `f32`, `i64`, `bool` …
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "u8",
            I32 => "i32",
            I64 => "i64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("unknown dtype {name:?}")).with_hint(format!("one of {known}"))
        })
    }
}

/// A Rust type that tensors hold.
pub trait Element:
    bytemuck::NoUninit + bytemuck::CheckedBitPattern + PartialEq + PartialOrd + fmt::Debug + Send + Sync + 'static
{
    /// Its dtype.
    const DTYPE: DType;

    /// From a real number: rounded to the nearest for floats, truncated and saturated for integers, `!= 0` for bool.
    fn from_f64(value: f64) -> Self;

    /// To a real number; exact but for large i64.
    fn to_f64(self) -> f64;

    /// From an integer: rounded for floats, wrapped for narrower integers, `!= 0` for bool.
    fn from_i64(value: i64) -> Self;

    /// To an integer: truncated and saturated for floats.
    fn to_i64(self) -> i64;

    /// As a [`Scalar`], without loss.
    fn to_scalar(self) -> Scalar;

    /// From a [`Scalar`].
    fn from_scalar(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool(value) => Self::from_i64(value.into()),
            Scalar::Int(value) => Self::from_i64(value),
            Scalar::Float(value) => Self::from_f64(value),
        }
    }
}

macro_rules! native_element {
    ($($type:ident $dtype:ident $scalar:ident;)*) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            #[inline]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline]
            fn from_i64(value: i64) -> Self {
                value as $type
            }

            #[inline]
            fn to_i64(self) -> i64 {
                self as i64
            }

            #[inline]
            fn to_scalar(self) -> Scalar {
                Scalar::$scalar(self.into())
            }
        }
    )*};
}

native_element! {
    u8 U8 Int;
    i32 I32 Int;
    i64 I64 Int;
    f32 F32 Float;
    f64 F64 Float;
}

macro_rules! half_element {
    ($($type:ident $dtype:ident;)*) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            #[inline]
            fn from_f64(value: f64) -> Self {
                $type::from_f64(value)
            }

            #[inline]
            fn to_f64(self) -> f64 {
                self.into()
            }

            #[inline]
            fn from_i64(value: i64) -> Self {
                $type::from_f64(value as f64)
            }

            #[inline]
            fn to_i64(self) -> i64 {
                f64::from(self) as i64
            }

            #[inline]
            fn to_scalar(self) -> Scalar {
                Scalar::Float(self.into())
            }
        }
    )*};
}

half_element! {
    f16 F16;
    bf16 BF16;
}

impl Element for bool {
    const DTYPE: DType = Bool;

    #[inline]
    fn from_f64(value: f64) -> Self {
        value != 0.0
    }

    #[inline]
    fn to_f64(self) -> f64 {
        self.into()
    }

    #[inline]
    fn from_i64(value: i64) -> Self {
        value != 0
    }

    #[inline]
    fn to_i64(self) -> i64 {
        self.into()
    }

    #[inline]
    fn to_scalar(self) -> Scalar {
        Scalar::Bool(self)
    }
}

/// Runs a block of code with a type alias bound to the Rust type of a [`DType`]:
/// `dispatch_dtype!(dtype, T => tensor.to_vec::<T>()?.len())`.
#[macro_export]
macro_rules! dispatch_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::Bool => {
                type $T = bool;
                $body
            }
            $crate::DType::U8 => {
                type $T = u8;
                $body
            }
            $crate::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::DType::F16 => {
                type $T = $crate::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = $crate::bf16;
                $body
            }
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_symmetric_idempotent_and_associative_enough() {
        for a in DType::ALL {
            assert_eq!(a.promote(a), a);
            for b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a));
                assert_eq!(a.promote(b).promote(a), a.promote(b));
            }
        }
        assert_eq!(F16.promote(BF16), F32);
        assert_eq!(I64.promote(F16), F16);
    }

    #[test]
    fn scalars_promote_by_kind() {
        assert_eq!(F16.promote_scalar(Scalar::Float(0.5)), F16);
        assert_eq!(I32.promote_scalar(Scalar::Float(0.5)), F32);
        assert_eq!(U8.promote_scalar(Scalar::Int(300)), U8);
        assert_eq!(Bool.promote_scalar(Scalar::Int(1)), I64);
    }

    #[test]
    fn names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
        assert!("float".parse::<DType>().unwrap_err().to_string().contains("bf16"));
    }
}
