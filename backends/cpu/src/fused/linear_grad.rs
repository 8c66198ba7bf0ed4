//! The gradients of a linear layer's weight and bias.

use std::borrow::Cow;

use polygrad_core::{Backend, DType, Element, Error, Result, Shape, decompose};

use crate::Pointer;
use crate::gemm::{self, Dims, Mat, MatMut, Real, Update};
use crate::ops::half::Half;
use crate::ops::{floats, same_dtype};
use crate::simd::{Kernel, Simd};
use crate::{Cpu, CpuTensor};

/// The most rows that are added up at once. Sums of more rows are cut into parts, each a task, like any other
/// reduction.
const ROWS: usize = 1024;

/// Approximate nanoseconds per element.
const NS: f32 = 0.02;

/// Columns that are added up together.
const TOGETHER: usize = 64;

/// Rows after which a new partial sum begins, to bound the rounding error.
const BLOCK: usize = 32;

/// See [`polygrad_core::Backend::linear_weight_grad`].
pub(crate) fn linear_weight_grad(grad: &CpuTensor, x: &CpuTensor) -> Result<(CpuTensor, CpuTensor)> {
    let name = "linear_weight_grad";
    let dtype = same_dtype(name, grad, x)?;
    floats(name, dtype)?;
    let rank = grad.shape().rank();
    if rank == 0 || x.shape().rank() != rank || grad.shape()[..rank - 1] != x.shape()[..rank - 1] {
        return Err(Error::shape("takes a gradient […, out] and an input […, in]")
            .with_op(name)
            .with_operands([grad, x].map(|x| (*x.shape(), x.dtype()))));
    }
    match (Half::of(dtype), dtype) {
        (None, DType::F32) => gradients::<f32>(flat(grad)?.as_ref(), flat(x)?.as_ref()),
        (None, _) => gradients::<f64>(flat(grad)?.as_ref(), flat(x)?.as_ref()),
        (Some(_), _) => decompose::linear_weight_grad::<Cpu>(grad, x),
    }
}

/// The tensor as a matrix with one row per position of the leading axes.
fn flat(x: &CpuTensor) -> Result<Cow<'_, CpuTensor>> {
    let (shape, rank) = (x.shape(), x.shape().rank());
    if rank == 2 {
        return Ok(Cow::Borrowed(x));
    }
    let rows = shape[..rank - 1].iter().product();
    Cpu::reshape(x, Shape::from([rows, shape[rank - 1]])).map(Cow::Owned)
}

fn gradients<T: Real + Element>(grad: &CpuTensor, x: &CpuTensor) -> Result<(CpuTensor, CpuTensor)> {
    let (rows, outputs, inputs) = (grad.shape()[0], grad.shape()[1], x.shape()[1]);
    let (dtype, device) = (grad.dtype(), grad.device());
    let mut of_weight = CpuTensor::empty(Shape::from([outputs, inputs]), dtype, device)?;
    let ([grad_row, grad_column], [x_row, x_column]) = (grad.matrix_strides(), x.matrix_strides());
    let dims = Dims {
        m: outputs,
        n: inputs,
        k: rows,
    };
    let to = MatMut::new(of_weight.ptr_mut().cast::<T>(), inputs.cast_signed(), 1);
    // SAFETY: the matrices are the tensors, the first transposed, and the output is new.
    unsafe {
        let turned = Mat::new(grad.typed::<T>()?, grad_column, grad_row);
        gemm::gemm(
            device,
            dims,
            turned,
            Mat::new(x.typed::<T>()?, x_row, x_column),
            to,
            Update::set(),
        )?;
    }
    let small = dtype == DType::F32 && (1..=ROWS).contains(&rows) && grad_column == 1;
    let of_bias = match device.vectors() {
        Some(level) if small => {
            let mut sums = CpuTensor::empty(Shape::from([outputs]), dtype, device)?;
            let (from, to) = (grad.typed::<f32>()?, Pointer(sums.ptr_mut().cast::<f32>()));
            let from = Pointer(from.cast_mut());
            device.split(outputs, rows as f32 * NS, TOGETHER, |start, end| {
                level.run(Columns {
                    from: from.at(start),
                    row: grad_row,
                    rows,
                    columns: end - start,
                    to: to.at(start),
                });
            });
            sums
        }
        _ => Cpu::sum_to(grad, Shape::from([outputs]))?,
    };
    Ok((of_weight, of_bias))
}

/// The sums of a matrix's columns.
struct Columns {
    from: *const f32,
    /// Elements from one row to the next.
    row: isize,
    rows: usize,
    columns: usize,
    to: *mut f32,
}

impl Kernel for Columns {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // The outer loop is over rows, not over columns, since rows are consecutive in memory.
        for start in (0..self.rows).step_by(BLOCK) {
            let rows = BLOCK.min(self.rows - start);
            let mut column = 0;
            while column + 4 * S::N <= self.columns {
                // SAFETY: the matrix has these columns.
                unsafe { self.add::<S, 4>(s, start, rows, column, S::N) };
                column += 4 * S::N;
            }
            while column < self.columns {
                let n = S::N.min(self.columns - column);
                // SAFETY: as above.
                unsafe { self.add::<S, 1>(s, start, rows, column, n) };
                column += n;
            }
        }
    }
}

impl Columns {
    /// Adds `rows` rows from `start` on to the sums of `R` registers of columns from `first` on, with `n` columns each.
    /// The first rows begin the sums.
    ///
    /// # Safety
    /// These rows and columns must exist.
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize>(&self, s: S, start: usize, rows: usize, first: usize, n: usize) {
        let mut sums = [s.splat(0.0); R];
        for row in start..start + rows {
            let from = self
                .from
                .wrapping_offset(row.cast_signed() * self.row)
                .wrapping_add(first);
            for (r, sum) in sums.iter_mut().enumerate() {
                // SAFETY: by the caller.
                let value = unsafe { s.load_part(from.add(r * S::N), n) };
                *sum = s.add(*sum, value);
            }
        }
        for (r, sum) in sums.into_iter().enumerate() {
            // SAFETY: by the caller; there is a result for each column, which the first block of rows wrote.
            unsafe {
                let to = self.to.add(first + r * S::N);
                let sum = if start > 0 { s.add(s.load_part(to, n), sum) } else { sum };
                s.store_part(to, n, sum);
            }
        }
    }
}
