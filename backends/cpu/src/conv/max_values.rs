//! Max pooling without positions. Windows with a border go first along columns of the image, whole rows at a time, then
//! along the row that is left.

use std::sync::OnceLock;

use polygrad_core::Result;

use super::geometry::Geometry;
use crate::CpuTensor;
use crate::buffers::Buffer;
use crate::loops::Pointer;
use crate::simd::{Kernel, Level, Simd};

/// The largest of each window of f32, without dilation.
pub(super) fn max_values(level: Level, g: &Geometry, x: &CpuTensor, out: &mut CpuTensor) -> Result<()> {
    let (plane, out_plane) = (g.plane(), g.out_plane());
    let (from, to) = (
        Pointer(x.ptr().cast_mut().cast::<f32>()),
        Pointer(out.ptr_mut().cast::<f32>()),
    );
    let failed = OnceLock::new();
    let ns = (plane + out_plane) as f32 * 0.4;
    x.device().split(g.batch * g.groups, ns, 1, |start, end| {
        let line = match Buffer::alloc(g.input[2] * size_of::<f32>()) {
            Ok(line) => line,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        for i in start..end {
            let planes = Planes {
                g,
                x: from.at(i * plane),
                line: line.as_ptr().cast(),
                y: to.at(i * out_plane),
            };
            Level::run_loops(Some(level), planes);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// One plane of the input and of the output, and room for a row of the input.
struct Planes<'a> {
    g: &'a Geometry,
    x: *const f32,
    line: *mut f32,
    y: *mut f32,
}

/// NaN is the largest.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

impl Kernel for Planes<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { g, x, line, y } = self;
        let [_, height, width] = g.input;
        let [depths, rows, columns] = g.output;
        for row in 0..depths * rows {
            // SAFETY: all places are inside the plane, the row's room and the output, as `taps_inside` and
            // `positions_inside` bound them.
            unsafe {
                let mut fresh = true;
                let (d0, d1, z) = g.taps_inside(0, row / rows);
                let (h0, h1, h) = g.taps_inside(1, row % rows);
                for z in z..z + d1 - d0 {
                    for h in h..h + h1 - h0 {
                        let from = x.add((z * height + h) * width);
                        if fresh {
                            std::ptr::copy_nonoverlapping(from, line, width);
                        } else {
                            for i in 0..width {
                                line.add(i).write(larger(line.add(i).read(), from.add(i).read()));
                            }
                        }
                        fresh = false;
                    }
                }
                let to = y.add(row * columns);
                (0..columns).for_each(|i| to.add(i).write(f32::NEG_INFINITY));
                for tap in 0..g.kernel[2] {
                    let (start, end, place) = g.positions_inside(2, tap);
                    let (from, to) = (line.add(place).cast_const(), to.add(start));
                    match g.stride[2] {
                        1 => raise(from, 1, to, end - start),
                        2 => raise(from, 2, to, end - start),
                        stride => raise(from, stride, to, end - start),
                    }
                }
            }
        }
    }
}

/// Raises `n` elements to those that are `stride` apart.
///
/// # Safety
/// Both must be there.
#[inline(always)]
unsafe fn raise(from: *const f32, stride: usize, to: *mut f32, n: usize) {
    for i in 0..n {
        // SAFETY: by the caller.
        unsafe { to.add(i).write(larger(to.add(i).read(), from.add(i * stride).read())) };
    }
}
