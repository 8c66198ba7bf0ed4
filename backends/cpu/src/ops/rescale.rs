//! Conversions between bytes, sums of their products, and floats.

use std::iter::repeat;
use std::sync::{Mutex, PoisonError};

use polygrad_core::{Backend, BinaryOp, DType, Element, Error, Result, Scalar, Shape, decompose};

use super::quantized::{numbers_for, operand};
use super::{convert, create};
use crate::Pointer;
use crate::simd::{Kernel, Level, Simd};
use crate::{Cpu, CpuDevice, CpuTensor};

/// Rows of sums as bytes: scale and bias are one for all, or one for each column.
pub(crate) fn bytes(device: CpuDevice, rows: &Rows<'_, u8>, (scale, bias): (&[f32], &[i32]), zero: u8) {
    let (finish, rows) = (ToBytes { zero: f32::from(zero) }, *rows);
    let work = Rescale {
        finish,
        rows,
        scale,
        bias,
    };
    Level::run_loops(device.vectors(), work);
}

/// Rows of sums as floats, likewise, without a bias if there is none.
pub(super) fn floats(device: CpuDevice, rows: &Rows<'_, f32>, scale: &[f32], bias: Option<&[f32]>) {
    let work = Rescale {
        finish: ToFloats,
        rows: *rows,
        scale,
        // Which changes no number, not even -0.
        bias: bias.unwrap_or(&[-0.0]),
    };
    Level::run_loops(device.vectors(), work);
}

/// Rows of sums plus a bias as floats, likewise.
pub(super) fn summed_floats(device: CpuDevice, rows: &Rows<'_, f32>, scale: &[f32], bias: &[i32]) {
    let (finish, rows) = (SumToFloats, *rows);
    let work = Rescale {
        finish,
        rows,
        scale,
        bias,
    };
    Level::run_loops(device.vectors(), work);
}

/// Rows of sums, and where what becomes of them goes.
pub(crate) struct Rows<'a, T> {
    pub(crate) sums: &'a [i32],
    pub(crate) columns: usize,
    /// Where rows are `step` elements apart.
    pub(crate) to: *mut T,
    pub(crate) step: usize,
}

impl<T> Clone for Rows<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Rows<'_, T> {}

/// See [`polygrad_core::Backend::quantize_u8`].
pub(crate) fn quantize_u8(x: &CpuTensor, scale: &CpuTensor, zero: &CpuTensor) -> Result<CpuTensor> {
    let op = "quantize_u8";
    let x = operand(op, &convert::cast(x, DType::F32)?, DType::F32)?;
    let (scale, zero) = constants(op, scale, zero)?;
    each(&x, move |x: f32| byte(x / scale, zero))
}

/// See [`polygrad_core::Backend::dynamic_quantize_u8`].
pub(crate) fn dynamic_quantize_u8(x: &CpuTensor) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let x = operand("dynamic_quantize_u8", &convert::cast(x, DType::F32)?, DType::F32)?;
    let device = x.device();
    let (low, high) = ends(device, x.slice()?);
    let scale = if low == high { 1.0 } else { (high - low) / 255.0 };
    let zero = byte(-low / scale, 0.0);
    let y = each(&x, move |x: f32| byte(x / scale, f32::from(zero)))?;
    let number = |value: f64, dtype| create::full(Shape::from([1]), Scalar::Float(value), dtype, device);
    let (scale, zero) = (number(scale.into(), DType::F32)?, number(zero.into(), DType::U8)?);
    Ok((y, scale, zero))
}

