//! Convolution as a matrix product with the patches of all images, for shapes that the direct form does not suit.

use super::*;
use crate::gemm::{Panels, product};
use crate::simd::Lanes;

/// The patches of a group's channels as a matrix: a row for each channel and tap, a column for each position of each image.
struct Patches<'a, T> {
    /// The group's first channel in the first image.
    x: *const T,
    geometry: &'a Geometry,
}

// SAFETY: the images are only read.
unsafe impl<T> Sync for Patches<'_, T> {}

impl<T: Real> Patches<'_, T> {
    /// The element for a row and a column.
    ///
    /// # Safety
    /// Both must be inside the matrix.
    #[inline]
    unsafe fn at(&self, row: usize, column: usize) -> T {
        let g = self.geometry;
        let (taps, plane, out_plane) = (g.taps(), g.plane(), g.out_plane());
        let (channel, mut tap) = (row / taps, row % taps);
        let (image, mut position) = (column / out_plane, column % out_plane);
        let mut offset = 0;
        let mut step = 1;
        for axis in (0..3).rev() {
            let at = position % g.output[axis] * g.stride[axis] + tap % g.kernel[axis] * g.dilation[axis];
            position /= g.output[axis];
            tap /= g.kernel[axis];
            if at < g.padding[axis] || at - g.padding[axis] >= g.input[axis] {
                return T::ZERO;
            }
            offset += (at - g.padding[axis]) * step;
            step *= g.input[axis];
        }
        let channels = g.groups * g.inputs;
        // SAFETY: channel and place are inside the image.
        unsafe { self.x.add((image * channels + channel) * plane + offset).read() }
    }
}

impl<T: Real> Panels<T> for Patches<'_, T> {
    #[inline(always)]
    unsafe fn pack<L: Lanes<T = T>>(
        &self,
        _: L,
        (row, rows): (usize, usize),
        (column, columns): (usize, usize),
        width: usize,
        to: *mut T,
    ) {
        for p in 0..rows {
            for j in 0..width {
                // SAFETY: rows and columns are inside the matrix and the panel, by the caller.
                unsafe {
                    let value = if j < columns {
                        self.at(row + p, column + j)
                    } else {
                        T::ZERO
                    };
                    to.add(p * width + j).write(value);
                }
            }
        }
    }
}

/// `x`, `weight` and `out` are contiguous.
pub(super) fn conv<T: Real + Element>(
    x: &CpuTensor,
    weight: &CpuTensor,
    out: &mut CpuTensor,
    g: &Geometry,
) -> Result<()> {
    let (device, out_plane, k) = (x.device(), g.out_plane(), g.inputs * g.taps());
    let columns = g.batch * out_plane;
    let dims = Dims {
        m: g.outputs,
        n: columns,
        k,
    };
    let (from, weight) = (x.typed::<T>()?, weight.typed::<T>()?);
    let to = Pointer(out.ptr_mut().cast::<T>());
    // The product has the channels outermost; a batch of several images has to be rearranged after.
    let mut product_out = CpuTensor::empty(Shape::new(&[g.outputs, columns])?, T::DTYPE, device)?;
    for group in 0..g.groups {
        let patches = Patches {
            x: from.wrapping_add(group * g.inputs * g.plane()),
            geometry: g,
        };
        let weight = Mat::new(weight.wrapping_add(group * g.outputs * k), k.cast_signed(), 1);
        let c = Pointer(product_out.ptr_mut().cast::<T>());
        let c_mat = MatMut::new(c.0, columns.cast_signed(), 1);
        // SAFETY: the patches have `k` rows and a column for each of `n`, the weight `m` rows; the result is new.
        unsafe {
            match device.vectors() {
                Some(level) => product(device, level, dims, weight, &patches, None, c_mat, Update::set())?,
                None => {
                    let mut all = CpuTensor::empty(Shape::new(&[k, columns])?, T::DTYPE, device)?;
                    let b = Pointer(all.ptr_mut().cast::<T>());
                    device.each(k, columns as f32, |row| {
                        (0..columns).for_each(|j| b.at(row * columns + j).write(patches.at(row, j)));
                    });
                    let b = Mat::new(b.0.cast_const(), columns.cast_signed(), 1);
                    gemm::gemm(device, dims, weight, b, c_mat, Update::set())?;
                }
            }
        }
        device.each(g.batch * g.outputs, out_plane as f32 * 0.3, |i| {
            let (image, output) = (i / g.outputs, i % g.outputs);
            let place = (image * g.groups + group) * g.outputs + output;
            // SAFETY: both planes are inside their tensors, and each is moved once.
            unsafe {
                let from = c.at(output * columns + image * out_plane);
                std::ptr::copy_nonoverlapping(from, to.at(place * out_plane), out_plane);
            }
        });
    }
    Ok(())
}
