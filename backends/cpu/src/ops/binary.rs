//! Ops on two tensors of one dtype with a result of that dtype.

use std::marker::PhantomData;

use polygrad_core::{BinaryOp, DType, Result, Scalar, Shape, dispatch_dtype};

use super::half::Half;
use super::{broadcast, refused, same_dtype};
use crate::loops::{Each, Fill, Operand, map};
use crate::simd::StorePolicy;
use crate::{CpuDevice, CpuTensor};

/// Combines `n` elements of two inputs.
pub(crate) type Loop = unsafe fn(StorePolicy, *const u8, *const u8, *mut u8, usize);

/// Below this many nanoseconds of work, contiguous operands are computed at once, without considering threads.
const SMALL_NS: f32 = 20_000.0;

/// See [`polygrad_core::Backend::binary`].
#[inline]
pub(crate) fn binary(op: BinaryOp, a: &CpuTensor, b: &CpuTensor) -> Result<CpuTensor> {
    let dtype = same_dtype(op.name(), a, b)?;
    let (f, ns) = choose(op, dtype)?;
    let same = a.shape() == b.shape();
    let shape = if same { *a.shape() } else { broadcast(op.name(), a, b)? };
    let mut out = CpuTensor::empty(shape, dtype, a.device())?;
    let to = out.ptr_mut();
    // SAFETY: the loop was chosen for the dtype of both; both broadcast to the output's shape, and the output is new.
    unsafe {
        if same && Half::of(dtype).is_none() && a.is_contiguous() && b.is_contiguous() {
            let numel = shape.numel();
            if numel as f32 * ns < SMALL_NS {
                f(StorePolicy::cached(a.device().vectors()), a.ptr(), b.ptr(), to, numel);
                return Ok(out);
            }
        }
        run(
            a.device(),
            a.device().store_policy(shape.numel() * dtype.size()),
            &shape,
            [Operand::new(a, &shape), Operand::new(b, &shape)],
            to,
            dtype,
            (f, ns),
        );
    }
    Ok(out)
}

/// See [`polygrad_core::Backend::binary_scalar`].
pub(crate) fn binary_scalar(op: BinaryOp, x: &CpuTensor, scalar: Scalar, reverse: bool) -> Result<CpuTensor> {
    let dtype = x.dtype();
    let squared = op == BinaryOp::Pow && !reverse && dtype.is_float() && scalar.to_f64() == 2.0;
    let op = if squared { BinaryOp::Mul } else { op };
    let (f, ns) = choose(op, dtype)?;
    let shape = *x.shape();
    let mut out = CpuTensor::empty(shape, dtype, x.device())?;
    let to = out.ptr_mut();
    let tensor = Operand::new(x, &shape);
    let policy = x.device().store_policy(shape.numel() * dtype.size());
    dispatch_dtype!(dtype, T => {
        let value = <T as polygrad_core::Element>::from_scalar(scalar);
        let number = if squared { tensor } else { Operand::scalar(&value) };
        let operands = if reverse { [number, tensor] } else { [tensor, number] };
        // SAFETY: the loop was chosen for the dtype, which the scalar has been converted to; the output is new.
        unsafe { run(x.device(), policy, &shape, operands, to, dtype, (f, ns)) };
    });
    Ok(out)
}

/// `a[i] = f(a[i], b[i])` for contiguous tensors of one shape and dtype; `a` must be writable.
pub(crate) fn in_place(op: BinaryOp, a: &mut CpuTensor, b: &CpuTensor) -> Result<()> {
    debug_assert!(a.is_writable() && a.shape() == b.shape() && a.dtype() == b.dtype());
    let (f, ns) = choose(op, a.dtype())?;
    let (shape, device, dtype) = (*a.shape(), a.device(), a.dtype());
    let to = a.ptr_mut();
    // SAFETY: each element of the output is the input's element at the same position, or both tensors are apart.
    unsafe {
        run(
            device,
            StorePolicy::cached(device.vectors()),
            &shape,
            [Operand::new(a, &shape), Operand::new(b, &shape)],
            to,
            dtype,
            (f, ns),
        );
    }
    Ok(())
}

/// # Safety
/// As for [`map`], with operands and output of `dtype`; `f` must be right for it, or for f32 if it is a 16-bit float.
unsafe fn run(
    device: CpuDevice,
    policy: StorePolicy,
    shape: &Shape,
    operands: [Operand; 2],
    to: *mut u8,
    dtype: DType,
    (f, ns): (Loop, f32),
) {
    let near = StorePolicy::cached(policy.level());
    // SAFETY: by the caller.
    unsafe {
        match Half::of(dtype) {
            None => map(device, shape, operands, to, dtype.size(), ns, &|[a, b], to, n| {
                f(policy, a, b, to, n)
            }),
            Some(half) => map(device, shape, operands, to, 2, ns + 0.8, &|ab, to, n| {
                half.run(policy.level(), ab, to, n, |[a, b], to, n| f(near, a, b, to, n));
            }),
        }
    }
}

/// The loop for an op and dtype (for 16-bit floats that of f32), and its nanoseconds per element.
#[inline]
pub(crate) fn choose(op: BinaryOp, dtype: DType) -> Result<(Loop, f32)> {
    let f = find(op, dtype).ok_or_else(|| refused(op.name(), dtype))?;
    let ns = match op {
        BinaryOp::Pow | BinaryOp::Atan2 => 20.0,
        BinaryOp::Remainder => 5.0,
        BinaryOp::Div if dtype.is_int() => 2.0,
        _ => 0.04 * dtype.size() as f32,
    };
    Ok((f, ns))
}

