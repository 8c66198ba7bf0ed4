//! Arguments of driver calls: one struct for each kernel.

use super::{ComputeBackend, DevicePtr, DeviceView, ElementwiseProgram};
use crate::{
    ArgOp, Axes, BinaryOp, CrossEntropyParams, DType, Distribution, Error, RandomKey, ReduceOp, Result, Scalar, Shape,
    UnaryOp,
};

/// One copy of [`ComputeBackend::copy_each`](super::ComputeBackend::copy_each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteCopy {
    /// Written.
    pub dst: DevicePtr,
    /// Read.
    pub src: DevicePtr,
    /// Number of bytes.
    pub bytes: usize,
}

/// A reduction over the middle axis of a contiguous `[outer, len, inner]`, to `[outer, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// The reduction.
    pub op: ReduceOp,
    /// Dtype of input and output.
    pub dtype: DType,
    /// Extent before the reduced axis.
    pub outer: usize,
    /// Number of elements that are reduced to one.
    pub len: usize,
    /// Extent after the reduced axis.
    pub inner: usize,
    /// Read.
    pub input: DevicePtr,
    /// Written.
    pub output: DevicePtr,
}

impl Reduce {
    /// Sizes of input and output in bytes.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a size overflows, or the op has no value for no
    /// elements.
    pub fn spans(&self) -> Result<[usize; 2]> {
        let kept = self.outer.checked_mul(self.inner);
        let output = bytes(kept, self.dtype)?;
        if self.len == 0 && output > 0 && self.op.needs_elements() {
            return Err(Error::invalid(format!("{} over no elements", self.op.name())));
        }
        Ok([bytes(kept.and_then(|x| x.checked_mul(self.len)), self.dtype)?, output])
    }
}

/// A function of `len` contiguous elements. The output may be the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unary {
    /// The function.
    pub op: UnaryOp,
    /// Dtype of the input. The output has the same, or bool for predicates.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// Read.
    pub input: DevicePtr,
    /// Written.
    pub output: DevicePtr,
}

impl Unary {
    /// Makes the call by [`ComputeBackend::unary_strided`], for drivers whose element-wise kernels take any layout.
    ///
    /// # Errors
    /// Those of that method.
    pub fn by_elementwise(&self, driver: &(impl ComputeBackend + ?Sized)) -> Result<()> {
        let result = if self.op.is_predicate() {
            DType::Bool
        } else {
            self.dtype
        };
        let run = |shape| {
            let input = DeviceView::contiguous(self.input, self.dtype, shape);
            driver.unary_strided(self.op, &input, &DeviceView::contiguous(self.output, result, shape))
        };
        in_a_row(self.len)
            .and_then(run)
            .map_err(|error| error.with_op(self.op.name()))
    }
}

/// A function of two lists of `len` contiguous elements. The output may be an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The function.
    pub op: BinaryOp,
    /// Dtype of both operands and the output.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// The left operand.
    pub a: DevicePtr,
    /// The right operand.
    pub b: DevicePtr,
    /// Written.
    pub output: DevicePtr,
}

impl Binary {
    /// Makes the call by [`ComputeBackend::binary_strided`], for drivers whose element-wise kernels take any layout.
    ///
    /// # Errors
    /// Those of that method.
    pub fn by_elementwise(&self, driver: &(impl ComputeBackend + ?Sized)) -> Result<()> {
        let run = |shape| {
            let [a, b, output] =
                [self.a, self.b, self.output].map(|ptr| DeviceView::contiguous(ptr, self.dtype, shape));
            driver.binary_strided(self.op, &a, &b, &output)
        };
        in_a_row(self.len)
            .and_then(run)
            .map_err(|error| error.with_op(self.op.name()))
    }
}

/// A run of an [`ElementwiseProgram`] over all elements of a shape.
#[derive(Clone, Copy, Debug)]
pub struct Elementwise<'a> {
    /// The computation.
    pub program: &'a ElementwiseProgram,
    /// The shape of all inputs and outputs.
    pub shape: Shape,
    /// One view for each input, of its dtype and `shape`; broadcast by strides of 0.
    pub inputs: &'a [DeviceView],
    /// One number for each scalar, converted to its dtype.
    pub scalars: &'a [Scalar],
    /// One view for each output, of its dtype and `shape`, whose elements do not share memory. An output may be the
    /// same view as an input; otherwise they do not overlap.
    pub outputs: &'a [DeviceView],
}

