//! What follows a convolution, in place.

use polygrad_core::Activation;

use crate::CpuTensor;
use crate::fused::pointwise::Pointwise;
use crate::loops::Pointer;
use crate::simd::Level;

/// Nanoseconds an element, about.
const NS: f32 = 0.3;

/// A bias for each channel, a residual and an activation: `f(y + bias + residual)`.
pub(crate) struct Then<'a> {
    pub(crate) level: Level,
    /// A number for each channel of the output.
    pub(crate) bias: &'a [f32],
    /// As many elements as the output has.
    pub(crate) residual: Option<&'a [f32]>,
    /// One that [`Pointwise`] knows.
    pub(crate) activation: Option<Activation>,
}

impl Then<'_> {
    /// Does it to a whole output of f32, which was just made.
    pub(super) fn run_all(&self, out: &mut CpuTensor) {
        let (shape, device) = (*out.shape(), out.device());
        let (channels, plane) = (shape[1], shape[2..].iter().product());
        let y = Pointer(out.ptr_mut().cast());
        device.each(shape[0] * channels, NS * plane as f32, |i| {
            // SAFETY: each task has a plane of the output.
            unsafe { self.run(i % channels, y.at(0), i * plane, plane) };
        });
    }

    /// Does it to `n` elements of a channel, which begin `place` elements after the output's first, `y`.
    ///
    /// # Safety
    /// They must be inside the output, and the caller's to write.
    pub(super) unsafe fn run(&self, channel: usize, y: *mut f32, place: usize, n: usize) {
        let pointwise = Pointwise {
            bias: self.bias[channel],
            residual: match self.residual {
                Some(residual) => residual[place..place + n].as_ptr(),
                None => std::ptr::null(),
            },
            activation: self.activation,
        };
        // SAFETY: by the caller; the residual has as many elements.
        unsafe { pointwise.run(self.level, y.add(place), n) };
    }
}
