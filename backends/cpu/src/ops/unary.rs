//! Ops on one tensor with a result of the same shape.

use std::marker::PhantomData;

use polygrad_core::{DType, Result, UnaryOp};

use super::half::Half;
use super::{refused, unknown};
use crate::loops::{Each, Fill, Operand, map};
use crate::math::{self, Map};
use crate::simd::StorePolicy;
use crate::{CpuDevice, CpuTensor};

/// Writes `f` of each of `n` elements; the policy's level is `None` for the plain kernels.
pub(crate) type Loop = unsafe fn(StorePolicy, *const u8, *mut u8, usize);

/// See [`polygrad_core::Backend::unary`].
pub(crate) fn unary(op: UnaryOp, x: &CpuTensor) -> Result<CpuTensor> {
    if op.is_predicate() {
        return predicate(op, x);
    }
    let compute = match Half::of(x.dtype()) {
        Some(_) => DType::F32,
        None => x.dtype(),
    };
    apply(
        x,
        find(op, compute).ok_or_else(|| refused(op.name(), x.dtype()))?,
        cost(op),
    )
}

/// Approximate nanoseconds per element.
pub(crate) fn cost(op: UnaryOp) -> f32 {
    if op.needs_float() { 0.6 } else { 0.15 }
}

/// Applies a loop, which computes in f32 for 16-bit floats, else in the tensor's own dtype.
pub(crate) fn apply(x: &CpuTensor, f: Loop, ns: f32) -> Result<CpuTensor> {
    let (dtype, device) = (x.dtype(), x.device());
    let mut out = CpuTensor::empty(*x.shape(), dtype, device)?;
    let to = out.ptr_mut();
    let policy = device.store_policy(x.numel() * dtype.size());
    let near = StorePolicy::cached(policy.level());
    // SAFETY: the loop was chosen for the dtype; output and input have one shape, and the output is new.
    unsafe {
        match Half::of(dtype) {
            None => run(device, x, to, dtype.size(), ns, &|[x], to, n| f(policy, x, to, n)),
            Some(half) => run(device, x, to, 2, ns + 0.5, &|x, to, n| {
                half.run(policy.level(), x, to, n, |[x], to, n| f(near, x, to, n));
            }),
        }
    }
    Ok(out)
}

/// # Safety
/// `to` must have room for the elements of `x` with `size` bytes each, and `f` must be right for both.
unsafe fn run(
    device: CpuDevice,
    x: &CpuTensor,
    to: *mut u8,
    size: usize,
    ns: f32,
    f: &(dyn Fn([*const u8; 1], *mut u8, usize) + Sync),
) {
    let numel = x.numel();
    // SAFETY: by the caller.
    unsafe {
        if x.is_contiguous() && numel as f32 * ns < 20_000.0 {
            f([x.ptr()], to, numel);
        } else {
            map(device, x.shape(), [Operand::new(x, x.shape())], to, size, ns, f);
        }
    }
}

/// The loop of an op for a dtype, from a list of those that the compiler vectorizes.
macro_rules! find {
    ($op:expr, $type:ty, [$($plain:ident)*] $($kept:ident)*) => {
        Some(match $op {
            $(UnaryOp::$plain => plain::<$type, $plain>,)*
            $(UnaryOp::$kept => plain::<$type, Same>,)*
            _ => return None,
        })
    };
    ($op:expr, float $type:ty) => {
        find!($op, $type, [Neg Abs Sign Relu Sqrt Reciprocal Floor Ceil Round Trunc])
    };
    ($op:expr, int $type:ty) => {
        find!($op, $type, [Neg Abs Sign Relu] Floor Ceil Round Trunc)
    };
}

/// The loop of a function whose result has the dtype of its operand.
pub(crate) fn find(op: UnaryOp, dtype: DType) -> Option<Loop> {
    match dtype {
        DType::F32 => find_f32(op),
        DType::F64 => find_f64(op),
        DType::U8 => find!(op, int u8),
        DType::I32 => find!(op, int i32),
        DType::I64 => find!(op, int i64),
        _ => None,
    }
}

fn find_f32(op: UnaryOp) -> Option<Loop> {
    Some(match op {
        UnaryOp::Exp => mapped::<math::Exp>,
        UnaryOp::Expm1 => mapped::<math::Expm1>,
        UnaryOp::Log => mapped::<math::Log>,
        UnaryOp::Log1p => mapped::<math::Log1p>,
        UnaryOp::Rsqrt => mapped::<math::Rsqrt>,
        UnaryOp::Sin => mapped::<math::Sin>,
        UnaryOp::Cos => mapped::<math::Cos>,
        UnaryOp::Tan => mapped::<math::Tan>,
        UnaryOp::Tanh => mapped::<math::Tanh>,
        UnaryOp::Sigmoid => mapped::<math::Sigmoid>,
        UnaryOp::Erf => mapped::<math::Erf>,
        _ => return find!(op, float f32),
    })
}

