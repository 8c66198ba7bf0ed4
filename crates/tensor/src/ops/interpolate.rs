//! Resizing of spatial axes.

pub use polygrad_core::InterpolateMode;
use polygrad_core::{Backend, Composite, Error, HostTensor, Result, Shape};

use super::{collected, context};
use crate::Tensor;
use crate::graph::needs_graph;

/// The new extents of the spatial axes for [`Tensor::interpolate`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resize<'a> {
    /// The new extent of each spatial axis.
    Size(&'a [usize]),
    /// A factor for each spatial axis. The new extent is the product, rounded down. Positions follow from the factor
    /// itself, not the ratio of the extents, unless the extent does not change and the mode is not `Cubic`. (For
    /// PyTorch's `recompute_scale_factor` give the rounded product as a size.)
    Scale(&'a [f64]),
}

/// The resizing of one axis.
struct Line {
    from: usize,
    to: usize,
    /// Old cells for each new one, if that is not the ratio of the extents.
    step: Option<f64>,
    align_corners: bool,
}

impl Line {
    /// The number of old cells that `halves` half new cells span. Products of extents are exact and divided once, so
    /// that a quotient that is an integer or a half is exact.
    fn span(&self, halves: usize) -> f64 {
        match self.step {
            None => halves as f64 * self.from as f64 / (2.0 * self.to as f64),
            Some(step) => halves as f64 / 2.0 * step,
        }
    }

    /// The position of a new cell's centre, relative to the centres of the old cells.
    fn centre(&self, i: usize) -> f64 {
        if self.align_corners {
            return match self.to {
                1 => 0.0,
                to => i as f64 * (self.from - 1) as f64 / (to - 1) as f64,
            };
        }
        self.span(2 * i + 1) - 0.5
    }

    /// One of the old cells that contribute to a new cell: its position and its weight.
    fn tap(&self, mode: InterpolateMode, tap: usize, i: usize) -> (usize, f64) {
        let last = self.from - 1;
        // The inverse of a factor is rounded; through f32, 3 / 0.6 becomes 5.
        let whole = |position: f64| match self.step {
            None => position as usize,
            Some(_) => position as f32 as usize,
        };
        match mode {
            InterpolateMode::Nearest => (whole(self.span(2 * i)).min(last), 1.0),
            InterpolateMode::NearestExact => (whole(self.span(2 * i + 1)).min(last), 1.0),
            InterpolateMode::Linear | InterpolateMode::Area => {
                let centre = self.centre(i).max(0.0);
                let left = (centre.floor() as usize).min(last);
                let share = (centre - left as f64).clamp(0.0, 1.0);
                let weight = if tap == 0 { 1.0 - share } else { share };
                ((left + tap).min(last), weight)
            }
            InterpolateMode::Cubic => {
                let centre = self.centre(i);
                let (left, offset) = (centre.floor(), tap as f64 - 1.0);
                let at = (left + offset).clamp(0.0, last as f64) as usize;
                (at, keys(centre - left - offset))
            }
        }
    }
}

/// The cubic convolution kernel with parameter −0.75. Source: Keys, "Cubic convolution interpolation for digital
/// image processing" (1981).
fn keys(distance: f64) -> f64 {
    const A: f64 = -0.75;
    let x = distance.abs();
    match x {
        _ if x <= 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        _ if x < 2.0 => ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A,
        _ => 0.0,
    }
}

impl<B: Backend> Tensor<B> {
    /// Resizes the spatial axes of `[N, C, spatial…]`, one after the other. With `align_corners` the centres of the
    /// first and last cells keep their positions, else the outer edges do; it only applies to `Linear` and `Cubic`.
    ///
    /// # Errors
    /// When the rank is not 3 to 5 (for `Cubic` 4), there is not one extent or factor for each spatial axis, an extent,
    /// old or new, or a factor is not above 0, `align_corners` is set for another mode, or the dtype is not a float.
    pub fn interpolate(&self, to: Resize<'_>, mode: InterpolateMode, align_corners: bool) -> Result<Self> {
        let fail = |e| context(e, "interpolate", &[self]);
        let factors = match to {
            Resize::Scale(factors) => Some(factors),
            Resize::Size(_) => None,
        };
        let lines = self.lines(to, mode, align_corners).map_err(fail)?;
        if mode == InterpolateMode::Area {
            let size: Vec<usize> = lines.iter().map(|line| line.to).collect();
            return self.adaptive_avg_pool(&size).map_err(fail);
        }
        if !needs_graph(&[self]) {
            let to: Vec<usize> = (self.shape()[..2].iter().copied())
                .chain(lines.iter().map(|line| line.to))
                .collect();
            let whole = Composite::Interpolate {
                to: &to,
                factors,
                mode,
                align_corners,
            };
            if let Some(y) = B::composite(&whole, &self.value).map_err(fail)? {
                return Ok(Self::from_inner(y));
            }
        }
        let resampled =
            |x: &Self| (lines.iter().enumerate()).try_fold(x.clone(), |x, (i, line)| x.resampled(i + 2, line, mode));
        match mode {
            // These modes only copy values, so nothing is rounded.
            InterpolateMode::Nearest | InterpolateMode::NearestExact => resampled(self),
            _ => Self::in_wide([self], |[x]| resampled(x)),
        }
        .map_err(fail)
    }

    fn lines(&self, to: Resize<'_>, mode: InterpolateMode, align_corners: bool) -> Result<Vec<Line>> {
        let shape = self.shape();
        let spatial = shape.rank().saturating_sub(2);
        if !(3..=5).contains(&shape.rank()) || (mode == InterpolateMode::Cubic && spatial != 2) {
            return Err(Error::shape(format!(
                "{mode:?} takes {}",
                match mode {
                    InterpolateMode::Cubic => "[N, C, H, W]",
                    _ => "[N, C, spatial…] of rank 3 to 5",
                }
            )));
        }
        if !self.dtype().is_float() {
            return Err(Error::dtype(format!("{} is no float", self.dtype())).with_hint("convert it with to_dtype"));
        }
        if align_corners && !matches!(mode, InterpolateMode::Linear | InterpolateMode::Cubic) {
            return Err(Error::invalid(format!("align_corners has no meaning for {mode:?}")));
        }
        let given = match to {
            Resize::Size(sizes) => sizes.len(),
            Resize::Scale(factors) => factors.len(),
        };
        if given != spatial {
            return Err(Error::shape(format!(
                "{given} extents or factors for {spatial} spatial axes"
            )));
        }
        let lines = shape[2..].iter().enumerate().map(|(i, &from)| {
            let (to, step) = match to {
                Resize::Size(sizes) => (sizes[i], None),
                Resize::Scale(factors) => {
                    let to = (from as f64 * factors[i]) as usize;
                    // As in PyTorch, an axis that keeps its extent keeps its values, except with `Cubic`.
                    let moves = to != from || mode == InterpolateMode::Cubic || !factors[i].is_finite();
                    (to, moves.then_some(1.0 / factors[i]))
                }
            };
            if from == 0 || to == 0 || step.is_some_and(|step| !step.is_finite()) {
                return Err(Error::shape(format!(
                    "axis {} would go from {from} to {to} elements",
                    i + 2
                )));
            }
            Ok(Line {
                from,
                to,
                step,
                align_corners,
            })
        });
        let lines = lines.collect::<Result<Vec<_>>>()?;
        let dims = lines.iter().map(|line| line.to);
        Shape::new(&shape[..2].iter().copied().chain(dims).collect::<Vec<_>>())?;
        Ok(lines)
    }

    /// Computes each new slice of an axis as a weighted sum of old ones.
    fn resampled(&self, axis: usize, line: &Line, mode: InterpolateMode) -> Result<Self> {
        let device = self.device();
        let part = |tap: usize| {
            let index = collected(line.to, |i| line.tap(mode, tap, i).0 as i64)?;
            self.index_select(axis as isize, &Self::from_vec(index, [line.to], &device)?)
        };
        let taps = match mode {
            InterpolateMode::Nearest | InterpolateMode::NearestExact => return part(0),
            InterpolateMode::Linear | InterpolateMode::Area => 2,
            InterpolateMode::Cubic => 4,
        };
        let mut column = vec![1; self.rank()];
        column[axis] = line.to;
        let weighted = |tap: usize| {
            let weights = collected(line.to, |i| line.tap(mode, tap, i).1)?;
            let weights = HostTensor::new(Shape::new(&column)?, weights)?.cast(self.dtype());
            part(tap)?.mul(&Self::from_host(weights, &device)?)
        };
        (1..taps).try_fold(weighted(0)?, |sum, tap| sum.add(&weighted(tap)?))
    }
}
