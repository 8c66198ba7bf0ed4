//! Products of matrices of bytes.

use polygrad_core::{DType, Error, Result, Shape};

use super::matmul::Stack;
use super::rescale::{self, Rows};
use crate::CpuTensor;
use crate::Pointer;
use crate::gemm::bytes::{Block, Panels, Product, To, Zeros};
use crate::gemm::{Dims, Mat};

/// A contiguous tensor of the `expected` dtype.
pub(crate) fn operand(op: &'static str, x: &CpuTensor, expected: DType) -> Result<CpuTensor> {
    if x.dtype() != expected {
        let error = Error::dtype(format!("an operand is {}, not {expected}", x.dtype()));
        return Err(error.with_op(op).with_hint("convert it with to_dtype"));
    }
    x.contiguous()
}

/// A tensor with one number, or with `count` of them.
pub(crate) fn numbers_for(op: &'static str, x: &CpuTensor, dtype: DType, count: usize) -> Result<CpuTensor> {
    if x.shape().rank() != 1 || ![1, count].contains(&x.numel()) {
        let error = Error::shape(format!("{} is neither [1] nor [{count}]", x.shape()));
        return Err(error.with_op(op));
    }
    operand(op, x, dtype)
}

/// See [`polygrad_core::Backend::matmul_u8`].
pub(crate) fn matmul_u8(a: &CpuTensor, b: &CpuTensor, zero_a: &CpuTensor, zero_b: &CpuTensor) -> Result<CpuTensor> {
    multiplied("matmul_u8", (a, b), [zero_a, zero_b], DType::I32, None)
}

/// See [`polygrad_core::Backend::matmul_requantize_u8`].
pub(crate) fn matmul_requantize_u8(
    a: &CpuTensor,
    b: &CpuTensor,
    zeros: [&CpuTensor; 2],
    scale: &CpuTensor,
    zero: &CpuTensor,
    bias: Option<&CpuTensor>,
) -> Result<CpuTensor> {
    let (op, device, n) = ("matmul_requantize_u8", a.device(), columns(b));
    let scale = numbers_for(op, scale, DType::F32, n)?;
    let zero = numbers_for(op, zero, DType::U8, 1)?;
    let bias = bias.map(|bias| numbers_for(op, bias, DType::I32, n)).transpose()?;
    let (scale, zero) = (scale.slice::<f32>()?, zero.slice::<u8>()?[0]);
    let bias = bias.as_ref().map(CpuTensor::slice::<i32>).transpose()?.unwrap_or(&[0]);
    let write = |block: &Block<'_>, to: *mut u8| {
        let factors = (part(scale, block), part(bias, block));
        rescale::bytes(device, &rows(block, n, to), factors, zero);
    };
    multiplied(op, (a, b), zeros, DType::U8, Some(&write))
}

/// See [`polygrad_core::Backend::matmul_rescale_u8`].
pub(crate) fn matmul_rescale_u8(
    a: &CpuTensor,
    b: &CpuTensor,
    zeros: [&CpuTensor; 2],
    scale: &CpuTensor,
    bias: Option<&CpuTensor>,
) -> Result<CpuTensor> {
    let (op, device, n) = ("matmul_rescale_u8", a.device(), columns(b));
    let scale = numbers_for(op, scale, DType::F32, n)?;
    let to_sums = bias.filter(|bias| bias.dtype() == DType::I32);
    let after = bias.filter(|_| to_sums.is_none());
    let to_sums = to_sums.map(|bias| numbers_for(op, bias, DType::I32, n)).transpose()?;
    let after = after.map(|bias| numbers_for(op, bias, DType::F32, n)).transpose()?;
    let scale = scale.slice::<f32>()?;
    let to_sums = to_sums.as_ref().map(CpuTensor::slice::<i32>).transpose()?;
    let after = after.as_ref().map(CpuTensor::slice::<f32>).transpose()?;
    let write = |block: &Block<'_>, to: *mut u8| {
        let (rows, scale) = (rows(block, n, to.cast()), part(scale, block));
        match to_sums {
            Some(bias) => rescale::summed_floats(device, &rows, scale, part(bias, block)),
            None => rescale::floats(device, &rows, scale, after.map(|bias| part(bias, block))),
        }
    };
    multiplied(op, (a, b), zeros, DType::F32, Some(&write))
}

fn columns(b: &CpuTensor) -> usize {
    b.shape().last().copied().unwrap_or(0)
}

/// The numbers for a block's columns, of one for all or one for each.
fn part<'a, T>(numbers: &'a [T], block: &Block<'_>) -> &'a [T] {
    match numbers {
        [_] => numbers,
        _ => &numbers[block.column..][..block.columns],
    }
}

/// A block, and where it goes in a matrix of `n` columns.
fn rows<'a, T>(block: &Block<'a>, n: usize, to: *mut T) -> Rows<'a, T> {
    Rows {
        sums: block.sums,
        columns: block.columns,
        to: to.wrapping_add(block.row * n + block.column),
        step: n,
    }
}

/// What writes a block of sums to the matrix that begins at an address.
type Write<'a> = &'a (dyn Fn(&Block<'_>, *mut u8) + Sync);

fn multiplied(
    op: &'static str,
    (a, b): (&CpuTensor, &CpuTensor),
    [zero_a, zero_b]: [&CpuTensor; 2],
    dtype: DType,
    write: Option<Write<'_>>,
) -> Result<CpuTensor> {
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
    let mut out = CpuTensor::empty(Shape::new(&shape)?, dtype, a.device())?;
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
    let to = Pointer(out.ptr_mut());
    let one = |i: usize| {
        let product = Product {
            a: product.a.moved(left.offset(&batch, i)),
            b: product.b.moved(right.offset(&batch, i)),
            ..product
        };
        let to = Pointer(to.at(i * dims.m * dims.n * dtype.size()));
        let give = |block: Block<'_>| write.iter().for_each(|write| write(&block, to.at(0)));
        let to = match write {
            Some(_) => To::Blocks(&give),
            None => To::Sums(to.at(0).cast()),
        };
        // SAFETY: the matrices are parts of the tensors; the output is new, and each product writes a part of its own.
        unsafe { product.run(device, to) }
    };
    device.try_each(batch.numel(), product.cost(device), one)?;
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