/// The smallest and the largest of some numbers and 0, without NaN.
fn ends(device: CpuDevice, x: &[f32]) -> (f32, f32) {
    let found = Mutex::new((0f32, 0f32));
    device.split(x.len(), 0.1, 64, |start, end| {
        let (low, high) = Level::run_loops(device.vectors(), Ends(&x[start..end]));
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        *found = (found.0.min(low), found.1.max(high));
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// See [`ends`].
struct Ends<'a>(&'a [f32]);

impl Kernel for Ends<'_> {
    type Out = (f32, f32);

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> (f32, f32) {
        const LANES: usize = 32;
        let (mut low, mut high) = ([0f32; LANES], [0f32; LANES]);
        let (whole, rest) = self.0.as_chunks::<LANES>();
        for part in whole {
            for (i, &x) in part.iter().enumerate() {
                // Never true for NaN.
                low[i] = if x < low[i] { x } else { low[i] };
                high[i] = if x > high[i] { x } else { high[i] };
            }
        }
        let smallest = low.iter().chain(rest).fold(0f32, |m, &x| m.min(x));
        (smallest, high.iter().chain(rest).fold(0f32, |m, &x| m.max(x)))
    }
}

/// See [`polygrad_core::Backend::dequantize_u8`].
pub(crate) fn dequantize_u8(x: &CpuTensor, scale: &CpuTensor, zero: &CpuTensor) -> Result<CpuTensor> {
    let op = "dequantize_u8";
    let x = operand(op, x, DType::U8)?;
    let (scale, zero) = constants(op, scale, zero)?;
    each(&x, move |x: u8| (f32::from(x) - zero) * scale)
}

/// See [`polygrad_core::Backend::lookup_u8`].
pub(crate) fn lookup_u8(x: &CpuTensor, table: &CpuTensor) -> Result<CpuTensor> {
    let op = "lookup_u8";
    let (x, table) = (operand(op, x, DType::U8)?, numbers_for(op, table, table.dtype(), 256)?);
    match table.dtype() {
        DType::U8 => looked_up::<u8>(&x, &table),
        DType::F32 => looked_up::<f32>(&x, &table),
        _ => decompose::lookup_u8::<Cpu>(&x, &table),
    }
}

fn looked_up<T: Element>(x: &CpuTensor, table: &CpuTensor) -> Result<CpuTensor> {
    let table = table.slice::<T>()?.first_chunk::<256>();
    let table = table.ok_or_else(|| Error::shape("the table has no 256 numbers").with_op("lookup_u8"))?;
    each(x, move |x: u8| table[usize::from(x)])
}

/// See [`polygrad_core::Backend::binary_requantize_u8`].
pub(crate) fn binary_requantize_u8(
    op: BinaryOp,
    a: &CpuTensor,
    b: &CpuTensor,
    zeros: [&CpuTensor; 2],
    scales: [&CpuTensor; 2],
    zero: &CpuTensor,
) -> Result<CpuTensor> {
    let name = "binary_requantize_u8";
    let shape = a.shape().broadcast(b.shape()).map_err(|error| error.with_op(name))?;
    let (scale_a, zero_a) = constants(name, scales[0], zeros[0])?;
    let (scale_b, zero_b) = constants(name, scales[1], zeros[1])?;
    let zero = f32::from(numbers_for(name, zero, DType::U8, 1)?.slice::<u8>()?[0]);
    let (a, b) = (operand(name, a, DType::U8)?, operand(name, b, DType::U8)?);
    match op {
        BinaryOp::Add => pairs(shape, &a, &b, move |a, b| {
            byte(
                (f32::from(a) - zero_a) * scale_a + (f32::from(b) - zero_b) * scale_b,
                zero,
            )
        }),
        BinaryOp::Mul => pairs(shape, &a, &b, move |a, b| {
            byte(
                (f32::from(a) - zero_a) * (f32::from(b) - zero_b) * (scale_a * scale_b),
                zero,
            )
        }),
        _ => Err(Error::invalid(format!("{} is neither add nor mul", op.name())).with_op(name)),
    }
}

/// Applies a function to each pair of bytes of two contiguous tensors that broadcast to a shape.
fn pairs(shape: Shape, a: &CpuTensor, b: &CpuTensor, f: impl Fn(u8, u8) -> u8 + Copy + Sync) -> Result<CpuTensor> {
    let spread = |x: &CpuTensor| Cpu::expand(x, shape)?.contiguous();
    let whole = [a, b].map(|x| *x.shape() == shape);
    let rows = [a, b].map(|x| by_rows(x.shape(), &shape));
    match (whole, rows) {
        ([true, true], _) => zipped(a, b, 1, f),
        ([true, false], [_, Some(row)]) => zipped(a, b, row, f),
        ([false, true], [Some(row), _]) => zipped(b, a, row, move |b, a| f(a, b)),
        _ => zipped(&spread(a)?, &spread(b)?, 1, f),
    }
}

/// How many neighbouring elements of a shape share one of `x`, which broadcasts to it, if all others are apart.
fn by_rows(x: &Shape, shape: &Shape) -> Option<usize> {
    if x.numel() == 1 {
        return Some(shape.numel());
    }
    let apart = (0..shape.rank()).rev().find(|&axis| axis < x.rank() && x[axis] != 1)?;
    let fits = x.rank() == shape.rank() && x[..=apart] == shape[..=apart];
    fits.then(|| shape[apart + 1..].iter().product())
}

/// Applies a function to each byte of `a` and to one of `b` for each `row` of them.
fn zipped(a: &CpuTensor, b: &CpuTensor, row: usize, f: impl Fn(u8, u8) -> u8 + Copy + Sync) -> Result<CpuTensor> {
    let mut out = CpuTensor::empty(*a.shape(), DType::U8, a.device())?;
    let (left, right) = (a.slice::<u8>()?, b.slice::<u8>()?);
    if left.is_empty() {
        return Ok(out);
    }
    let to = Pointer(out.ptr_mut());
    let device = a.device();
    device.split(
        right.len(),
        0.3 * row as f32,
        if row == 1 { 64 } else { 1 },
        |start, end| {
            let places = start * row..end * row;
            let work = Zip {
                left: &left[places.clone()],
                right: &right[start..end],
                row,
                // SAFETY: the output is new, and each stretch of it belongs to one task, which only writes.
                to: unsafe { std::slice::from_raw_parts_mut(to.at(places.start), places.len()) },
                f,
            };
            Level::run_loops(device.vectors(), work);
        },
    );
    Ok(out)
}

struct Zip<'a, F> {
    left: &'a [u8],
    right: &'a [u8],
    row: usize,
    to: &'a mut [u8],
    f: F,
}

