//! Between bytes, sums of their products and floats.

use std::iter::repeat;

use polygrad_core::{DType, Element, Result};

use super::quantized::{numbers_for, operand};
use super::{axis_in, convert};
use crate::Pointer;
use crate::simd::{Kernel, Level, Simd};
use crate::{CpuDevice, CpuTensor};

/// See [`polygrad_core::Backend::requantize_u8`].
pub(crate) fn requantize_u8(
    x: &CpuTensor,
    scale: &CpuTensor,
    zero: &CpuTensor,
    bias: Option<&CpuTensor>,
    axis: usize,
) -> Result<CpuTensor> {
    let op = "requantize_u8";
    let zero = numbers_for(op, zero, DType::U8, 1)?;
    let to = ToBytes {
        zero: f32::from(zero.slice::<u8>()?[0]),
    };
    rescaled(op, (x, axis), scale, bias, to)
}

/// See [`polygrad_core::Backend::rescale_i32`].
pub(crate) fn rescale_i32(
    x: &CpuTensor,
    scale: &CpuTensor,
    bias: Option<&CpuTensor>,
    axis: usize,
) -> Result<CpuTensor> {
    rescaled("rescale_i32", (x, axis), scale, bias, ToFloats)
}

/// Sums as bytes, with one bias, scale and zero point for all.
pub(crate) fn bytes(device: CpuDevice, from: &[i32], to: &mut [u8], (bias, scale, zero): (i32, f32, f32)) {
    let stretch = Rescale {
        finish: ToBytes { zero },
        from,
        to,
        start: 0,
        inner: from.len(),
        extent: 1,
        scale: &[scale],
        bias: &[bias],
    };
    Level::run_loops(device.vectors(), stretch);
}

/// See [`polygrad_core::Backend::quantize_u8`].
pub(crate) fn quantize_u8(x: &CpuTensor, scale: &CpuTensor, zero: &CpuTensor) -> Result<CpuTensor> {
    let op = "quantize_u8";
    let x = operand(op, &convert::cast(x, DType::F32)?, DType::F32)?;
    let (scale, zero) = constants(op, scale, zero)?;
    each(&x, move |x: f32| byte(x / scale, zero))
}

/// See [`polygrad_core::Backend::dequantize_u8`].
pub(crate) fn dequantize_u8(x: &CpuTensor, scale: &CpuTensor, zero: &CpuTensor) -> Result<CpuTensor> {
    let op = "dequantize_u8";
    let x = operand(op, x, DType::U8)?;
    let (scale, zero) = constants(op, scale, zero)?;
    each(&x, move |x: u8| (f32::from(x) - zero) * scale)
}

/// A scale and a zero point for all.
fn constants(op: &'static str, scale: &CpuTensor, zero: &CpuTensor) -> Result<(f32, f32)> {
    let (scale, zero) = (
        numbers_for(op, scale, DType::F32, 1)?,
        numbers_for(op, zero, DType::U8, 1)?,
    );
    Ok((scale.slice::<f32>()?[0], f32::from(zero.slice::<u8>()?[0])))
}

/// The byte nearest to a number plus a zero point. NaN is 0.
#[expect(clippy::manual_clamp, reason = "of NaN `clamp` gives NaN")]
#[inline(always)]
fn byte(x: f32, zero: f32) -> u8 {
    let y = x.round_ties_even() + zero;
    // SAFETY: numbers from 0 to 255 are i32; of NaN `max` gives the other operand.
    unsafe { y.max(0.0).min(255.0).to_int_unchecked::<i32>() as u8 }
}

/// A function of each number of a tensor whose elements follow each other.
fn each<T: Element, U: Element>(x: &CpuTensor, f: impl Fn(T) -> U + Copy + Sync) -> Result<CpuTensor> {
    let mut out = CpuTensor::empty(*x.shape(), U::DTYPE, x.device())?;
    let from = x.slice::<T>()?;
    let to = Pointer(out.ptr_mut().cast::<U>());
    let device = x.device();
    device.split(from.len(), 0.3, 64, |start, end| {
        let stretch = Each {
            from: &from[start..end],
            // SAFETY: the output is new, and each stretch of it one task's, which only writes.
            to: unsafe { std::slice::from_raw_parts_mut(to.at(start), end - start) },
            f,
        };
        Level::run_loops(device.vectors(), stretch);
    });
    Ok(out)
}

struct Each<'a, T, U, F> {
    from: &'a [T],
    to: &'a mut [U],
    f: F,
}

impl<T: Copy, U, F: Fn(T) -> U> Kernel for Each<'_, T, U, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.from.iter().zip(self.to).for_each(|(&x, to)| *to = (self.f)(x));
    }
}

/// What becomes of a sum of products.
trait Finish: Copy + Sync {
    type Bias: Element;
    type Out: Element;
    const NO_BIAS: Self::Bias;

