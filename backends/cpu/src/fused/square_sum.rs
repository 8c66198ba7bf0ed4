//! The sum of the squares of several tensors.

use polygrad_core::{DType, Result, Scalar, Shape, decompose};

use super::rows::sum_row;
use super::vectors;
use crate::ops::create;
use crate::simd::{Kernel, Level, Simd};
use crate::{Cpu, CpuTensor, Pointer};

/// Elements of a task. Sums do not depend on the number of threads, since this is the same for any.
const PART: usize = 1 << 14;

/// Approximate nanoseconds per element.
const NS: f32 = 0.06;

/// See [`polygrad_core::Backend::square_sum`].
pub(crate) fn square_sum(xs: &[&CpuTensor]) -> Result<CpuTensor> {
    let (Some(level), [first, ..]) = (vectors(xs.iter().copied()), xs) else {
        return decompose::square_sum::<Cpu>(xs);
    };
    let mut total = 0.0;
    for x in xs {
        let x = x.contiguous()?;
        total += squares(&x, level);
    }
    create::full(Shape::SCALAR, Scalar::Float(total), DType::F32, first.device())
}

/// Of a contiguous tensor of f32.
fn squares(x: &CpuTensor, level: Level) -> f64 {
    let (from, n) = (Pointer(x.ptr().cast_mut().cast::<f32>()), x.numel());
    let part = |i: usize| {
        let start = i * PART;
        level.run(Squares {
            x: from.at(start),
            n: PART.min(n - start),
        })
    };
    if n <= PART {
        return part(0);
    }
    let mut sums = vec![0.0; n.div_ceil(PART)];
    let to = Pointer(sums.as_mut_ptr());
    x.device().each(sums.len(), NS * PART as f32, |i| {
        // SAFETY: each part has a place of its own.
        unsafe { to.at(i).write(part(i)) };
    });
    sums.iter().sum()
}

struct Squares {
    x: *const f32,
    n: usize,
}

impl Kernel for Squares {
    type Out = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        let x = self.x;
        // SAFETY: `squares` passes a stretch of the tensor.
        unsafe {
            sum_row!(s, self.n, |load, store| {
                let x = load(x);
                s.mul(x, x)
            })
        }
    }
}
