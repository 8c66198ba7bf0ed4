//! Comparisons.

use std::marker::PhantomData;

use polygrad_core::{CompareOp, DType, Element, Result, Scalar, Shape, bf16, dispatch_dtype, f16};

use super::{broadcast, same_dtype, unknown};
use crate::loops::{Operand, map};
use crate::simd::{Kernel, Level, Simd};
use crate::{CpuDevice, CpuTensor};

pub(crate) type Loop = unsafe fn(Option<Level>, *const u8, *const u8, *mut u8, usize);

/// See [`polygrad_core::Backend::compare`].
pub(crate) fn compare(op: CompareOp, a: &CpuTensor, b: &CpuTensor) -> Result<CpuTensor> {
    let dtype = same_dtype(op.name(), a, b)?;
    let shape = broadcast(op.name(), a, b)?;
    run(
        op,
        a.device(),
        &shape,
        [Operand::new(a, &shape), Operand::new(b, &shape)],
        dtype,
    )
}

/// See [`polygrad_core::Backend::compare_scalar`].
pub(crate) fn compare_scalar(op: CompareOp, x: &CpuTensor, scalar: Scalar) -> Result<CpuTensor> {
    let shape = *x.shape();
    dispatch_dtype!(x.dtype(), T => {
        let value = <T as Element>::from_scalar(scalar);
        run(op, x.device(), &shape, [Operand::new(x, &shape), Operand::scalar(&value)], x.dtype())
    })
}

/// Operands are of `dtype` and broadcast to `shape`.
fn run(op: CompareOp, device: CpuDevice, shape: &Shape, operands: [Operand; 2], dtype: DType) -> Result<CpuTensor> {
    let f = choose(op, dtype)?;
    let mut out = CpuTensor::empty(*shape, DType::Bool, device)?;
    let to = out.ptr_mut();
    let level = device.vectors();
    let ns = 0.05 * dtype.size() as f32;
    // SAFETY: the loop was chosen for the dtype, the operands have been broadcast to the shape, the output is new.
    unsafe {
        map(device, shape, operands, to, 1, ns, &|[a, b], to, n| {
            f(level, a, b, to, n)
        })
    };
    Ok(out)
}

/// The loop for an op and dtype.
pub(crate) fn choose(op: CompareOp, dtype: DType) -> Result<Loop> {
    let found = match dtype {
        // Bools are bytes of 0 and 1.
        DType::Bool | DType::U8 => find::<u8>(op),
        DType::I32 => find::<i32>(op),
        DType::I64 => find::<i64>(op),
        DType::F16 => find::<f16>(op),
        DType::BF16 => find::<bf16>(op),
        DType::F32 => find::<f32>(op),
        DType::F64 => find::<f64>(op),
    };
    found.ok_or_else(|| unknown(op.name()))
}

fn find<T: Ordered>(op: CompareOp) -> Option<Loop> {
    Some(match op {
        CompareOp::Eq => plain::<T, 0>,
        CompareOp::Ne => plain::<T, 1>,
        CompareOp::Lt => plain::<T, 2>,
        CompareOp::Le => plain::<T, 3>,
        CompareOp::Gt => turned::<T, 2>,
        CompareOp::Ge => turned::<T, 3>,
        _ => return None,
    })
}

/// An element type and the type as which it is compared: comparisons of 16-bit floats do not vectorize.
trait Ordered: Copy {
    type As: PartialOrd + Copy;
    fn ordered(self) -> Self::As;
}

macro_rules! ordered {
    ($($type:ty => $as:ty, $f:expr;)*) => {$(
        impl Ordered for $type {
            type As = $as;

            #[inline(always)]
            fn ordered(self) -> $as {
                let f: fn($type) -> $as = $f;
                f(self)
            }
        }
    )*};
}

ordered! {
    u8 => u8, |x| x;
    i32 => i32, |x| x;
    i64 => i64, |x| x;
    f16 => f32, f16::to_f32;
    bf16 => f32, |x| f32::from_bits(u32::from(x.to_bits()) << 16);
    f32 => f32, |x| x;
    f64 => f64, |x| x;
}

struct PlainLoop<T, const OP: u8> {
    a: *const T,
    b: *const T,
    to: *mut u8,
    n: usize,
    op: PhantomData<T>,
}

impl<T: Ordered, const OP: u8> Kernel for PlainLoop<T, OP> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for i in 0..self.n {
            // SAFETY: the caller of `plain` guarantees that the pointers are valid.
            let (a, b) = unsafe { (self.a.add(i).read().ordered(), self.b.add(i).read().ordered()) };
            let holds = match OP {
                0 => a == b,
                1 => a != b,
                2 => a < b,
                _ => a <= b,
            };
            // SAFETY: as above.
            unsafe { self.to.add(i).write(holds.into()) };
        }
    }
}

/// # Safety
/// `n` elements must be readable at `a` and `b` and `n` bytes writable at `to`.
unsafe fn plain<T: Ordered, const OP: u8>(level: Option<Level>, a: *const u8, b: *const u8, to: *mut u8, n: usize) {
    let (a, b, op) = (a.cast(), b.cast(), PhantomData);
    Level::run_loops(level, PlainLoop::<T, OP> { a, b, to, n, op });
}

/// [`plain`] with the operands exchanged.
///
/// # Safety
/// As for [`plain`].
unsafe fn turned<T: Ordered, const OP: u8>(level: Option<Level>, a: *const u8, b: *const u8, to: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { plain::<T, OP>(level, b, a, to, n) };
}
