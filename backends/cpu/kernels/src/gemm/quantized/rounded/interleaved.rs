//! Products with a weight whose rows are interleaved: they are lanes of registers where they lie.

use std::sync::OnceLock;

use polygrad_core::{BlockScheme, Result};

use super::input::Input;
use super::times::{Registers, Times};
use super::{Factors, Weight, Words};
use crate::gemm::bytes::Way;
use crate::simd::{Kernel, Simd};
use crate::{CpuDevice, Pointer};

/// Rows of a group.
const ROWS: usize = BlockScheme::ROWS;

/// How many words ahead are prefetched: 8 KiB, to the first-level cache.
const AHEAD: usize = 2048;

/// `C = X Wᵀ` for rounded rows of X. Everything is as for turned columns, so that results have the same bits.
///
/// # Safety
/// The weight must be readable and `c` have room for the result; the machine must have the instructions.
///
/// # Errors
/// If memory runs out.
pub(super) unsafe fn run(weight: &Weight, device: CpuDevice, way: Way, input: &Input, c: *mut f32) -> Result<()> {
    let (n, k, words, blocks) = (weight.n, weight.k, weight.words(), weight.blocks());
    // SAFETY: by the caller.
    let each = unsafe { weight.whole_zero() }.is_none();
    let ns = (k * ROWS) as f32 * (0.01 + input.rows as f32 * way.cost());
    let (c, failed) = (Pointer(c), OnceLock::new());
    device.split(n / ROWS, ns, 1, |first, end| {
        let room = || Words::new(blocks * ROWS);
        let (scales, zeros) = match room().and_then(|scales| Ok((scales, each.then(room).transpose()?))) {
            Ok(rooms) => rooms,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        for group in first..end {
            let widen = |factors: Factors, room: &Words| {
                let (at, count) = (group * ROWS * blocks, ROWS * blocks);
                match factors.floats(at) {
                    Some(floats) => floats,
                    None => {
                        let to = room.ptr();
                        way.level().run(Widen { factors, at, count, to });
                        to.cast_const()
                    }
                }
            };
            let (scales, zeros) = (
                widen(weight.scales, &scales),
                zeros.as_ref().map(|zeros| widen(weight.zeros, zeros)),
            );
            let from = weight.bytes.cast::<u32>().wrapping_add(group * ROWS * words);
            for lane in (0..ROWS).step_by(way.lanes()) {
                way.run(Times {
                    weight,
                    input,
                    registers: Registers {
                        words: from.wrapping_add(lane),
                        scales: scales.wrapping_add(lane),
                        zeros: zeros.map(|zeros| zeros.wrapping_add(lane)),
                        step: ROWS,
                        ahead: AHEAD,
                    },
                    count: way.lanes(),
                    to: (c.at(group * ROWS + lane), n),
                });
            }
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Converts the factors of a group's blocks to f32; a single one becomes as many.
struct Widen {
    factors: Factors,
    at: usize,
    count: usize,
    to: *mut f32,
}

impl Kernel for Widen {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { factors, at, count, to } = self;
        // SAFETY: the blocks are those of a group of the weight, and there is room for their factors.
        unsafe {
            match (factors.single(), factors.halves(at)) {
                (Some(one), _) => (0..count).for_each(|i| to.add(i).write(one)),
                (None, Some(halves)) => {
                    for i in (0..count).step_by(S::N) {
                        s.store(to.add(i), s.halves(halves.add(i)));
                    }
                }
                (None, None) => factors.read(at, count, to),
            }
        }
    }
}
