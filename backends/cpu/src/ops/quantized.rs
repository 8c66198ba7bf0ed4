//! Products of bytes, and what follows them.

use polygrad_core::{DType, Error, Result, Shape};

use super::axis_in;
use super::matmul::{Stack, many};
use crate::CpuTensor;
use crate::gemm::bytes::{Panels, Product, Zeros};
use crate::gemm::{Dims, Mat};
use crate::loops::Pointer;
use crate::simd::{Kernel, Level, Simd};

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

/// See [`polygrad_core::Backend::requantize_u8`].
pub(crate) fn requantize_u8(
    x: &CpuTensor,
    scale: &CpuTensor,
    zero: &CpuTensor,
    bias: Option<&CpuTensor>,
    axis: usize,
) -> Result<CpuTensor> {
    let op = "requantize_u8";
    let extent = if x.shape().rank() == 0 && axis == 0 {
        1
    } else {
        axis_in(op, x, axis)?;
        x.shape()[axis]
    };
    let x = operand(op, x, DType::I32)?;
    let (scale, zero) = (
        numbers_for(op, scale, DType::F32, extent)?,
        numbers_for(op, zero, DType::U8, 1)?,
    );
    let bias = bias.map(|bias| numbers_for(op, bias, DType::I32, extent)).transpose()?;
    let mut out = CpuTensor::empty(*x.shape(), DType::U8, x.device())?;
    let inner = x.shape().iter().skip(axis + 1).product();
    let (from, zero) = (x.slice::<i32>()?, f32::from(zero.slice::<u8>()?[0]));
    let scale = scale.slice::<f32>()?;
    let bias = match &bias {
        Some(bias) => bias.slice::<i32>()?,
        None => &[0],
    };
    let to = Pointer(out.ptr_mut());
    let device = x.device();
    device.split(from.len(), 0.3, 64, |start, end| {
        let stretch = Requantize {
            from: &from[start..end],
            start,
            inner,
            extent,
            scale,
            bias,
            zero,
            // SAFETY: the output is new, and each stretch of it one task's.
            to: unsafe { std::slice::from_raw_parts_mut(to.at(start), end - start) },
        };
        Level::run_loops(device.vectors(), stretch);
    });
    Ok(out)
}

struct Requantize<'a> {
    from: &'a [i32],
    to: &'a mut [u8],
    /// The place of the first of them in the tensor.
    start: usize,
    /// Elements for each position of the axis, and how many positions there are.
    inner: usize,
    extent: usize,
    scale: &'a [f32],
    bias: &'a [i32],
    zero: f32,
}

/// The number for a position: one for all, or its own.
#[inline(always)]
fn of<T: Copy>(list: &[T], position: usize) -> T {
    if list.len() == 1 { list[0] } else { list[position] }
}

/// The byte nearest to a product. NaN is 0.
#[expect(clippy::manual_clamp, reason = "of NaN `clamp` gives NaN")]
#[inline(always)]
fn byte(x: i32, bias: i32, scale: f32, zero: f32) -> u8 {
    let y = (x.wrapping_add(bias) as f32 * scale).round_ties_even() + zero;
    // SAFETY: numbers from 0 to 255 are i32; of NaN `max` gives the other operand.
    unsafe { y.max(0.0).min(255.0).to_int_unchecked::<i32>() as u8 }
}

impl Kernel for Requantize<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            from,
            to,
            start,
            inner,
            extent,
            scale,
            bias,
            zero,
        } = self;
        // Runs with the same numbers for all, or with a list of numbers of their own.
        let apart = scale.len() > 1 || bias.len() > 1;
        let run = match (apart, inner) {
            (false, _) => from.len(),
            (true, 1) => extent,
            (true, _) => inner,
        };
        let mut at = 0;
        while at < from.len() {
            let place = (start + at) % run.max(1);
            let end = if apart {
                (at + run - place).min(from.len())
            } else {
                from.len()
            };
            let (from, to) = (&from[at..end], &mut to[at..end]);
            if apart && inner == 1 {
                let all = place..place + from.len();
                match (bias, scale) {
                    (&[bias], _) => each(from, to, std::iter::repeat(bias), scale[all].iter().copied(), zero),
                    (_, &[scale]) => each(from, to, bias[all].iter().copied(), std::iter::repeat(scale), zero),
                    _ => each(
                        from,
                        to,
                        bias[all.clone()].iter().copied(),
                        scale[all].iter().copied(),
                        zero,
                    ),
                }
            } else {
                let position = (start + at) / inner.max(1) % extent.max(1);
                let of_all = (
                    std::iter::repeat(of(bias, position)),
                    std::iter::repeat(of(scale, position)),
                );
                each(from, to, of_all.0, of_all.1, zero);
            }
            at = end;
        }
    }
}

#[inline(always)]
fn each(from: &[i32], to: &mut [u8], bias: impl Iterator<Item = i32>, scale: impl Iterator<Item = f32>, zero: f32) {
    for (((&x, y), bias), scale) in from.iter().zip(to).zip(bias).zip(scale) {
        *y = byte(x, bias, scale, zero);
    }
}
