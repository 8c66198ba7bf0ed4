//! Choice by a condition.

use polygrad_core::{DType, Error, Result};

use super::{broadcast, same_dtype};
use crate::CpuTensor;
use crate::loops::{Operand, map};
use crate::simd::{Kernel, Level, Simd};

/// See [`polygrad_core::Backend::select`].
pub(crate) fn select(condition: &CpuTensor, a: &CpuTensor, b: &CpuTensor) -> Result<CpuTensor> {
    if condition.dtype() != DType::Bool {
        return Err(
            Error::dtype(format!("the condition must be bool, got {}", condition.dtype()))
                .with_op("where")
                .with_hint("compare with something, or cast it with to_dtype"),
        );
    }
    let dtype = same_dtype("where", a, b)?;
    let shape = broadcast("where", a, b)?
        .broadcast(condition.shape())
        .map_err(|error| error.with_op("where"))?;
    let mut out = CpuTensor::empty(shape, dtype, a.device())?;
    let to = out.ptr_mut();
    let level = a.device().vectors();
    let operands = [
        Operand::new(condition, &shape),
        Operand::new(a, &shape),
        Operand::new(b, &shape),
    ];
    let size = dtype.size();
    let ns = 0.06 * size as f32;
    // SAFETY: the operands have been broadcast to the output's shape, and the output is new. Elements are only copied,
    // so their type does not matter.
    unsafe {
        map(a.device(), &shape, operands, to, size, ns, &|cab, to, n| {
            choose(level, size, cab, to, n)
        });
    }
    Ok(out)
}

/// Takes `n` elements of `size` bytes: from the second input if the first is true, else from the third.
///
/// # Safety
/// `n` elements must be readable at the inputs and writable at `to`.
pub(crate) unsafe fn choose(level: Option<Level>, size: usize, [c, a, b]: [*const u8; 3], to: *mut u8, n: usize) {
    // SAFETY: by the caller.
    unsafe {
        match size {
            1 => run::<u8>(level, c, a, b, to, n),
            2 => run::<u16>(level, c, a, b, to, n),
            4 => run::<u32>(level, c, a, b, to, n),
            _ => run::<u64>(level, c, a, b, to, n),
        }
    }
}

struct Choose<T> {
    condition: *const u8,
    a: *const T,
    b: *const T,
    to: *mut T,
    n: usize,
}

impl<T: Copy> Kernel for Choose<T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for i in 0..self.n {
            // SAFETY: the caller of `run` guarantees that the pointers are valid.
            unsafe {
                let (a, b) = (self.a.add(i).read(), self.b.add(i).read());
                self.to
                    .add(i)
                    .write(if self.condition.add(i).read() != 0 { a } else { b });
            }
        }
    }
}

/// # Safety
/// `n` elements must be readable at the inputs and writable at `to`.
unsafe fn run<T: Copy>(level: Option<Level>, condition: *const u8, a: *const u8, b: *const u8, to: *mut u8, n: usize) {
    let (a, b, to) = (a.cast::<T>(), b.cast(), to.cast());
    Level::run_loops(level, Choose { condition, a, b, to, n });
}
