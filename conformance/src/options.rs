//! Options of the suite.

use std::path::PathBuf;

use polygrad_tensor::DType;

/// Which checks to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Values, gradients that PyTorch recorded, and errors.
    #[default]
    Test,
    /// Only gradients: those that PyTorch recorded, differences of values to first and second order in f64, and the
    /// check that results without a gradient have none.
    Grad,
}

/// Which cases to run; by default all of this crate.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which checks to run.
    pub mode: Mode,
    /// Only cases of this op, by its PyTorch name.
    pub op: Option<String>,
    /// Only the case of this name, with or without its dtype.
    pub case: Option<String>,
    /// The vectors in this folder, instead of all of this crate.
    pub vectors: Option<PathBuf>,
    /// Only cases in these dtypes.
    pub dtypes: Option<Vec<DType>>,
    /// Only this many cases of each op from each source in each dtype, the first and others at equal distances: for
    /// slow devices.
    pub sample: Option<usize>,
}
