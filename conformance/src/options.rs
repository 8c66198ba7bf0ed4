//! What to run.

use std::path::PathBuf;

use polygrad_tensor::DType;

/// Which questions to ask a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Values, gradients that PyTorch recorded, and errors.
    #[default]
    Test,
    /// Gradients alone: those that PyTorch recorded, differences of values to first and second order in f64, and the
    /// proof that what has no gradient has none.
    Grad,
}

/// Which cases to run; by default all that come with this crate.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which questions.
    pub mode: Mode,
    /// Only cases of this op, by its PyTorch name.
    pub op: Option<String>,
    /// Only the case of this name, with or without its dtype.
    pub case: Option<String>,
    /// The vectors of this folder, instead of all that come with this crate.
    pub vectors: Option<PathBuf>,
    /// Only cases in these dtypes.
    pub dtypes: Option<Vec<DType>>,
    /// Only so many cases of each op from each source in each dtype, the first among them and the others at equal
    /// distances: for devices that are slow.
    pub sample: Option<usize>,
}
