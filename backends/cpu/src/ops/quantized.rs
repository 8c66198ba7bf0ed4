//! Products of bytes.

use polygrad_core::{DType, Error, Result, Shape};

use super::matmul::{Stack, many};
use crate::CpuTensor;
use crate::Pointer;
use crate::gemm::bytes::{Panels, Product, Zeros};
use crate::gemm::{Dims, Mat};

/// A tensor of `expected` dtype, whose elements follow each other.
pub(crate) fn operand(op: &'static str, x: &CpuTensor, expected: DType) -> Result<CpuTensor> {
    if x.dtype() != expected {
        let error = Error::dtype(format!("an operand is {}, not {expected}", x.dtype()));
        return Err(error.with_op(op).with_hint("convert it with to_dtype"));
    }
    x.contiguous()
}

/// One number, or `count` of them.
pub(crate) fn numbers_for(op: &'static str, x: &CpuTensor, dtype: DType, count: usize) -> Result<CpuTensor> {
    if x.shape().rank() != 1 || ![1, count].contains(&x.numel()) {
        let error = Error::shape(format!("{} is neither [1] nor [{count}]", x.shape()));
        return Err(error.with_op(op));
    }
    operand(op, x, dtype)
}

/// See [`polygrad_core::Backend::matmul_u8`].
pub(crate) fn matmul_u8(a: &CpuTensor, b: &CpuTensor, zero_a: &CpuTensor, zero_b: &CpuTensor) -> Result<CpuTensor> {
    let op = "matmul_u8";
    let (left, right) = (*a.shape(), *b.shape());
    let (p, q) = (left.rank(), right.rank());
    if p < 2 || q < 2 || left[p - 1] != right[q - 2] {
        let error = Error::shape("takes matrices […, m, k] and […, k, n]");
        return Err(super::mismatch(error, op, a, b));
    }
    for x in [a, b] {
        if x.dtype() != DType::U8 {
            return Err(super::mismatch(Error::dtype("takes matrices of u8"), op, a, b));
        }
    }
    let mut dims = Dims {
        m: left[p - 2],
        n: right[q - 1],
        k: left[p - 1],
    };
    let (zero_a, zero_b) = (
        numbers_for(op, zero_a, DType::U8, dims.m)?,
        numbers_for(op, zero_b, DType::U8, dims.n)?,
    );
    let lead = Shape::new(&left[..p - 2])?
        .broadcast(&Shape::new(&right[..q - 2])?)
        .map_err(|e| e.with_op(op))?;
    let mut shape = lead.to_vec();
    shape.extend([dims.m, dims.n]);
    let mut out = CpuTensor::empty(Shape::new(&shape)?, DType::I32, a.device())?;
    // A stack of matrices with one B is one with more rows.
    let flat;
    let (mut a, mut batch) = (a, lead);
    if q == 2 && p > 2 && zero_a.numel() == 1 {
        dims.m *= lead.numel();
        flat = a.reshaped(Shape::from([dims.m, dims.k]))?;
        (a, batch) = (&flat, Shape::SCALAR);
    }
    let device = out.device();
    let (left, right) = (Stack::new(a, &batch), Stack::new(b, &batch));
    let product = Product {
        dims,
        a: Mat::new(a.typed::<u8>()?, left.rows, left.cols),
        b: Mat::new(b.typed::<u8>()?, right.rows, right.cols),
        zero_a: Zeros(zero_a.slice()?),
        zero_b: Zeros(zero_b.slice()?),
        panels: b.packed::<Panels>(),
    };
    let to = Pointer(out.ptr_mut().cast::<i32>());
    let one = |i: usize| {
        let product = Product {
            a: product.a.moved(left.offset(&batch, i)),
            b: product.b.moved(right.offset(&batch, i)),
            ..product
        };
        // SAFETY: the matrices are parts of the tensors; the output is new, and each product writes a part of its own.
        unsafe { product.run(device, to.at(i * dims.m * dims.n)) }
    };
    many(device, batch.numel(), product.cost(device), one)?;
    Ok(out)
}

/// See [`polygrad_core::Backend::prepack`], for the right-hand side of a product of bytes.
pub(crate) fn prepack(weight: &CpuTensor) -> Result<CpuTensor> {
    if weight.dtype() != DType::U8 || weight.shape().rank() != 2 || weight.numel() == 0 {
        return Ok(weight.clone());
    }
    let weight = weight.contiguous()?;
    let (k, n) = (weight.shape()[0], weight.shape()[1]);
    // SAFETY: the matrix is the tensor.
    let panels = unsafe {
        Panels::new(
            weight.device(),
            n,
            k,
            Mat::new(weight.typed::<u8>()?, n.cast_signed(), 1),
        )?
    };
    Ok(weight.with_packed(panels))
}
