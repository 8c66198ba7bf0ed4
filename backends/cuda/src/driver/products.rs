//! Matrix products by cuBLAS, which is column-major: a row-major C is the product of the transposed matrices in reverse
//! order.

use polygrad_core::compute::{Batch, DeviceView, Elementwise, ElementwiseProgram, Gemm, Step};
use polygrad_core::{BinaryOp, DType, Error, Layout, Result, Scalar};

use super::elementwise;
use super::memory::{Space, shape_of};
use super::queue::Queue;
use crate::runtime::Product;

/// See [`polygrad_core::compute::ComputeBackend::batched_gemm`].
pub(super) fn gemm(queue: &Queue, space: &Space<'_>, call: &Gemm, batch: &Batch) -> Result<()> {
    let spans = batch.spans(call)?;
    if call.is_empty() || batch.count == 0 {
        return Ok(());
    }
    let a = space.span(call.a, call.dtype, spans[0])?;
    let b = space.span(call.b, call.dtype, spans[1])?;
    let c = space.span(call.c, call.dtype_c, spans[2])?;
    if call.k == 0 {
        return scale(queue, space, call, batch);
    }
    multiply(queue, call, batch, [a, b, c])
}

/// Multiplies matrices at these addresses, for a product with rows, columns and terms.
pub(super) fn multiply(queue: &Queue, call: &Gemm, batch: &Batch, [a, b, c]: [u64; 3]) -> Result<()> {
    let narrow = |what: &str, value: usize| {
        i32::try_from(value).map_err(|_| {
            Error::unsupported(format!("{what} of {value} in a product; cuBLAS counts up to 2^31"))
                .with_hint("compute it in parts")
        })
    };
    // A leading dimension or stride that is never used may be any number, but cuBLAS checks it.
    let leading =
        |name: &str, ld: usize, (rows, columns): (usize, usize)| narrow(name, if rows > 1 { ld } else { columns });
    let lying = |swaps: bool, rows, columns| if swaps { (columns, rows) } else { (rows, columns) };
    let stride = |stride: usize| match batch.count {
        1 => 0,
        _ => i64::try_from(stride).unwrap_or(i64::MAX),
    };
    let size_a = lying(call.trans_a.swaps(), call.m, call.k);
    let size_b = lying(call.trans_b.swaps(), call.k, call.n);
    queue.runtime.gemm(&Product {
        dtype: call.dtype,
        dtype_c: call.dtype_c,
        trans_a: call.trans_b,
        trans_b: call.trans_a,
        dims: [
            narrow("columns", call.n)?,
            narrow("rows", call.m)?,
            narrow("terms", call.k)?,
        ],
        alpha: call.alpha,
        beta: call.beta,
        matrices: [b, a, c],
        leading: [
            leading("a leading dimension", call.ldb, size_b)?,
            leading("a leading dimension", call.lda, size_a)?,
            leading("a leading dimension", call.ldc, (call.m, call.n))?,
        ],
        strides: [stride(batch.stride_b), stride(batch.stride_a), stride(batch.stride_c)],
        count: narrow("a batch", batch.count)?,
        tf32: queue.tf32 && call.dtype == DType::F32,
    })
}

/// Computes `beta · C`, for products without terms.
fn scale(queue: &Queue, space: &Space<'_>, call: &Gemm, batch: &Batch) -> Result<()> {
    let stride = |count: usize, step: usize| if count > 1 { step.cast_signed() } else { 0 };
    let strides = [stride(batch.count, batch.stride_c), stride(call.m, call.ldc), 1];
    let shape = shape_of(&[batch.count, call.m, call.n])?;
    let view = DeviceView::new(call.c, call.dtype_c, Layout::strided(shape, &strides, 0));
    if call.beta == 0.0 {
        return elementwise::fill(queue, space, &view, Scalar::Float(0.0));
    }
    let mut program = ElementwiseProgram::default();
    let (x, beta) = (program.input(call.dtype_c), program.scalar(call.dtype_c));
    let y = program.push(Step::Binary(BinaryOp::Mul, x, beta))?;
    program.output(y);
    let run = Elementwise {
        program: &program,
        shape,
        inputs: &[view],
        scalars: &[Scalar::Float(call.beta)],
        outputs: &[view],
    };
    elementwise::elementwise(queue, space, &run)
}
