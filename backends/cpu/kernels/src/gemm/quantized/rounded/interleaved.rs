//! Products with a weight whose rows are interleaved: they are lanes of registers where they lie.

use std::sync::OnceLock;

use polygrad_core::{BlockScheme, Result};

use super::input::Input;
use super::times::{Numbers, Registers, Times};
use super::{Factors, Weight, Words};
use crate::gemm::bytes::Way;
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
    let multiply = |first: usize, end: usize| {
        let mut rooms = (None, None);
        for group in first..end {
            let (at, count) = (group * ROWS * blocks, ROWS * blocks);
            // SAFETY: the blocks are those of a group of the weight, and the rooms are for as many.
            let (scales, zeros) = unsafe {
                let zeros = each.then(|| numbers(weight.zeros, at, count, &mut rooms.1));
                (numbers(weight.scales, at, count, &mut rooms.0)?, zeros.transpose()?)
            };
            let from = weight.bytes.cast::<u32>().wrapping_add(group * ROWS * words);
            for lane in (0..ROWS).step_by(way.lanes()) {
                way.run(Times {
                    weight,
                    input,
                    registers: Registers {
                        words: from.wrapping_add(lane),
                        scales: scales.moved(lane),
                        zeros: zeros.map(|zeros| zeros.moved(lane)),
                        step: ROWS,
                        ahead: AHEAD,
                    },
                    count: way.lanes(),
                    to: (c.at(group * ROWS + lane), n),
                });
            }
        }
        Ok(())
    };
    device.split(n / ROWS, ns, 1, |first, end| {
        if let Err(error) = multiply(first, end) {
            let _ = failed.set(error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// The factors of `count` blocks from `at` on: where they lie if they are f32 or f16, else converted to f32 in the
/// room, which is made for them. A single one becomes as many.
///
/// # Safety
/// They must be readable; the room is for as many, if there is one.
///
/// # Errors
/// If memory runs out.
unsafe fn numbers(factors: Factors, at: usize, count: usize, room: &mut Option<Words>) -> Result<Numbers> {
    if let Some(floats) = factors.floats(at) {
        return Ok(Numbers::Floats(floats));
    }
    if let Some(halves) = factors.halves(at) {
        return Ok(Numbers::Halves(halves));
    }
    let room = match room {
        Some(room) => room,
        None => room.insert(Words::new(count)?),
    };
    let to = room.ptr::<f32>();
    // SAFETY: by the caller.
    unsafe {
        match factors.single() {
            Some(one) => (0..count).for_each(|i| to.add(i).write(one)),
            None => factors.read(at, count, to),
        }
    }
    Ok(Numbers::Floats(to))
}
