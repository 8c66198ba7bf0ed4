//! Sources of kernels, put together of parts, and the arguments that they are run with.

use std::fmt::Write;

use polygrad_core::{DType, Error, Result};

const TYPES: &str = include_str!("kernels/types.cu");
const MATH: &str = include_str!("kernels/math.cu");
const SUMS: &str = include_str!("kernels/sums.cu");

/// The type in which a dtype is kept.
pub(crate) const fn type_of(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "boole",
        DType::U8 => "u8",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// Definitions in front of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Source(String);

impl Source {
    /// For a dtype and blocks of so many threads.
    pub(crate) fn new(dtype: DType, block: u32) -> Self {
        let mut out = Self::default().define("T", type_of(dtype)).define("BLOCK", block);
        let wide = dtype == DType::F64;
        for (name, function) in [
            ("EXP", if wide { "exp" } else { "expf" }),
            ("LOGARITHM", if wide { "log" } else { "logf" }),
            ("ROOT", if wide { "sqrt" } else { "sqrtf" }),
            ("FMA", if wide { "fma" } else { "fmaf" }),
        ] {
            out = out.define(name, function);
        }
        out
    }

    pub(crate) fn define(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        // Writing to a text never fails.
        let _ = writeln!(self.0, "#define {name} {value}");
        self
    }

    pub(crate) fn flag(self, name: &str, value: bool) -> Self {
        self.define(name, u8::from(value))
    }

    /// The whole source.
    pub(crate) fn with(self, kernel: &str) -> String {
        [&self.0, TYPES, MATH, SUMS, kernel].join("\n")
    }
}

/// The fields of a kernel's `Args`.
#[derive(Debug, Default)]
pub(crate) struct Args(Vec<u64>);

impl Args {
    pub(crate) fn push(mut self, value: impl Into<Argument>) -> Self {
        self.0.push(value.into().0);
        self
    }

    pub(crate) fn all<T: Copy + Into<Argument>>(mut self, values: &[T]) -> Self {
        self.0.extend(values.iter().map(|&value| value.into().0));
        self
    }

    /// All of them, if CUDA takes so many.
    pub(crate) fn get(&self) -> Result<&[u64]> {
        // CUDA takes 4 KiB.
        match self.0.len() <= 512 {
            true => Ok(&self.0),
            false => Err(Error::unsupported(format!(
                "a kernel with {} arguments; CUDA takes 512",
                self.0.len()
            ))),
        }
    }
}

/// Eight bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument(u64);

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<usize> for Argument {
    fn from(value: usize) -> Self {
        Self(value as u64)
    }
}

impl From<isize> for Argument {
    fn from(value: isize) -> Self {
        Self((value as i64).cast_unsigned())
    }
}

impl From<i64> for Argument {
    fn from(value: i64) -> Self {
        Self(value.cast_unsigned())
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl From<bool> for Argument {
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}
