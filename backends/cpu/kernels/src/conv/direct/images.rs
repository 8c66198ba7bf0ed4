//! Images with their border.

use polygrad_core::Result;

use super::Geometry;
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;

/// A batch of images that contains all windows, border included.
pub(super) struct Images {
    /// The copy, if there is a border.
    _copy: Option<Buffer>,
    from: Pointer<f32>,
    extents: [usize; 3],
}

impl Images {
    /// Copies the images with a border of zeros if the convolution has padding.
    ///
    /// # Safety
    /// `from` holds the batch.
    pub(super) unsafe fn new(device: CpuDevice, g: &Geometry, from: *const f32) -> Result<Self> {
        let from = Pointer(from.cast_mut());
        if g.padding == [0; 3] {
            return Ok(Self {
                _copy: None,
                from,
                extents: g.input,
            });
        }
        let extents: [usize; 3] = std::array::from_fn(|axis| g.input[axis] + 2 * g.padding[axis]);
        let plane: usize = extents.iter().product();
        let planes = g.batch * g.groups * g.inputs;
        let copy = Buffer::alloc(planes * plane * size_of::<f32>())?;
        let to = Pointer(copy.as_ptr().cast::<f32>());
        device.each(planes, plane as f32 * 0.15, |i| {
            let (from, to) = (from.at(i * g.plane()), to.at(i * plane));
            // SAFETY: each task writes a plane of its own, and reads one of the batch; all bits zero are the number 0.
            unsafe { with_border(g, extents, from, to) };
        });
        Ok(Self {
            _copy: Some(copy),
            from: to,
            extents,
        })
    }

    /// Offsets of the windows of `images` images from the first window: image by image, position by position.
    pub(super) fn windows(&self, g: &Geometry, images: usize) -> Vec<isize> {
        let lines = g.output[0] * g.output[1];
        let start = self.window(g, 0, 0, 0);
        let mut windows = Vec::with_capacity(images * g.out_plane());
        for image in 0..images {
            for line in 0..lines {
                // SAFETY: both pointers are into the same images.
                let first = unsafe { self.window(g, image, 0, line).offset_from(start) };
                windows.extend((0..g.output[2]).map(|x| first + (x * g.stride[2]).cast_signed()));
            }
        }
        windows
    }

    /// The start of the window of an output row's first position, in the first channel of a group.
    pub(super) fn window(&self, g: &Geometry, image: usize, group: usize, line: usize) -> *const f32 {
        let [depth, height, width] = self.extents;
        let (z, y) = (line / g.output[1] * g.stride[0], line % g.output[1] * g.stride[1]);
        let plane = (image * g.groups + group) * g.inputs;
        self.from.at(((plane * depth + z) * height + y) * width).cast_const()
    }

    /// Offsets of a window's elements from its first: channel by channel, tap by tap.
    pub(super) fn places(&self, g: &Geometry) -> Vec<isize> {
        let [depth, height, width] = self.extents;
        let mut places = Vec::with_capacity(g.inputs * g.taps());
        for channel in 0..g.inputs {
            for z in 0..g.kernel[0] {
                for y in 0..g.kernel[1] {
                    for x in 0..g.kernel[2] {
                        let row = (channel * depth + z * g.dilation[0]) * height + y * g.dilation[1];
                        places.push((row * width + x * g.dilation[2]).cast_signed());
                    }
                }
            }
        }
        places
    }
}

/// # Safety
/// `from` holds a plane of the input, `to` has room for a plane with its border.
unsafe fn with_border(g: &Geometry, extents: [usize; 3], from: *const f32, to: *mut f32) {
    let [depths, heights, width] = extents;
    let [_, rows, columns] = g.input;
    // SAFETY: by the caller.
    unsafe {
        for z in 0..depths {
            let deep = z.wrapping_sub(g.padding[0]);
            for y in 0..heights {
                let high = y.wrapping_sub(g.padding[1]);
                let line = to.add((z * heights + y) * width);
                if deep >= g.input[0] || high >= rows {
                    std::ptr::write_bytes(line, 0, width);
                    continue;
                }
                let border = g.padding[2];
                std::ptr::write_bytes(line, 0, border);
                std::ptr::copy_nonoverlapping(from.add((deep * rows + high) * columns), line.add(border), columns);
                std::ptr::write_bytes(line.add(border + columns), 0, border);
            }
        }
    }
}