impl<F: Fn(u8, u8) -> u8> Kernel for Zip<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            left,
            right,
            row,
            to,
            f,
        } = self;
        if row == 1 {
            let both = left.iter().zip(right);
            both.zip(to).for_each(|((&a, &b), to)| *to = f(a, b));
            return;
        }
        let rows = left.chunks_exact(row).zip(to.chunks_exact_mut(row));
        for ((left, to), &b) in rows.zip(right) {
            left.iter().zip(to).for_each(|(&a, to)| *to = f(a, b));
        }
    }
}

/// See [`polygrad_core::Backend::fake_quantize`]. In one pass if all numbers have the same scale.
pub(crate) fn fake_quantize(
    x: &CpuTensor,
    scale: &CpuTensor,
    zero: &CpuTensor,
    bounds: [i32; 2],
    axis: usize,
) -> Result<CpuTensor> {
    let all = [x, scale, zero];
    if all.iter().any(|each| each.dtype() != DType::F32) || scale.numel() != 1 || zero.numel() != 1 {
        return decompose::fake_quantize::<Cpu>(x, scale, zero, bounds, axis);
    }
    let [scale, zero] = [scale.contiguous()?, zero.contiguous()?];
    let (scale, zero) = (scale.slice::<f32>()?[0], zero.slice::<f32>()?[0]);
    let [low, high] = bounds.map(|bound| bound as f32);
    each(&x.contiguous()?, move |x: f32| {
        let q = (x / scale).round_ties_even() + zero;
        // The lower bound for NaN, too.
        let q = if q > low { q } else { low };
        let q = if q > high { high } else { q };
        (q - zero) * scale
    })
}

