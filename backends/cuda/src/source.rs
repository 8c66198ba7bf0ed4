//! Kernel sources, which are assembled from parts, and kernel arguments.

use std::borrow::Cow;
use std::fmt::Write;
use std::hash::{Hash, Hasher};

use polygrad_core::compute::ElementwiseProgram;
use polygrad_core::{DType, Error, Result};

use crate::program::{self, Access};

const TYPES: &str = include_str!("kernels/types.cu");
const MATH: &str = include_str!("kernels/math.cu");
const SUMS: &str = include_str!("kernels/sums.cu");

/// The longest name of a kernel, in bytes.
const LONGEST_NAME: usize = 80;

/// The type in which a dtype is stored.
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

/// A file of `kernels/`, identified by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// The [`File`] of this name, after those that it needs.
macro_rules! file {
    ($name:literal $(after $needed:literal)*) => {
        $crate::source::File {
            name: $name,
            text: concat!(
                $(include_str!(concat!("../kernels/", $needed, ".cu")),)*
                include_str!(concat!("../kernels/", $name, ".cu")),
            ),
        }
    };
}
pub(crate) use file;

impl PartialEq for File {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for File {}

impl Hash for File {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The definition of a name in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Meaning {
    Number(usize),
    Text(&'static str),
}

impl From<usize> for Meaning {
    fn from(value: usize) -> Self {
        Self::Number(value)
    }
}

impl From<u32> for Meaning {
    fn from(value: u32) -> Self {
        Self::Number(value as usize)
    }
}

impl From<&'static str> for Meaning {
    fn from(value: &'static str) -> Self {
        Self::Text(value)
    }
}

/// The part after the definitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Body<'a> {
    File(File),
    /// A program over axes of this rank, with the access of each view.
    Program(Cow<'a, ElementwiseProgram>, usize, Vec<Access>),
}

/// The parts of a kernel, which serve as its key in the cache. Its text has thousands of bytes, and is written only
/// when it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source<'a> {
    dtype: DType,
    /// Threads per block.
    block: u32,
    meanings: Vec<(&'static str, Meaning)>,
    body: Body<'a>,
}

impl<'a> Source<'a> {
    /// A file's kernel for a dtype and blocks of this many threads.
    pub(crate) fn new(file: File, dtype: DType, block: u32) -> Self {
        Self {
            dtype,
            block,
            meanings: Vec::new(),
            body: Body::File(file),
        }
    }

    /// A program over axes of this rank, with an access for each view.
    pub(crate) fn of_program(program: &'a ElementwiseProgram, rank: usize, views: Vec<Access>, block: u32) -> Self {
        Self {
            // Not used, but the definitions need a dtype.
            dtype: DType::F32,
            block,
            meanings: Vec::new(),
            body: Body::Program(Cow::Borrowed(program), rank, views),
        }
    }

    pub(crate) fn define(mut self, name: &'static str, meaning: impl Into<Meaning>) -> Self {
        self.meanings.push((name, meaning.into()));
        self
    }

    pub(crate) fn flag(self, name: &'static str, value: bool) -> Self {
        self.define(name, u32::from(value))
    }

    /// The same, owning what it borrows.
    pub(crate) fn into_owned(self) -> Source<'static> {
        let body = match self.body {
            Body::File(file) => Body::File(file),
            Body::Program(program, rank, views) => Body::Program(Cow::Owned(program.into_owned()), rank, views),
        };
        Source {
            dtype: self.dtype,
            block: self.block,
            meanings: self.meanings,
            body,
        }
    }

    /// The function's name, which NVIDIA's profilers show: a file and its dtype, or a program's first steps.
    pub(crate) fn name(&self) -> String {
        match &self.body {
            Body::File(file) => format!("{}_{}", file.name, type_of(self.dtype)),
            Body::Program(program, ..) => {
                let steps = program.name();
                let letters = steps.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
                "elementwise_".chars().chain(letters).take(LONGEST_NAME).collect()
            }
        }
    }

    /// The text for the compiler.
    ///
    /// # Errors
    /// If a program has a step without a form in CUDA C.
    pub(crate) fn text(&self) -> Result<String> {
        let wide = self.dtype == DType::F64;
        let own = [
            ("T", Meaning::Text(type_of(self.dtype))),
            ("BLOCK", self.block.into()),
            ("EXP", Meaning::Text(if wide { "exp" } else { "expf" })),
            ("LOGARITHM", Meaning::Text(if wide { "log" } else { "logf" })),
            ("ROOT", Meaning::Text(if wide { "sqrt" } else { "sqrtf" })),
            ("FMA", Meaning::Text(if wide { "fma" } else { "fmaf" })),
        ];
        // Files and programs name the function `kernel`.
        let mut text = format!("#define kernel {}\n", self.name());
        for (name, meaning) in own.iter().chain(&self.meanings) {
            // Writing to a string never fails.
            let _ = match meaning {
                Meaning::Number(number) => writeln!(text, "#define {name} {number}"),
                Meaning::Text(words) => writeln!(text, "#define {name} {words}"),
            };
        }
        let body = match &self.body {
            Body::File(file) => Cow::Borrowed(file.text),
            Body::Program(program, rank, views) => Cow::Owned(program::text(program, *rank, views)?),
        };
        Ok([&text, TYPES, MATH, SUMS, &body].join("\n"))
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

    /// All of them, if CUDA accepts this many.
    pub(crate) fn get(&self) -> Result<&[u64]> {
        // CUDA accepts 4 KiB.
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
