//! Element types and their promotion.

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

/// Result dtype of two operands, by PyTorch's rules. Rows and columns are in the order of [`DType::ALL`].
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

    /// The result dtype of an op on tensors of these dtypes.
    #[inline]
    pub const fn promote(self, other: Self) -> Self {
        PROMOTION[self as usize][other as usize]
    }

    /// The result dtype of an op on a tensor of this dtype and a scalar: the scalar changes the dtype only if it is of
    /// a higher kind (bool < integer < float), as in PyTorch.
    pub const fn promote_scalar(self, scalar: Scalar) -> Self {
        match (self, scalar) {
            (Bool, Scalar::Int(_)) => I64,
            (Bool | U8 | I32 | I64, Scalar::Float(_)) => F32,
            _ => self,
        }
    }

    /// The dtype of real-valued results: itself for a float, f32 for integers and bool.
    #[inline]
    pub const fn to_float(self) -> Self {
        if self.is_float() { self } else { F32 }
    }

    /// The dtype in which ops of several steps run, whose result is rounded once: f32 for f16 and bf16, else itself.
    #[inline]
    pub const fn wide(self) -> Self {
        if matches!(self, F16 | BF16) { F32 } else { self }
    }

    /// Whether this dtype represents a number exactly, NaN included.
    pub fn holds(self, scalar: Scalar) -> bool {
        let value = scalar.to_f64();
        let held = crate::dispatch_dtype!(self, T => T::from_scalar(scalar).to_f64());
        held == value || (held.is_nan() && value.is_nan())
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

    /// To a real number; exact except for large i64.
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

/// Converts f64 to f32 by rounding to odd: an inexact value is truncated, and its last bit set. Rounding the result
/// again then gives the same as rounding the f64 once.
///
/// Source: Boldo and Melquiond, "When double rounding is odd" (2005).
#[inline]
fn odd(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || value.is_nan() {
        return near;
    }
    cut_off(near, back.abs() > value.abs())
}

/// [`odd`] for integers.
#[inline]
fn odd_int(value: i64) -> f32 {
    let near = value as f32;
    let back = near as i128;
    if back == i128::from(value) {
        return near;
    }
    cut_off(near, back.abs() > i128::from(value).abs())
}

/// Sets the last bit of `near`, after a step towards 0 if it lies beyond the exact value.
#[inline]
fn cut_off(near: f32, beyond: bool) -> f32 {
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}

macro_rules! half_element {
    ($($type:ident $dtype:ident;)*) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            #[inline]
            fn from_f64(value: f64) -> Self {
                $type::from_f32(odd(value))
            }

            #[inline]
            fn to_f64(self) -> f64 {
                self.into()
            }

            #[inline]
            fn from_i64(value: i64) -> Self {
                $type::from_f32(odd_int(value))
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
    use crate::{HostTensor, Shape};

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

    /// Every number of a dtype that is not negative, in order, by its bits.
    fn all<T: Element>(from_bits: fn(u16) -> T, infinity: u16) -> Vec<f64> {
        (0..infinity).map(|bits| from_bits(bits).to_f64()).collect()
    }

    /// The midpoints between neighbours, and the next smaller and larger f64 of each.
    fn ties<T: Element>(from_bits: fn(u16) -> T, to_bits: fn(T) -> u16, infinity: u16) {
        let all = all(from_bits, infinity);
        for (low, pair) in all.windows(2).enumerate() {
            let low = low as u16;
            let middle = pair[0] + (pair[1] - pair[0]) / 2.0;
            let even = low + (low & 1);
            let ulp = f64::from_bits(middle.to_bits() + 1) - middle;
            for (value, bits) in [
                (middle, even),
                (middle + ulp, low + 1),
                (middle - ulp, low),
                (middle + 1e5 * ulp, low + 1),
                (middle - 1e5 * ulp, low),
            ] {
                assert_eq!(to_bits(T::from_f64(value)), bits, "{value:e}");
                assert_eq!(to_bits(T::from_f64(-value)), bits | 0x8000, "-{value:e}");
                let cast = HostTensor::new(Shape::SCALAR, vec![value]).unwrap().cast(T::DTYPE);
                assert_eq!(to_bits(cast.as_slice::<T>().unwrap()[0]), bits, "cast of {value:e}");
            }
        }
        let last = all[all.len() - 1];
        let edge = last + (last - all[all.len() - 2]) / 2.0;
        assert_eq!(to_bits(T::from_f64(edge)), infinity);
        assert_eq!(to_bits(T::from_f64(edge.next_down())), infinity - 1);
        assert_eq!(to_bits(T::from_f64(1e300)), infinity);
        assert_eq!(to_bits(T::from_f64(1e-300)), 0);
        assert!(T::from_f64(f64::NAN).to_f64().is_nan());
    }

    #[test]
    fn f64_is_rounded_once() {
        assert_eq!(<bf16 as Element>::from_f64(140.500_006_7).to_f64(), 141.0);
        ties(f16::from_bits, f16::to_bits, 0x7c00);
        ties(bf16::from_bits, bf16::to_bits, 0x7f80);
    }

    #[test]
    fn i64_is_rounded_once() {
        let tie = (1i64 << 62) + (1 << 54);
        for (value, expected) in [(tie, 1i64 << 62), (tie + 1, (1 << 62) + (1 << 55)), (tie - 1, 1 << 62)] {
            assert_eq!(<bf16 as Element>::from_i64(value).to_f64(), expected as f64, "{value}");
            assert_eq!(
                <bf16 as Element>::from_i64(-value).to_f64(),
                -expected as f64,
                "-{value}"
            );
        }
        for (value, expected) in [
            (2049, 2048.0),
            (2051, 2052.0),
            (65_519, 65_504.0),
            (65_520, f64::INFINITY),
        ] {
            assert_eq!(<f16 as Element>::from_i64(value).to_f64(), expected, "{value}");
        }
    }

    #[test]
    fn holds_what_comes_back() {
        assert!(F16.holds(Scalar::Float(0.5)) && F16.holds(Scalar::Int(2048)) && F16.holds(Scalar::Float(f64::NAN)));
        assert!(F16.holds(Scalar::Float(f64::INFINITY)) && F16.holds(Scalar::Bool(true)));
        assert!(!F16.holds(Scalar::Float(1e5)) && !F16.holds(Scalar::Int(2049)) && !BF16.holds(Scalar::Float(0.1)));
    }

    #[test]
    fn names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
        assert!("float".parse::<DType>().unwrap_err().to_string().contains("bf16"));
    }
}
