//! How element-wise kernels walk over tensors of any layout.
//!
//! Kernels take only contiguous runs of elements. Other operands are gathered tile by tile into a small buffer in the
//! first-level cache, so that no tensor is ever materialized for a kernel.

mod copy;
mod each;
mod lines;
mod nest;
mod tile;

pub(crate) use copy::{copy, copy_into};
pub(crate) use each::{Each, Fill};
pub(crate) use lines::Lines;
pub(crate) use nest::{Nest, Operand};

use std::mem::MaybeUninit;

use polygrad_core::Shape;

use crate::{CpuDevice, Pointer};
use nest::Form;
use tile::{TILE, Tile};

/// A kernel: reads `n` contiguous elements of each input and writes `n` contiguous outputs. Caller and kernel agree on
/// the element types.
pub(crate) type Run<'a, const N: usize> = &'a (dyn Fn([*const u8; N], *mut u8, usize) + Sync);

/// Shorter rows are not worth a kernel call each.
const SHORT_ROW: usize = 32;

/// Writes a contiguous output of `shape`, with elements of `out_size` bytes, from operands that have been broadcast to
/// that shape. An element costs about `ns` nanoseconds.
///
/// # Safety
/// Every element of each operand must be readable, the output's memory writable and not read through an operand (unless
/// element by element at the same place), and `run` must be right for the elements' types.
pub(crate) unsafe fn map<const N: usize>(
    device: CpuDevice,
    shape: &Shape,
    operands: [Operand; N],
    out: *mut u8,
    out_size: usize,
    ns: f32,
    run: Run<'_, N>,
) {
    let numel = shape.numel();
    if numel == 0 {
        return;
    }
    if numel <= TILE && operands.iter().all(|x| !matches!(x.form, Form::Strided(_))) {
        // Most ops of a small model: a loop nest would cost more than their elements.
        let mut rooms = [const { MaybeUninit::uninit() }; N];
        let mut tiles = rooms.each_mut().map(Tile::new);
        let from = std::array::from_fn(|k| match operands[k] {
            Operand {
                ptr,
                size,
                form: Form::One,
            } if numel > 1 => {
                // SAFETY: by the caller's contract the element is readable.
                unsafe { tiles[k].repeat(ptr, size, numel) }
            }
            Operand { ptr, .. } => ptr,
        });
        run(from, out, numel);
        return;
    }
    let nest = Nest::new(shape, operands);
    let out = Pointer(out);
    if nest.is_one_run() {
        device.split(nest.numel(), ns, TILE, |start, end| {
            let from = std::array::from_fn(|k| nest.base(k).wrapping_add(start * nest.size(k)));
            run(from, out.at(start * out_size), end - start);
        });
        return;
    }
    let width = nest.width();
    if width < SHORT_ROW {
        device.split(nest.numel(), ns + 1.0, TILE, |start, end| {
            let mut rooms = [const { MaybeUninit::uninit() }; N];
            let mut tiles = rooms.each_mut().map(Tile::new);
            for first in (start..end).step_by(TILE) {
                let n = TILE.min(end - first);
                let mut from = [std::ptr::null(); N];
                for (k, tile) in tiles.iter_mut().enumerate() {
                    // SAFETY: `n` elements from `first` on are inside the operand, which is readable by the caller's
                    // contract.
                    from[k] = unsafe { tile.fill(&nest, k, first, n) };
                }
                run(from, out.at(first * out_size), n);
            }
        });
        return;
    }
    // Long rows are cut into segments, each a task of its own if there are few rows.
    let direct = (0..N).all(|k| nest.is_direct(k));
    let segment = if direct { width } else { width.min(TILE) };
    let segments = width.div_ceil(segment);
    let items = nest.numel() / width * segments;
    device.split(items, ns * segment as f32, 1, |start, end| {
        let mut rooms = [const { MaybeUninit::uninit() }; N];
        let mut tiles = rooms.each_mut().map(Tile::new);
        for item in start..end {
            let (row, column) = (item / segments, item % segments * segment);
            let n = segment.min(width - column);
            let first = row * width + column;
            let mut from = [std::ptr::null(); N];
            for (k, tile) in tiles.iter_mut().enumerate() {
                // SAFETY: the row's elements are inside the operand, which is readable by the caller's contract.
                from[k] = unsafe { tile.segment(&nest, k, row, column, n) };
            }
            run(from, out.at(first * out_size), n);
        }
    });
}

#[cfg(test)]
mod tests;
