//! The methods of [`Tensor`](crate::Tensor), by subject. Each method checks its operands, calls the backend, and
//! records what its gradient rule needs.

mod activation;
mod attention;
mod axes;
pub(crate) mod blocks;
mod clamp;
mod compare;
mod create;
mod division;
mod einsum;
mod elementwise;
mod fake_quantize;
mod index;
mod indexing;
pub mod inference;
mod interpolate;
mod join;
mod linalg;
mod masked;
mod norm;
mod nuclear;
mod pad;
mod pool;
mod quantized;
mod recurrent;
mod reduce;
mod rotary;
mod sort;
mod statistics;
mod view;
mod wide;
mod window;

pub use attention::Attention;
pub use axes::IntoAxes;
pub use clamp::ClampBound;
pub use create::IntoData;
pub use division::RoundingMode;
pub use indexing::{Index, IntoIndex};
pub use interpolate::{InterpolateMode, Resize};
pub use pad::PadMode;

use polygrad_core::{Backend, DType, Error, ErrorKind, Result, Shape};

use crate::{Device, Tensor};

/// The values of a function at `0..len`, or an error if memory runs out.
pub(crate) fn collected<T>(len: usize, f: impl FnMut(usize) -> T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|e| Error::new(ErrorKind::OutOfMemory, format!("{len} values on the host: {e}")))?;
    values.extend((0..len).map(f));
    Ok(values)
}

/// Adds the op and its operands to an error.
#[cold]
pub(crate) fn context<B: Backend>(error: Error, op: &'static str, operands: &[&Tensor<B>]) -> Error {
    let error = error
        .with_op(op)
        .with_operands(operands.iter().map(|x| (x.shape(), x.dtype())));
    match operands.first() {
        Some(first) => error.with_device(first.device()),
        None => error,
    }
}

/// Adds to an error the op that failed to make a tensor, and the tensor's shape, dtype and device.
#[cold]
pub(crate) fn in_making<B: Backend>(
    error: Error,
    op: &'static str,
    shape: Shape,
    dtype: DType,
    device: &Device<B>,
) -> Error {
    error.with_op(op).with_operands([(shape, dtype)]).with_device(device)
}

impl<B: Backend> Tensor<B> {
    /// A scalar as a vector of one element, as which ops along an axis treat it, as in PyTorch. `None` for other ranks.
    pub(crate) fn vector_of_scalar(&self) -> Result<Option<Self>> {
        match self.rank() {
            0 => self.reshape([1]).map(Some),
            _ => Ok(None),
        }
    }
}