impl Elementwise<'_> {
    /// Whether all inputs, scalars and outputs of the program are given, with their dtypes and the run's shape.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when one is missing or does not match, or elements of an
    /// output share memory.
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
    /// The reduction.
    pub op: ReduceOp,
    /// Read.
    pub input: DeviceView,
    /// The axes that are reduced; the output does not have them.
    pub axes: Axes,
    /// Written: contiguous, of the input's dtype.
    pub output: DevicePtr,
}

/// Positions of extremes along an axis of a view.
#[derive(Clone, Copy, Debug)]
pub struct ArgReduce {
    /// The largest or the smallest.
    pub op: ArgOp,
    /// Read.
    pub input: DeviceView,
    /// The axis that is reduced; the output does not have it.
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
    /// Whether the largest comes first.
    pub descending: bool,
    /// Written: contiguous, of the input's shape and dtype.
    pub values: DevicePtr,
    /// Written: contiguous, i64: each value's position on the axis before sorting.
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

/// Writes or adds elements of `source` to the elements of `target` that `index` names along an axis:
/// [`Backend::scatter`](crate::Backend::scatter), [`Backend::scatter_add`](crate::Backend::scatter_add).
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    /// Changed; its elements do not share memory.
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
    /// Dtype of all operands.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Length of each row.
    pub columns: usize,
    /// Whether the result is the logarithm of softmax.
    pub log: bool,
    /// The input; for the gradient, the output's gradient. The output may be the same memory.
    pub input: DevicePtr,
    /// The forward pass's output, for the gradient. Not read by the forward pass.
    pub saved: DevicePtr,
    /// Written.
    pub output: DevicePtr,
}

/// Layer normalisation of each row of a contiguous `[rows, columns]`:
/// [`Backend::layer_norm`](crate::Backend::layer_norm).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Dtype of all operands.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Length of each row, of the weight and of the bias.
    pub columns: usize,
    /// Added to the variance.
    pub eps: f64,
    /// The input.
    pub input: DevicePtr,
    /// Optional scale.
    pub weight: Option<DevicePtr>,
    /// Optional shift.
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
    /// Dtype of all operands except the classes.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Number of classes.
    pub columns: usize,
    /// The ignored class and the label smoothing. Drivers do not compute the mean.
    pub params: CrossEntropyParams,
    /// `[rows, columns]`.
    pub logits: DevicePtr,
    /// i64 `[rows]`: the class of each row.
    pub target: DevicePtr,
    /// `[rows]`: written; for the gradient, the losses' gradient.
    pub loss: DevicePtr,
    /// `[rows]`: each row's `ln Σ e^x`, written; for the gradient, read.
    pub logsumexp: DevicePtr,
    /// For the gradient, `[rows, columns]`, written: the gradient wrt the logits.
    pub grad: DevicePtr,
}

/// One value in `len` contiguous elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Dtype of the elements.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// Converted to the dtype.
    pub value: Scalar,
    /// Written.
    pub output: DevicePtr,
}

impl Fill {
    /// Makes the call by [`ComputeBackend::elementwise`], for drivers that fill as fast with it as with a kernel for
    /// that.
    ///
    /// # Errors
    /// Those of that method.
    pub fn by_elementwise(&self, driver: &(impl ComputeBackend + ?Sized)) -> Result<()> {
        let mut program = ElementwiseProgram::default();
        let value = program.scalar(self.dtype);
        program.output(value);
        let run = |shape| {
            driver.elementwise(&Elementwise {
                program: &program,
                shape,
                inputs: &[],
                scalars: &[self.value],
                outputs: &[DeviceView::contiguous(self.output, self.dtype, shape)],
            })
        };
        in_a_row(self.len).and_then(run).map_err(|error| error.with_op("fill"))
    }
}

/// Random numbers in `len` contiguous elements: those of [`random_host`](crate::random_host).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Random {
    /// Dtype of the elements.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// The distribution.
    pub distribution: Distribution,
    /// Where the draw begins in the stream of the seed.
    pub key: RandomKey,
    /// Written.
    pub output: DevicePtr,
}

/// The shape of this many elements.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if no memory holds them.
fn in_a_row(len: usize) -> Result<Shape> {
    Shape::new(&[len]).map_err(|error| Error::invalid(error.message().to_owned()))
}

/// The size of this many elements in bytes.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when it overflows.
pub(super) fn bytes(elements: Option<usize>, dtype: DType) -> Result<usize> {
    elements
        .and_then(|x| x.checked_mul(dtype.size()))
        .ok_or_else(uncountable)
}

pub(super) fn uncountable() -> Error {
    Error::invalid("the operands are larger than any memory")
}
