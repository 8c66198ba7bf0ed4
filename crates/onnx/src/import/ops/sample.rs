//! Sampling between the elements of images, at positions given by a grid.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::Tensor;

use super::conv::spatial;
use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, Results, one, sizes};

rows! {
    Row::new("GridSample", 16, grid_sample).like(0);
    Row::new("AffineGrid", 20, affine_grid);
}

/// The elements that are mixed at each of `points` of each image: pairs of lists `[N, points]` of indices and weights,
/// one pair for each tap.
pub(super) struct Taps {
    pub(super) points: usize,
    pub(super) taps: Vec<(Vec<i64>, Vec<f64>)>,
}

impl Taps {
    /// `[N, C, points]` from `x [N, C, elements]`.
    pub(super) fn of(&self, c: &Call<'_>, x: &Tensor) -> Result<Tensor> {
        let shape = x.shape();
        let [n, channels] = [shape[0], shape[1]];
        let dims = c.reserve(&[n, channels, self.points], DType::F64)?;
        let mut y: Option<Tensor> = None;
        for (index, weight) in &self.taps {
            let index = c.make(index.clone(), &[n, 1, self.points])?.expand(dims)?;
            let weight = c.make_as(weight.clone(), &[n, 1, self.points], x.dtype())?;
            let part = (x.gather(2, &index)? * weight)?;
            y = Some(match y {
                Some(y) => (y + part)?,
                None => part,
            });
        }
        y.ok_or_else(|| malformed("nothing to sample"))
    }
}

/// Flattens the spatial axes.
pub(super) fn flat(x: &Tensor) -> Result<Tensor> {
    let shape = x.shape();
    x.reshape([shape[0], shape[1], shape[2..].iter().product()])
}

/// The treatment of positions outside an image.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// How GridSample samples an image.
pub(super) struct Sampler<'a> {
    pub(super) extents: &'a [usize],
    pub(super) outside: Outside,
    pub(super) corners: bool,
    /// The number of taps along each axis: 1, 2 or 4.
    pub(super) width: usize,
}

impl Sampler<'_> {
    /// The ends of an axis for reflection.
    fn ends(&self, axis: usize) -> (f64, f64) {
        let extent = self.extents[axis] as f64;
        if self.corners {
            (0.0, extent - 1.0)
        } else {
            (-0.5, extent - 0.5)
        }
    }

    fn reflect(&self, axis: usize, at: f64) -> f64 {
        let (low, high) = self.ends(axis);
        let range = high - low;
        if range <= 0.0 || !at.is_finite() {
            return low.max(0.0);
        }
        let distance = if at < low {
            low - at
        } else if at > high {
            at - high
        } else {
            return at;
        };
        let (turns, rest) = ((distance / range).trunc(), distance % range);
        if (turns % 2.0 == 0.0) == (at < low) {
            low + rest
        } else {
            high - rest
        }
    }

    /// For an axis: positions and weights of the elements around a normalized coordinate.
    fn around(&self, axis: usize, normal: f64) -> Vec<(Option<i64>, f64)> {
        let extent = self.extents[axis];
        let last = extent as f64 - 1.0;
        // In f32, as in other implementations, so that positions on the border between two elements round to the same
        // one.
        let normal = normal as f32;
        let length = extent as f32;
        let at = if self.corners {
            (normal + 1.0) / 2.0 * (length - 1.0)
        } else {
            ((normal + 1.0) * length - 1.0) / 2.0
        };
        let mut at = f64::from(at);
        if self.width == 1 {
            at = at.round_ties_even();
        }
        let (low, high) = self.ends(axis);
        // With four taps the position is unchanged, and each tap is brought inside, as in PyTorch and ONNX Runtime but
        // unlike the reference.
        if self.width < 4 && (at < low || at > high) {
            match self.outside {
                Outside::Zeros => {}
                Outside::Border => at = at.clamp(0.0, last),
                Outside::Reflection => at = self.reflect(axis, at),
            }
        }
        if !at.is_finite() {
            return vec![(None, 0.0)];
        }
        let pixel = |i: f64| -> Option<i64> {
            let i = match self.outside {
                Outside::Zeros => (0.0..=last).contains(&i).then_some(i)?,
                Outside::Border => i.clamp(0.0, last),
                Outside::Reflection => self.reflect(axis, i).trunc().clamp(0.0, last),
            };
            Some(i as i64)
        };
        let (base, x) = (at.floor(), at - at.floor());
        match self.width {
            1 => vec![(pixel(at), 1.0)],
            2 => vec![(pixel(base), 1.0 - x), (pixel(base + 1.0), x)],
            _ => (-1..=2)
                .map(|i| (pixel(base + f64::from(i)), cubic((x - f64::from(i)).abs())))
                .collect(),
        }
    }

    /// Adds the taps of one point, whose coordinates are given last axis first.
    fn point(&self, coordinates: &[f64], taps: &mut [(Vec<i64>, Vec<f64>)]) {
        let count = self.extents.len();
        let axes: Vec<_> = (0..count)
            .map(|axis| self.around(axis, coordinates[count - 1 - axis]))
            .collect();
        for (tap, (index, weight)) in taps.iter_mut().enumerate() {
            let (mut place, mut total, mut rest) = (Some(0i64), 1.0, tap);
            for (axis, around) in axes.iter().enumerate().rev() {
                let (at, w) = around.get(rest % self.width).copied().unwrap_or((None, 0.0));
                rest /= self.width;
                let step: usize = self.extents[axis + 1..].iter().product();
                place = place.and_then(|place| Some(place + at? * step as i64));
                total *= w;
            }
            index.push(place.unwrap_or(0));
            weight.push(if place.is_some() { total } else { 0.0 });
        }
    }

    fn taps(&self, c: &Call<'_>, n: usize, points: usize, coordinates: &[f64]) -> Result<Taps> {
        let count = self.extents.len();
        let mut taps = tap_lists(c, self.width.pow(count as u32), n * points)?;
        for point in 0..n * points {
            self.point(&coordinates[point * count..][..count], &mut taps);
        }
        Ok(Taps { points, taps })
    }
}

