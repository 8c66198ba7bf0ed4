//! The epilogue of a convolution, in place.

use std::ops::Range;

use polygrad_core::Activation;

use crate::CpuDevice;
use crate::Pointer;
use crate::math::Pointwise;
use crate::simd::{Level, Simd};

/// Approximate nanoseconds per element.
const NS: f32 = 0.3;

/// A bias for each channel, a residual and an activation: `f(y + bias + residual)`.
pub struct Epilogue<'a> {
    pub level: Level,
    /// A number for each channel of the output.
    pub bias: &'a [f32],
    /// Has the shape of the output.
    pub residual: Option<&'a [f32]>,
    /// An activation that [`Pointwise`] supports.
    pub activation: Option<Activation>,
}

impl Epilogue<'_> {
    /// Applies the epilogue to `n` elements of the planes of some channels. Those of the first channel begin `place`
    /// elements after the output's first element, `y`; those of each next channel `step` elements later.
    ///
    /// # Safety
    /// The elements must be inside the output, and the caller must be allowed to write them.
    pub unsafe fn run_planes(
        &self,
        device: CpuDevice,
        channels: Range<usize>,
        y: *mut f32,
        (place, step): (usize, usize),
        n: usize,
    ) {
        let (y, first) = (Pointer(y), channels.start);
        device.each(channels.len(), NS * n as f32, |i| {
            // SAFETY: by the caller; each task has a plane of its own.
            unsafe { self.run(self.bias[first + i], y.at(0), place + i * step, n) };
        });
    }

    /// Whether [`Epilogue::run_rows`] applies the whole epilogue to rows of `width` channels, of which `channels` are
    /// used: where rows follow each other without a gap, or are fewer than the channels.
    pub fn ends_in_rows(&self, channels: usize, (rows, width): (usize, usize)) -> bool {
        self.residual.is_none()
            && (matches!(self.activation, None | Some(Activation::Relu)) || channels == width || channels > rows)
    }

    /// Adds the biases of some channels to rows of `width` channels, and applies the activation if it completes the
    /// epilogue.
    ///
    /// # Safety
    /// There must be `rows` rows, which the caller is allowed to write, and at most as many biases as channels.
    #[inline(always)]
    pub unsafe fn run_rows<S: Simd>(&self, s: S, bias: &[f32], y: *mut f32, (rows, width): (usize, usize)) {
        let activation = self.activation.filter(|_| self.ends_in_rows(bias.len(), (rows, width)));
        let relu = activation == Some(Activation::Relu);
        let zero = s.splat(0.0);
        for column in (0..bias.len()).step_by(S::N) {
            let n = S::N.min(bias.len() - column);
            // SAFETY: by the caller.
            unsafe {
                let add = s.load_part(bias.as_ptr().add(column), n);
                for row in 0..rows {
                    let at = y.add(row * width + column);
                    let mut v = s.add(s.load_part(at, n), add);
                    if relu {
                        // A NaN is not below 0, so it stays.
                        v = s.select(s.lt(v, zero), zero, v);
                    }
                    s.store_part(at, n, v);
                }
            }
        }
        let Some(activation) = activation.filter(|_| !relu) else {
            return;
        };
        let (rows, n) = if bias.len() == width {
            (1, rows * width)
        } else {
            (rows, bias.len())
        };
        for row in 0..rows {
            // SAFETY: by the caller.
            unsafe { Pointwise::of(activation).run(self.level, y.add(row * width), n) };
        }
    }

    /// Applies the epilogue to `n` elements that begin `place` elements after the output's first element, `y`. `bias`
    /// is their channel's bias, or 0 if it has been added.
    ///
    /// # Safety
    /// The elements must be inside the output, and the caller must be allowed to write them.
    pub unsafe fn run(&self, bias: f32, y: *mut f32, place: usize, n: usize) {
        let pointwise = Pointwise {
            bias,
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
