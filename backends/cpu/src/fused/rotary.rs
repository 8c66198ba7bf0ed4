//! Rotary positions, row by row.

use polygrad_core::{DType, Result, decompose};

use super::vectors;
use crate::loops::Lines;
use crate::simd::{Kernel, Simd};
use crate::{Cpu, CpuTensor};

/// See [`polygrad_core::Backend::rotary`]. Rounds as the ops of the decomposition do.
pub(crate) fn rotary(x: &CpuTensor, cos: &CpuTensor, sin: &CpuTensor) -> Result<CpuTensor> {
    let Some(level) = vectors([x, cos, sin]).filter(|_| x.numel() > 0) else {
        return decompose::rotary::<Cpu>(x, cos, sin);
    };
    let axis = x.shape().rank() - 1;
    let half = x.shape()[axis] / 2;
    let pairs = x.shape().with_dim(axis, half);
    let [cos, sin] = [cos, sin].map(|angles| angles.with_layout(angles.layout().expand(pairs)));
    let out = CpuTensor::empty(*x.shape(), DType::F32, x.device())?;
    let lines = Lines::new(&pairs, axis, [x, &cos, &sin, &out]);
    if (0..3).any(|k| lines.step(k) != size_of::<f32>().cast_signed()) {
        return decompose::rotary::<Cpu>(x, &cos, &sin);
    }
    x.device()
        .split(lines.count(), half as f32 * 0.5 + 10.0, 1, |start, end| {
            level.run(Rotate {
                lines: &lines,
                rows: start..end,
                half,
            });
        });
    Ok(out)
}

struct Rotate<'a> {
    /// Of x, cosines, sines and the output.
    lines: &'a Lines<4>,
    rows: std::ops::Range<usize>,
    half: usize,
}

impl Kernel for Rotate<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            let [x, cos, sin, to] = self.lines.starts(row).map(|start| start.cast::<f32>().cast_mut());
            let mut at = 0;
            while at < self.half {
                let n = S::N.min(self.half - at);
                // SAFETY: all elements `at..at + n` of the row's halves lie in the tensors, whose rows are dense, and
                // no other row of the output overlaps this one.
                unsafe {
                    let load = |from: *mut f32| match n == S::N {
                        true => s.load(from.add(at)),
                        false => s.load_part(from.add(at), n),
                    };
                    let store = |to: *mut f32, v| match n == S::N {
                        true => s.store(to.add(at), v),
                        false => s.store_part(to.add(at), n, v),
                    };
                    let (a, b) = (load(x), load(x.add(self.half)));
                    let (c, d) = (load(cos), load(sin));
                    store(to, s.sub(s.mul(a, c), s.mul(b, d)));
                    store(to.add(self.half), s.add(s.mul(b, c), s.mul(a, d)));
                }
                at += n;
            }
        }
    }
}
