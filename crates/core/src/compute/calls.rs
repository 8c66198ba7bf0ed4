//! What a driver is called with: one struct a kernel.

use super::{DevicePtr, DeviceView, ElementwiseProgram};
use crate::{
    ArgOp, Axes, BinaryOp, CrossEntropyParams, DType, Distribution, Error, RandomKey, ReduceOp, Result, Scalar, Shape,
    UnaryOp,
};

/// Bytes from one place to another: [`ComputeBackend::copy_each`](super::ComputeBackend::copy_each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteCopy {
    /// Written.
    pub dst: DevicePtr,
    /// Read.
    pub src: DevicePtr,
    /// How many.
    pub bytes: usize,
}

/// A reduction over the middle axis of a contiguous `[outer, len, inner]`, to `[outer, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// Which.
    pub op: ReduceOp,
    /// Of both.
    pub dtype: DType,
    /// How many before.
    pub outer: usize,
    /// How many are reduced to one.
    pub len: usize,
    /// How many after.
    pub inner: usize,
    /// Read.
    pub input: DevicePtr,
    /// Written.
    pub output: DevicePtr,
}

impl Reduce {
    /// How many bytes input and output have.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when they cannot be counted, or nothing is reduced by an
    /// op that has no value for that.
    pub fn spans(&self) -> Result<[usize; 2]> {
        let kept = self.outer.checked_mul(self.inner);
        let output = bytes(kept, self.dtype)?;
        if self.len == 0 && output > 0 && self.op.needs_elements() {
            return Err(Error::invalid(format!("{} over no elements", self.op.name())));
        }
        Ok([bytes(kept.and_then(|x| x.checked_mul(self.len)), self.dtype)?, output])
    }
}

/// One function over `len` elements that lie in a row. The output may be the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unary {
    /// Which.
    pub op: UnaryOp,
    /// Of the input; the output is of the same, or bool for predicates.
    pub dtype: DType,
    /// How many.
    pub len: usize,
    /// Read.
    pub input: DevicePtr,
    /// Written.
    pub output: DevicePtr,
}

/// Two times `len` elements that lie in a row, combined. The output may be an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Which.
    pub op: BinaryOp,
    /// Of all three.
    pub dtype: DType,
    /// How many.
    pub len: usize,
    /// The left operand.
    pub a: DevicePtr,
    /// The right operand.
    pub b: DevicePtr,
    /// Written.
    pub output: DevicePtr,
}

/// A run of an [`ElementwiseProgram`] over all elements of a shape.
#[derive(Clone, Copy, Debug)]
pub struct Elementwise<'a> {
    /// What is computed.
    pub program: &'a ElementwiseProgram,
    /// The shape of everything.
    pub shape: Shape,
    /// One view for each input, of its dtype and `shape`; broadcast by strides of 0.
    pub inputs: &'a [DeviceView],
    /// One number for each scalar, converted to its dtype.
    pub scalars: &'a [Scalar],
    /// One view for each output, of its dtype and `shape`, in which no element lies twice. One may be the same view as
    /// an input; else they do not overlap.
    pub outputs: &'a [DeviceView],
}

impl Elementwise<'_> {
    /// Whether everything that the program names is there, in the shape and dtype that it has.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when it is not, or an output has an element twice.
    pub fn check(&self) -> Result<()> {
        let program = self.program;
        let counts = [
            ("inputs", program.inputs().len(), self.inputs.len()),
            ("scalars", program.scalars().len(), self.scalars.len()),
            ("outputs", program.outputs().len(), self.outputs.len()),
        ];
        for (what, wanted, got) in counts {
            if wanted != got {
                return Err(Error::invalid(format!("the program has {wanted} {what}, got {got}")));
            }
        }
        let outputs = program.outputs().iter().map(|&value| program.dtype(value));
        let dtypes = program.inputs().iter().map(|&dtype| Some(dtype)).chain(outputs);
        for (view, dtype) in self.inputs.iter().chain(self.outputs).zip(dtypes) {
            if Some(view.dtype) != dtype || *view.shape() != self.shape {
                return Err(Error::invalid(format!(
                    "{}{} where the program has {dtype:?} and the run {}",
                    view.dtype,
                    view.shape(),
                    self.shape
                )));
            }
        }
        if self.outputs.iter().any(|view| !view.is_injective()) {
            return Err(Error::invalid("an output has an element twice"));
        }
        Ok(())
    }
}

/// A reduction over some axes of a view.
#[derive(Clone, Copy, Debug)]
pub struct ReduceAxes {
    /// Which.
    pub op: ReduceOp,
    /// Read.
    pub input: DeviceView,
    /// The axes that go away.
    pub axes: Axes,
    /// Written: contiguous, of the input's dtype.
    pub output: DevicePtr,
}

