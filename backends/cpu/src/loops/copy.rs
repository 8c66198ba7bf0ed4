//! Strided copies.

use polygrad_core::Layout;

use super::{Nest, Operand, map};
use crate::CpuTensor;
use crate::Pointer;

/// Side of the square tiles in which two axes are transposed: two tiles fit the first-level cache.
const SQUARE: usize = 32;

/// Copies a tensor of any layout to a contiguous one of the same shape and dtype.
pub(crate) fn copy(x: &CpuTensor, out: &mut CpuTensor) {
    debug_assert!(x.shape() == out.shape() && x.dtype() == out.dtype() && out.is_contiguous());
    let shape = *x.shape();
    if shape.numel() == 0 {
        return;
    }
    let size = x.dtype().size();
    let to = out.ptr_mut();
    if size == 4 && transpose(x, to) {
        return;
    }
    let ns = size as f32 * 0.05;
    // SAFETY: the shapes agree; the output was made by the caller and is apart from `x`.
    unsafe {
        map(
            x.device(),
            &shape,
            [Operand::new(x, &shape)],
            to,
            size,
            ns,
            &|[from], to, n| {
                std::ptr::copy_nonoverlapping(from, to, n * size);
            },
        );
    }
}

/// Copies tile by tile if the innermost loop is strided and another one is contiguous: a transposition. Returns whether
/// that was the case.
fn transpose(x: &CpuTensor, to: *mut u8) -> bool {
    let nest = Nest::new(x.shape(), [Operand::new(x, x.shape())]);
    let [width, height] = [nest.width(), nest.extent(1)];
    if nest.rank() < 2 || nest.stride(0, 1) != 4 || nest.step(0) == 0 || width < 8 || height < 8 {
        return false;
    }
    let step = nest.step(0) / 4;
    let matrices = nest.numel() / (width * height);
    let strips = height.div_ceil(SQUARE);
    let to = Pointer(to.cast::<u32>());
    x.device()
        .each(matrices * strips, (width * SQUARE) as f32 * 0.3, |item| {
            let (matrix, top) = (item / strips, item % strips * SQUARE);
            let from = nest.row(0, matrix * height).cast::<u32>();
            let to = to.at(matrix * width * height);
            for left in (0..width).step_by(SQUARE) {
                for row in top..height.min(top + SQUARE) {
                    for column in left..width.min(left + SQUARE) {
                        // SAFETY: row and column are inside the matrix on both sides; each task writes rows of its own.
                        unsafe {
                            let value = from.offset(column.cast_signed() * step + row.cast_signed()).read();
                            to.add(row * width + column).write(value);
                        }
                    }
                }
            }
        });
    true
}

/// Copies a tensor to memory that starts at `to`, with the elements at the positions of `layout`, which has its shape.
///
/// # Safety
/// Every position must be writable, distinct from the others, and apart from `x`.
pub(crate) unsafe fn copy_into(x: &CpuTensor, to: *mut u8, layout: &Layout) {
    let shape = *x.shape();
    if shape.numel() == 0 {
        return;
    }
    let size = x.dtype().size();
    let nest = Nest::new(&shape, [Operand::new(x, &shape), Operand::strided(to, size, layout)]);
    let width = nest.width();
    let rows = nest.numel() / width;
    let runs = nest.is_direct(0) && nest.is_direct(1);
    let ns = (width * size) as f32 * if runs { 0.05 } else { 0.3 };
    x.device().each(rows, ns + 2.0, |row| {
        let (from, to) = (nest.row(0, row), nest.row(1, row).cast_mut());
        // SAFETY: the row's elements are inside both, by the caller.
        unsafe {
            if runs {
                std::ptr::copy_nonoverlapping(from, to, width * size);
            } else {
                scatter(from, nest.step(0), to, nest.step(1), size, width);
            }
        }
    });
}

/// # Safety
/// `n` elements must be readable and writable with the given strides, aligned to `size`, which is 1, 2, 4 or 8.
unsafe fn scatter(from: *const u8, step: isize, to: *mut u8, to_step: isize, size: usize, n: usize) {
    macro_rules! copy_as {
        ($type:ty) => {
            for i in 0..n.cast_signed() {
                // SAFETY: by the caller.
                unsafe {
                    to.offset(i * to_step)
                        .cast::<$type>()
                        .write(from.offset(i * step).cast::<$type>().read())
                };
            }
        };
    }
    match size {
        1 => copy_as!(u8),
        2 => copy_as!(u16),
        4 => copy_as!(u32),
        _ => copy_as!(u64),
    }
}