fn find_f64(op: UnaryOp) -> Option<Loop> {
    Some(match op {
        UnaryOp::Exp => referred::<math::Exp>,
        UnaryOp::Expm1 => referred::<math::Expm1>,
        UnaryOp::Log => referred::<math::Log>,
        UnaryOp::Log1p => referred::<math::Log1p>,
        UnaryOp::Rsqrt => referred::<math::Rsqrt>,
        UnaryOp::Sin => referred::<math::Sin>,
        UnaryOp::Cos => referred::<math::Cos>,
        UnaryOp::Tan => referred::<math::Tan>,
        UnaryOp::Tanh => referred::<math::Tanh>,
        UnaryOp::Sigmoid => referred::<math::Sigmoid>,
        UnaryOp::Erf => referred::<math::Erf>,
        _ => return find!(op, float f64),
    })
}

/// A vector function of f32.
///
/// # Safety
/// `n` f32 must be readable at `x` and writable at `to`.
unsafe fn mapped<F: Map + Default>(policy: StorePolicy, x: *const u8, to: *mut u8, n: usize) {
    // SAFETY: by the caller.
    unsafe { math::map(policy, F::default(), x.cast(), to.cast(), n) }
}

/// A function of f64, computed by the standard library.
///
/// # Safety
/// `n` f64 must be readable at `x` and writable at `to`.
unsafe fn referred<F: Map + Default>(_: StorePolicy, x: *const u8, to: *mut u8, n: usize) {
    let (x, to, f) = (x.cast::<f64>(), to.cast::<f64>(), F::default());
    for i in 0..n {
        // SAFETY: by the caller.
        unsafe { to.add(i).write(f.reference(x.add(i).read())) };
    }
}

/// A function that the compiler vectorizes by itself.
trait Plain<T> {
    fn at(x: T) -> T;
}

struct Mapped<T, F> {
    x: *const T,
    f: PhantomData<F>,
}

impl<T: Copy, F: Plain<T>> Each for Mapped<T, F> {
    type T = T;

    #[inline(always)]
    unsafe fn at(&self, i: usize) -> T {
        // SAFETY: by the caller.
        F::at(unsafe { self.x.add(i).read() })
    }
}

/// # Safety
/// `n` elements must be readable at `x` and writable at `to`.
unsafe fn plain<T: Copy, F: Plain<T>>(policy: StorePolicy, x: *const u8, to: *mut u8, n: usize) {
    let (x, to) = (x.cast(), to.cast());
    let each = Mapped::<T, F> { x, f: PhantomData };
    policy.run_loops(Fill { each, to, n });
}

macro_rules! plain_ops {
    ($($op:ident: $($type:ty => $f:expr),*;)*) => {$(
        struct $op;
        $(impl Plain<$type> for $op {
            #[inline(always)]
            fn at(x: $type) -> $type {
                let f: fn($type) -> $type = $f;
                f(x)
            }
        })*
    )*};
}

plain_ops! {
    Neg: f32 => |x| -x, f64 => |x| -x, u8 => u8::wrapping_neg, i32 => i32::wrapping_neg, i64 => i64::wrapping_neg;
    Abs: f32 => f32::abs, f64 => f64::abs, u8 => |x| x, i32 => i32::wrapping_abs, i64 => i64::wrapping_abs;
    Sign: f32 => |x| if x == 0.0 || x.is_nan() { 0.0 } else { x.signum() },
          f64 => |x| if x == 0.0 || x.is_nan() { 0.0 } else { x.signum() },
          u8 => |x| u8::from(x != 0), i32 => i32::signum, i64 => i64::signum;
    // Not `max`, which drops a NaN.
    Relu: f32 => |x| if x < 0.0 { 0.0 } else { x }, f64 => |x| if x < 0.0 { 0.0 } else { x },
          u8 => |x| x, i32 => |x| x.max(0), i64 => |x| x.max(0);
    Sqrt: f32 => f32::sqrt, f64 => f64::sqrt;
    Reciprocal: f32 => |x| 1.0 / x, f64 => |x| 1.0 / x;
    Floor: f32 => f32::floor, f64 => f64::floor;
    Ceil: f32 => f32::ceil, f64 => f64::ceil;
    Round: f32 => f32::round_ties_even, f64 => f64::round_ties_even;
    Trunc: f32 => f32::trunc, f64 => f64::trunc;
    Same: u8 => |x| x, i32 => |x| x, i64 => |x| x;
}