/// Positions of extremes along an axis of a view.
#[derive(Clone, Copy, Debug)]
pub struct ArgReduce {
    /// Which.
    pub op: ArgOp,
    /// Read.
    pub input: DeviceView,
    /// The axis that goes away.
    pub axis: usize,
    /// Written: contiguous, i64.
    pub output: DevicePtr,
}

/// Running sums along an axis of a view.
#[derive(Clone, Copy, Debug)]
pub struct CumSum {
    /// Read.
    pub input: DeviceView,
    /// The axis.
    pub axis: usize,
    /// Written: contiguous, of the input's shape and dtype.
    pub output: DevicePtr,
}

/// A stable sort along an axis of a view; NaN counts as the largest.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    /// Read.
    pub input: DeviceView,
    /// The axis.
    pub axis: usize,
    /// The largest first.
    pub descending: bool,
    /// Written: contiguous, of the input's shape and dtype.
    pub values: DevicePtr,
    /// Written: contiguous, i64: where on the axis each came from.
    pub positions: DevicePtr,
}

/// Elements of `input` along an axis, as `index` names them: [`Backend::gather`](crate::Backend::gather).
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// Read.
    pub input: DeviceView,
    /// The axis.
    pub axis: usize,
    /// i64, of the input's rank.
    pub index: DeviceView,
    /// Written: contiguous, of the index's shape and the input's dtype.
    pub output: DevicePtr,
}

/// Elements of `source` written to, or added to, those of `target` along an axis that `index` names:
/// [`Backend::scatter`](crate::Backend::scatter), [`Backend::scatter_add`](crate::Backend::scatter_add).
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    /// Changed; no element lies in it twice.
    pub target: DeviceView,
    /// The axis.
    pub axis: usize,
    /// i64, of the target's rank.
    pub index: DeviceView,
    /// Of the index's shape and the target's dtype.
    pub source: DeviceView,
}

/// Softmax of each row of a contiguous `[rows, columns]`, or its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Of everything.
    pub dtype: DType,
    /// How many rows.
    pub rows: usize,
    /// How long each is.
    pub columns: usize,
    /// Its logarithm.
    pub log: bool,
    /// The input; for the gradient, the output's gradient. May be written over.
    pub input: DevicePtr,
    /// For the gradient: the output of the forward. Not read by the forward.
    pub saved: DevicePtr,
    /// Written.
    pub output: DevicePtr,
}

/// Layer normalisation of each row of a contiguous `[rows, columns]`:
/// [`Backend::layer_norm`](crate::Backend::layer_norm).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Of everything.
    pub dtype: DType,
    /// How many rows.
    pub rows: usize,
    /// How long each is, and weight and bias.
    pub columns: usize,
    /// Added to the variance.
    pub eps: f64,
    /// The input.
    pub input: DevicePtr,
    /// What it is scaled by, if it is.
    pub weight: Option<DevicePtr>,
    /// What is added, if anything is.
    pub bias: Option<DevicePtr>,
    /// Written.
    pub output: DevicePtr,
    /// Written: each row's mean.
    pub mean: DevicePtr,
    /// Written: each row's `1 / sqrt(variance + eps)`.
    pub rstd: DevicePtr,
}

/// Cross entropy of each row of contiguous logits `[rows, columns]` against a class, or its gradient:
/// [`Backend::cross_entropy`](crate::Backend::cross_entropy).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Of everything but the classes.
    pub dtype: DType,
    /// How many rows.
    pub rows: usize,
    /// How many classes.
    pub columns: usize,
    /// Which class counts for nothing, and how much is spread over all. The mean is not a driver's.
    pub params: CrossEntropyParams,
    /// `[rows, columns]`.
    pub logits: DevicePtr,
    /// i64 `[rows]`: a class each.
    pub target: DevicePtr,
    /// `[rows]`: written; for the gradient, the losses' gradient.
    pub loss: DevicePtr,
    /// `[rows]`: each row's `ln Σ e^x`, written; for the gradient, read.
    pub logsumexp: DevicePtr,
    /// For the gradient, `[rows, columns]`, written: the gradient wrt the logits.
    pub grad: DevicePtr,
}

/// One value in `len` places in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Of the memory.
    pub dtype: DType,
    /// How many.
    pub len: usize,
    /// Converted to the dtype.
    pub value: Scalar,
    /// Written.
    pub output: DevicePtr,
}

/// Random numbers in `len` places in a row: those of [`random_host`](crate::random_host).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Random {
    /// Of the memory.
    pub dtype: DType,
    /// How many.
    pub len: usize,
    /// Which.
    pub distribution: Distribution,
    /// Where in the stream.
    pub key: RandomKey,
    /// Written.
    pub output: DevicePtr,
}

/// So many elements in bytes.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when they are more than can be counted.
pub(super) fn bytes(elements: Option<usize>, dtype: DType) -> Result<usize> {
    elements
        .and_then(|x| x.checked_mul(dtype.size()))
        .ok_or_else(uncountable)
}

pub(super) fn uncountable() -> Error {
    Error::invalid("the operands are larger than any memory")
}
