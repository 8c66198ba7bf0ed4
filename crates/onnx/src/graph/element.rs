//! ONNX's element types.

use std::fmt;

use polygrad_core::{DType, Error, Result};

macro_rules! elements {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// The type of a tensor's elements, as ONNX numbers them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ElementType {
            $($(#[$doc])* $variant = $number,)*
        }

        impl ElementType {
            /// The type of ONNX's number, `TensorProto.DataType`.
            ///
            /// # Errors
            /// When there is none of this number.
            pub fn from_number(number: i32) -> Result<Self> {
                match number {
                    $($number => Ok(Self::$variant),)*
                    _ => Err(Error::dtype(format!("there is no element type of number {number}"))),
                }
            }

            /// ONNX's name for it, in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

elements! {
    /// `f32`.
    F32 = 1, "float";
    /// `u8`.
    U8 = 2, "uint8";
    /// `i8`.
    I8 = 3, "int8";
    /// `u16`.
    U16 = 4, "uint16";
    /// `i16`.
    I16 = 5, "int16";
    /// `i32`.
    I32 = 6, "int32";
    /// `i64`.
    I64 = 7, "int64";
    /// Text.
    String = 8, "string";
    /// `bool`.
    Bool = 9, "bool";
    /// IEEE half precision.
    F16 = 10, "float16";
    /// `f64`.
    F64 = 11, "double";
    /// `u32`.
    U32 = 12, "uint32";
    /// `u64`.
    U64 = 13, "uint64";
    /// Two f32.
    Complex64 = 14, "complex64";
    /// Two f64.
    Complex128 = 15, "complex128";
    /// bfloat16.
    BF16 = 16, "bfloat16";
    /// 8 bits, 4 of exponent, finite.
    F8E4M3Fn = 17, "float8e4m3fn";
    /// 8 bits, 4 of exponent, finite, one zero.
    F8E4M3Fnuz = 18, "float8e4m3fnuz";
    /// 8 bits, 5 of exponent.
    F8E5M2 = 19, "float8e5m2";
    /// 8 bits, 5 of exponent, finite, one zero.
    F8E5M2Fnuz = 20, "float8e5m2fnuz";
    /// 0 to 15.
    U4 = 21, "uint4";
    /// −8 to 7.
    I4 = 22, "int4";
    /// 4 bits, 2 of exponent.
    F4E2M1 = 23, "float4e2m1";
    /// A power of two.
    F8E8M0 = 24, "float8e8m0";
    /// 0 to 3.
    U2 = 25, "uint2";
    /// −2 to 1.
    I2 = 26, "int2";
    /// 6 bits, 2 of exponent.
    F6E2M3 = 27, "float6e2m3";
    /// 6 bits, 3 of exponent.
    F6E3M2 = 28, "float6e3m2";
}

impl ElementType {
    /// ONNX's number for this type.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// The dtype that stores its values: its own if there is one, else a wider one that stores them exactly: integers
    /// of up to 16 bits by i32, u32 and u64 by i64 (values of u64 above `i64::MAX` are rejected when they occur),
    /// floats of up to 8 bits by f32.
    ///
    /// # Errors
    /// If no dtype can store it.
    pub fn dtype(self) -> Result<DType> {
        Ok(match self {
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            Self::U8 => DType::U8,
            Self::Bool => DType::Bool,
            Self::I8 | Self::U16 | Self::I16 | Self::I32 => DType::I32,
            Self::U4 | Self::I4 | Self::U2 | Self::I2 => DType::I32,
            _ if self.is_small_float() => DType::F32,
            Self::U32 | Self::U64 | Self::I64 => DType::I64,
            _ => {
                return Err(Error::dtype(format!("no tensor here holds elements of type {self}"))
                    .with_hint("convert the model to an element type of real numbers, integers or bool"));
            }
        })
    }

    /// The smallest and the largest value of an integer type.
    pub const fn range(self) -> Option<(i64, i64)> {
        Some(match self {
            Self::U8 => (0, u8::MAX as i64),
            Self::I8 => (i8::MIN as i64, i8::MAX as i64),
            Self::U16 => (0, u16::MAX as i64),
            Self::I16 => (i16::MIN as i64, i16::MAX as i64),
            Self::I32 => (i32::MIN as i64, i32::MAX as i64),
            Self::U32 => (0, u32::MAX as i64),
            Self::U64 => (0, i64::MAX),
            Self::U4 => (0, 15),
            Self::I4 => (-8, 7),
            Self::U2 => (0, 3),
            Self::I2 => (-2, 1),
            Self::I64 => (i64::MIN, i64::MAX),
            _ => return None,
        })
    }

    /// Whether it is stored in a wider dtype.
    pub const fn is_widened(self) -> bool {
        let small = matches!(self, Self::U4 | Self::I4 | Self::U2 | Self::I2);
        small || self.is_small_float() || matches!(self, Self::I8 | Self::U16 | Self::I16 | Self::U32 | Self::U64)
    }

    /// Whether it is a float of 8 bits or fewer.
    pub const fn is_small_float(self) -> bool {
        matches!(
            self,
            Self::F8E4M3Fn
                | Self::F8E4M3Fnuz
                | Self::F8E5M2
                | Self::F8E5M2Fnuz
                | Self::F8E8M0
                | Self::F6E2M3
                | Self::F6E3M2
                | Self::F4E2M1
        )
    }

    /// The size of an element in a file in bits; 0 for text.
    pub const fn bits(self) -> usize {
        match self {
            Self::String => 0,
            Self::U2 | Self::I2 => 2,
            Self::U4 | Self::I4 | Self::F4E2M1 => 4,
            Self::F6E2M3 | Self::F6E3M2 => 6,
            Self::U8 | Self::I8 | Self::Bool => 8,
            Self::F8E4M3Fn | Self::F8E4M3Fnuz | Self::F8E5M2 | Self::F8E5M2Fnuz | Self::F8E8M0 => 8,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 16,
            Self::F32 | Self::I32 | Self::U32 => 32,
            Self::F64 | Self::I64 | Self::U64 | Self::Complex64 => 64,
            Self::Complex128 => 128,
        }
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Self::Bool,
            DType::U8 => Self::U8,
            DType::I32 => Self::I32,
            DType::I64 => Self::I64,
            DType::F16 => Self::F16,
            DType::BF16 => Self::BF16,
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