/// Functions with a result of bools.
fn predicate(op: UnaryOp, x: &CpuTensor) -> Result<CpuTensor> {
    let mut out = CpuTensor::empty(*x.shape(), DType::Bool, x.device())?;
    let to = out.ptr_mut();
    let f = find_predicate(op, x.dtype())?;
    // SAFETY: the loop was chosen for the dtype; output and input have one shape, and the output is new.
    unsafe { run(x.device(), x, to, 1, 0.2, &|[x], to, n| f(x, to, n)) };
    Ok(out)
}

pub(crate) type Predicate = unsafe fn(*const u8, *mut u8, usize);

/// The loop of a function with a result of bools.
pub(crate) fn find_predicate(op: UnaryOp, dtype: DType) -> Result<Predicate> {
    Ok(match (op, dtype.is_float()) {
        (UnaryOp::LogicalNot, _) => find_not(dtype),
        (UnaryOp::IsNan | UnaryOp::IsInf, false) => fill::<false>,
        (UnaryOp::IsFinite, false) => fill::<true>,
        (UnaryOp::IsNan, true) => find_class::<0>(dtype),
        (UnaryOp::IsInf, true) => find_class::<1>(dtype),
        (UnaryOp::IsFinite, true) => find_class::<2>(dtype),
        _ => return Err(unknown(op.name())),
    })
}

/// # Safety
/// `n` bytes must be writable at `to`.
unsafe fn fill<const VALUE: bool>(_: *const u8, to: *mut u8, n: usize) {
    // SAFETY: by the caller.
    unsafe { std::ptr::write_bytes(to, VALUE.into(), n) };
}

/// # Safety
/// `n` elements must be readable at `x` and writable at `to`.
unsafe fn test<T: Copy>(x: *const u8, to: *mut u8, n: usize, f: impl Fn(T) -> bool) {
    for i in 0..n {
        // SAFETY: by the caller.
        unsafe { to.cast::<bool>().add(i).write(f(x.cast::<T>().add(i).read())) };
    }
}

#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment says it for all arms")]
fn find_not(dtype: DType) -> Predicate {
    // SAFETY of each: by the caller of the function pointer, as for `test`.
    match dtype {
        DType::Bool | DType::U8 => |x, to, n| unsafe { test(x, to, n, |x: u8| x == 0) },
        DType::I32 => |x, to, n| unsafe { test(x, to, n, |x: i32| x == 0) },
        DType::I64 => |x, to, n| unsafe { test(x, to, n, |x: i64| x == 0) },
        // Zero of either sign.
        DType::F16 | DType::BF16 => |x, to, n| unsafe { test(x, to, n, |x: u16| x << 1 == 0) },
        DType::F32 => |x, to, n| unsafe { test(x, to, n, |x: f32| x == 0.0) },
        DType::F64 => |x, to, n| unsafe { test(x, to, n, |x: f64| x == 0.0) },
    }
}

/// Whether a float is NaN (0), infinite (1), or finite (2), found by comparing its bits without the sign with
/// infinity's.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment says it for all arms")]
fn find_class<const CLASS: u8>(dtype: DType) -> Predicate {
    fn is<const CLASS: u8, T: Ord>(bits: T, infinity: T) -> bool {
        match CLASS {
            0 => bits > infinity,
            1 => bits == infinity,
            _ => bits < infinity,
        }
    }
    // SAFETY of each: by the caller of the function pointer, as for `test`.
    match dtype {
        DType::F16 => |x, to, n| unsafe { test(x, to, n, |x: u16| is::<CLASS, _>(x & 0x7fff, 0x7c00)) },
        DType::BF16 => |x, to, n| unsafe { test(x, to, n, |x: u16| is::<CLASS, _>(x & 0x7fff, 0x7f80)) },
        DType::F64 => |x, to, n| unsafe {
            test(x, to, n, |x: u64| {
                is::<CLASS, _>(x & (u64::MAX >> 1), f64::INFINITY.to_bits())
            })
        },
        _ => |x, to, n| unsafe {
            test(x, to, n, |x: u32| {
                is::<CLASS, _>(x & (u32::MAX >> 1), f32::INFINITY.to_bits())
            })
        },
    }
}