/// Lists for the positions and weights of `taps` elements at each of `points`.
pub(super) fn tap_lists(c: &Call<'_>, taps: usize, points: usize) -> Result<Vec<(Vec<i64>, Vec<f64>)>> {
    c.limits
        .check_bytes(taps.saturating_mul(points).saturating_mul(size_of::<(i64, f64)>()))?;
    (0..taps).map(|_| Ok((c.list(points)?, c.list(points)?))).collect()
}

/// Keys' kernel with −0.75, as in PyTorch.
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.75;
    if x <= 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else {
        ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    }
}

impl Sampler<'_> {
    /// Adds the four taps of a point whose coordinates are in elements.
    pub(super) fn element(&self, y: f64, x: f64, taps: &mut [(Vec<i64>, Vec<f64>)]) {
        let [height, width] = [self.extents[0] as f64, self.extents[1] as f64];
        for (tap, (index, weight)) in taps.iter_mut().enumerate() {
            let (row, column) = (y.floor() + (tap / 2) as f64, x.floor() + (tap % 2) as f64);
            let share = (1.0 - (y - row).abs()).max(0.0) * (1.0 - (x - column).abs()).max(0.0);
            let inside = (0.0..height).contains(&row) && (0.0..width).contains(&column);
            index.push(if inside { (row * width + column) as i64 } else { 0 });
            weight.push(if inside { share } else { 0.0 });
        }
    }
}

fn grid_sample(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let (shape, grid) = (x.shape(), c.shape(1)?);
    let extents = spatial(&shape)?;
    let fits = grid.rank() == shape.rank() && grid[0] == shape[0] && grid[grid.rank() - 1] == extents.len();
    if !fits || extents.len() > 3 || extents.contains(&0) {
        return Err(Error::shape(format!("a grid of shape {grid} for {shape}")));
    }
    let sampler = Sampler {
        extents,
        outside: match c.text("padding_mode", "zeros")? {
            "zeros" => Outside::Zeros,
            "border" => Outside::Border,
            "reflection" => Outside::Reflection,
            other => return Err(malformed(format!("GridSample has no padding_mode {other:?}"))),
        },
        corners: c.flag("align_corners", false)?,
        width: match c.text("mode", "linear")? {
            "nearest" => 1,
            "linear" | "bilinear" => 2,
            "cubic" | "bicubic" => 4,
            other => return Err(malformed(format!("GridSample has no mode {other:?}"))),
        },
    };
    let points: usize = grid[1..grid.rank() - 1].iter().product();
    c.reserve(&[shape[0], points, sampler.width.pow(extents.len() as u32)], DType::F64)?;
    let taps = sampler.taps(c, shape[0], points, &c.floats(1)?)?;
    let mut dims = vec![shape[0], shape[1]];
    dims.extend(&grid[1..grid.rank() - 1]);
    one(taps.of(c, &flat(&x)?)?.reshape(dims)?)
}

fn affine_grid(c: &Call<'_>) -> Results {
    let theta = c.x(0)?;
    let wanted = sizes(&c.ints(1)?)?;
    let [n, _, extents @ ..] = wanted.as_slice() else {
        return Err(malformed("the size is not [N, C, spatial…]"));
    };
    let count = extents.len();
    if theta.dims() != [*n, count, count + 1] {
        return Err(Error::shape(format!(
            "{} is not [{n}, {count}, {}]",
            theta.shape(),
            count + 1
        )));
    }
    let corners = c.flag("align_corners", false)?;
    let points: usize = c.reserve(extents, DType::F64)?.numel();
    c.reserve(&[points, count + 1], DType::F64)?;
    let mut places = c.list(points * (count + 1))?;
    for point in 0..points {
        // The last axis is x, the first coordinate.
        let mut rest = point;
        for axis in (0..count).rev() {
            let (at, extent) = ((rest % extents[axis]) as f64, extents[axis] as f64);
            rest /= extents[axis];
            places.push(if corners {
                -1.0 + 2.0 * at / (extent - 1.0)
            } else {
                (2.0 * at + 1.0) / extent - 1.0
            });
        }
        places.push(1.0f64);
    }
    let places = c.make_as(places, &[points, count + 1], theta.dtype())?;
    let grid = places.matmul(&theta.t()?)?;
    let mut dims = vec![*n];
    dims.extend(extents);
    dims.push(count);
    one(grid.reshape(dims)?)
}