/// Bytes minus their zero point.
pub(crate) fn centred(x: &CpuTensor, zero: u8) -> Result<CpuTensor> {
    let zero = f32::from(zero);
    each(x, move |x: u8| f32::from(x) - zero)
}

/// The scale and the zero point, one number each.
fn constants(op: &'static str, scale: &CpuTensor, zero: &CpuTensor) -> Result<(f32, f32)> {
    let (scale, zero) = (
        numbers_for(op, scale, DType::F32, 1)?,
        numbers_for(op, zero, DType::U8, 1)?,
    );
    Ok((scale.slice::<f32>()?[0], f32::from(zero.slice::<u8>()?[0])))
}

/// The nearest byte to a number plus a zero point; 0 for NaN.
#[expect(clippy::manual_clamp, reason = "of NaN `clamp` gives NaN")]
#[inline(always)]
fn byte(x: f32, zero: f32) -> u8 {
    let y = x.round_ties_even() + zero;
    // SAFETY: numbers from 0 to 255 fit i32; if one operand is NaN, `max` returns the other.
    unsafe { y.max(0.0).min(255.0).to_int_unchecked::<i32>() as u8 }
}

/// Applies a function to each number of a contiguous tensor.
fn each<T: Element, U: Element>(x: &CpuTensor, f: impl Fn(T) -> U + Copy + Sync) -> Result<CpuTensor> {
    let mut out = CpuTensor::empty(*x.shape(), U::DTYPE, x.device())?;
    let from = x.slice::<T>()?;
    let to = Pointer(out.ptr_mut().cast::<U>());
    let device = x.device();
    device.split(from.len(), 0.3, 64, |start, end| {
        let stretch = Each {
            from: &from[start..end],
            // SAFETY: the output is new, and each stretch of it belongs to one task, which only writes.
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
trait Finish: Copy {
    type Bias: Copy;
    type Out;

    fn of(self, x: i32, bias: Self::Bias, scale: f32) -> Self::Out;
}

#[derive(Clone, Copy)]
struct ToBytes {
    zero: f32,
}

impl Finish for ToBytes {
    type Bias = i32;
    type Out = u8;

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

    #[inline(always)]
    fn of(self, x: i32, bias: f32, scale: f32) -> f32 {
        x as f32 * scale + bias
    }
}

#[derive(Clone, Copy)]
struct SumToFloats;

impl Finish for SumToFloats {
    type Bias = i32;
    type Out = f32;

    #[inline(always)]
    fn of(self, x: i32, bias: i32, scale: f32) -> f32 {
        x.wrapping_add(bias) as f32 * scale
    }
}

struct Rescale<'a, F: Finish> {
    finish: F,
    rows: Rows<'a, F::Out>,
    scale: &'a [f32],
    bias: &'a [F::Bias],
}

impl<F: Finish> Kernel for Rescale<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            finish: f,
            rows,
            scale,
            bias,
        } = self;
        for (i, from) in rows.sums.chunks_exact(rows.columns).enumerate() {
            // SAFETY: the caller that makes the rows guarantees that there is room for each, its own.
            let to = unsafe { std::slice::from_raw_parts_mut(rows.to.add(i * rows.step), rows.columns) };
            match (bias, scale) {
                (&[bias], &[scale]) => finish(f, from, to, repeat(bias), repeat(scale)),
                (&[bias], scale) => finish(f, from, to, repeat(bias), scale.iter().copied()),
                (bias, &[scale]) => finish(f, from, to, bias.iter().copied(), repeat(scale)),
                (bias, scale) => finish(f, from, to, bias.iter().copied(), scale.iter().copied()),
            }
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