/// A function that the compiler vectorizes by itself if it can.
trait Plain<T> {
    fn at(a: T, b: T) -> T;
}

struct Combined<T, F> {
    a: *const T,
    b: *const T,
    f: PhantomData<F>,
}

impl<T: Copy, F: Plain<T>> Each for Combined<T, F> {
    type T = T;

    #[inline(always)]
    unsafe fn at(&self, i: usize) -> T {
        // SAFETY: by the caller.
        unsafe { F::at(self.a.add(i).read(), self.b.add(i).read()) }
    }
}

/// # Safety
/// `n` elements must be readable at `a` and `b` and writable at `to`.
unsafe fn plain<T: Copy, F: Plain<T>>(policy: StorePolicy, a: *const u8, b: *const u8, to: *mut u8, n: usize) {
    let (a, b, to) = (a.cast(), b.cast(), to.cast());
    let each = Combined::<T, F> { a, b, f: PhantomData };
    policy.run_loops(Fill { each, to, n });
}

/// [`plain`] for functions that no processor has vector instructions for, so that one loop serves all levels.
///
/// # Safety
/// As for [`plain`].
unsafe fn scalar<T: Copy, F: Plain<T>>(_: StorePolicy, a: *const u8, b: *const u8, to: *mut u8, n: usize) {
    let (a, b, to) = (a.cast::<T>(), b.cast::<T>(), to.cast::<T>());
    for i in 0..n {
        // SAFETY: by the caller.
        unsafe { to.add(i).write(F::at(a.add(i).read(), b.add(i).read())) };
    }
}

macro_rules! plain_ops {
    ($($op:ident<$($type:ty),*> = $f:expr;)*) => {$($(
        impl Plain<$type> for $op {
            #[inline(always)]
            fn at(a: $type, b: $type) -> $type {
                let f: fn($type, $type) -> $type = $f;
                f(a, b)
            }
        }
    )*)*};
}

struct Add;
struct Sub;
struct Mul;
struct Div;
struct Remainder;
struct Pow;
struct Maximum;
struct Minimum;
struct Atan2;
struct And;
struct Or;
struct Xor;

plain_ops! {
    Add<f32, f64> = |a, b| a + b;
    Sub<f32, f64> = |a, b| a - b;
    Mul<f32, f64> = |a, b| a * b;
    Div<f32, f64> = |a, b| a / b;
    Remainder<f32, f64> = |a, b| {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
    };
    Pow<f32> = |a, b| f64::from(a).powf(f64::from(b)) as f32;
    Pow<f64> = |a, b| a.powf(b);
    // A NaN in either operand is returned.
    Maximum<f32, f64> = |a, b| if a > b || a.is_nan() { a } else { b };
    Minimum<f32, f64> = |a, b| if a < b || a.is_nan() { a } else { b };
    Atan2<f32> = |a, b| f64::from(a).atan2(f64::from(b)) as f32;
    Atan2<f64> = |a, b| a.atan2(b);

    Add<u8, i32, i64> = |a, b| a.wrapping_add(b);
    Sub<u8, i32, i64> = |a, b| a.wrapping_sub(b);
    Mul<u8, i32, i64> = |a, b| a.wrapping_mul(b);
    Div<u8, i32, i64> = |a, b| if b == 0 { 0 } else { a.wrapping_div(b) };
    Remainder<u8> = |a, b| if b == 0 { 0 } else { a % b };
    Remainder<i32, i64> = |a, b| {
        let rest = if b == 0 { 0 } else { a.wrapping_rem(b) };
        if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
    };
    Pow<u8> = |a, b| int_pow(a.into(), b.into()) as u8;
    Pow<i32> = |a, b| int_pow(a.into(), b.into()) as i32;
    Pow<i64> = int_pow;
    Maximum<u8, i32, i64> = |a, b| a.max(b);
    Minimum<u8, i32, i64> = |a, b| a.min(b);
    And<u8, i32, i64> = |a, b| a & b;
    Or<u8, i32, i64> = |a, b| a | b;
    Xor<u8, i32, i64> = |a, b| a ^ b;
}

/// By repeated squaring, wrapping, so the low bits are right for any width. A negative power is 0, except of 1 and −1.
fn int_pow(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exponent & 1),
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}

/// The loop of an op for a dtype, from lists of those that the compiler vectorizes and of those that it does not.
macro_rules! find {
    ($op:expr, $type:ty, [$($plain:ident)*] [$($scalar:ident)*]) => {
        Some(match $op {
            $(BinaryOp::$plain => plain::<$type, $plain>,)*
            $(BinaryOp::$scalar => scalar::<$type, $scalar>,)*
            _ => return None,
        })
    };
    ($op:expr, float $type:ty) => {
        find!($op, $type, [Add Sub Mul Div Maximum Minimum] [Remainder Pow Atan2])
    };
    ($op:expr, int $type:ty) => {
        find!($op, $type, [Add Sub Mul Maximum Minimum And Or Xor] [Div Remainder Pow])
    };
}

#[inline]
fn find(op: BinaryOp, dtype: DType) -> Option<Loop> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => find!(op, float f32),
        DType::F64 => find!(op, float f64),
        DType::I32 => find!(op, int i32),
        DType::I64 => find!(op, int i64),
        DType::U8 => find!(op, int u8),
        DType::Bool => find_bool(op),
    }
}

/// Bools are bytes of 0 and 1, and these ops keep them so.
fn find_bool(op: BinaryOp) -> Option<Loop> {
    Some(match op {
        BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or => plain::<u8, Or>,
        BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::And => plain::<u8, And>,
        BinaryOp::Xor => plain::<u8, Xor>,
        _ => return None,
    })
}