    fn of(self, x: i32, bias: Self::Bias, scale: f32) -> Self::Out;
}

#[derive(Clone, Copy)]
struct ToBytes {
    zero: f32,
}

impl Finish for ToBytes {
    type Bias = i32;
    type Out = u8;
    const NO_BIAS: i32 = 0;

    #[inline(always)]
    fn of(self, x: i32, bias: i32, scale: f32) -> u8 {
        byte(x.wrapping_add(bias) as f32 * scale, self.zero)
    }
}

#[derive(Clone, Copy)]
struct ToFloats;

impl Finish for ToFloats {
    type Bias = f32;
    type Out = f32;
    /// Which changes no number, not even -0.
    const NO_BIAS: f32 = -0.0;

    #[inline(always)]
    fn of(self, x: i32, bias: f32, scale: f32) -> f32 {
        x as f32 * scale + bias
    }
}

/// Sums with scales and biases for the positions of an axis.
fn rescaled<F: Finish>(
    op: &'static str,
    (x, axis): (&CpuTensor, usize),
    scale: &CpuTensor,
    bias: Option<&CpuTensor>,
    finish: F,
) -> Result<CpuTensor> {
    let extent = if x.shape().rank() == 0 && axis == 0 {
        1
    } else {
        axis_in(op, x, axis)?;
        x.shape()[axis]
    };
    let x = operand(op, x, DType::I32)?;
    let scale = numbers_for(op, scale, DType::F32, extent)?;
    let bias = bias
        .map(|bias| numbers_for(op, bias, F::Bias::DTYPE, extent))
        .transpose()?;
    let mut out = CpuTensor::empty(*x.shape(), F::Out::DTYPE, x.device())?;
    let inner = x.shape().iter().skip(axis + 1).product();
    let (from, scale) = (x.slice::<i32>()?, scale.slice::<f32>()?);
    let none = [F::NO_BIAS];
    let bias = match &bias {
        Some(bias) => bias.slice::<F::Bias>()?,
        None => &none,
    };
    let pointer = Pointer(out.ptr_mut().cast::<F::Out>());
    let device = x.device();
    device.split(from.len(), 0.3, 64, |start, end| {
        let stretch = Rescale {
            finish,
            from: &from[start..end],
            start,
            inner,
            extent,
            scale,
            bias,
            // SAFETY: the output is new, and each stretch of it one task's, which only writes.
            to: unsafe { std::slice::from_raw_parts_mut(pointer.at(start), end - start) },
        };
        Level::run_loops(device.vectors(), stretch);
    });
    Ok(out)
}

struct Rescale<'a, F: Finish> {
    finish: F,
    from: &'a [i32],
    to: &'a mut [F::Out],
    /// The place of the first of them in the tensor.
    start: usize,
    /// Elements for each position of the axis, and how many positions there are.
    inner: usize,
    extent: usize,
    scale: &'a [f32],
    bias: &'a [F::Bias],
}

/// The number for a position: one for all, or its own.
#[inline(always)]
fn of<T: Copy>(list: &[T], position: usize) -> T {
    if list.len() == 1 { list[0] } else { list[position] }
}

impl<F: Finish> Kernel for Rescale<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (scale, bias) = (self.scale, self.bias);
        // Runs with the same numbers for all, or with a list of numbers of their own.
        let apart = scale.len() > 1 || bias.len() > 1;
        let run = match (apart, self.inner) {
            (false, _) => self.from.len(),
            (true, 1) => self.extent,
            (true, inner) => inner,
        };
        let mut at = 0;
        while at < self.from.len() {
            let place = (self.start + at) % run.max(1);
            let end = if apart {
                (at + run - place).min(self.from.len())
            } else {
                self.from.len()
            };
            let (from, to) = (&self.from[at..end], &mut self.to[at..end]);
            if apart && self.inner == 1 {
                let all = place..place + from.len();
                match (bias, scale) {
                    (&[bias], _) => finish(self.finish, from, to, repeat(bias), scale[all].iter().copied()),
                    (_, &[scale]) => finish(self.finish, from, to, bias[all].iter().copied(), repeat(scale)),
                    _ => {
                        let bias = bias[all.clone()].iter().copied();
                        finish(self.finish, from, to, bias, scale[all].iter().copied());
                    }
                }
            } else {
                let position = (self.start + at) / self.inner.max(1) % self.extent.max(1);
                let (bias, scale) = (repeat(of(bias, position)), repeat(of(scale, position)));
                finish(self.finish, from, to, bias, scale);
            }
            at = end;
        }
    }
}

#[inline(always)]
fn finish<F: Finish>(
    f: F,
    from: &[i32],
    to: &mut [F::Out],
    bias: impl Iterator<Item = F::Bias>,
    scale: impl Iterator<Item = f32>,
) {
    for (((&x, y), bias), scale) in from.iter().zip(to).zip(bias).zip(scale) {
        *y = f.of(x, bias, scale);
    }
}
