//! Views and other changes of shape.

use polygrad_core::{Axes, Backend, Error, IntoShape, MAX_RANK, Op, Result, Scalar, Shape, SliceRange};
use smallvec::SmallVec;

use super::{IntoAxes, context};
use crate::Tensor;
use crate::graph::record;

/// One range for each axis.
type Ranges = SmallVec<[SliceRange; MAX_RANK]>;

impl<B: Backend> Tensor<B> {
    /// The same elements in row-major order under another shape, without a copy if the layout allows it. One extent may
    /// be -1, and is computed from the others: `x.reshape([-1, 4])`, `x.reshape((batch, -1))`.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshape(&self, shape: impl IntoShape) -> Result<Self> {
        let fail = |e| context(e, "reshape", &[self]);
        let from = self.shape();
        let to = shape.into_shape_of(from.numel()).map_err(fail)?;
        if from == to {
            return Ok(self.clone());
        }
        if from.numel() != to.numel() {
            let error = Error::shape(format!(
                "{} elements do not fit shape {to}, which has {}",
                from.numel(),
                to.numel()
            ));
            return Err(fail(error));
        }
        let value = B::reshape(&self.value, to).map_err(fail)?;
        Ok(record(value, &[self], || Op::Reshape(to)))
    }

    /// Axes in another order: axis `i` of the result is axis `axes[i]` of this tensor. A view.
    ///
    /// # Errors
    /// When `axes` is not a permutation of all axes.
    pub fn permute(&self, axes: impl IntoAxes) -> Result<Self> {
        let shape = self.shape();
        let axes = axes.into_axes(&shape).and_then(|axes| {
            if axes.len() == shape.rank() {
                return Ok(axes);
            }
            Err(Error::invalid(format!(
                "{axes:?} is no permutation of {} axes",
                shape.rank()
            )))
        });
        self.permute_axes(axes.map_err(|e| context(e, "permute", &[self]))?)
    }

    pub(crate) fn permute_axes(&self, axes: Axes) -> Result<Self> {
        let value = B::permute(&self.value, axes).map_err(|e| context(e, "permute", &[self]))?;
        Ok(record(value, &[self], || Op::Permute(axes)))
    }

    /// Two axes exchanged. A view.
    ///
    /// # Errors
    /// When an axis is out of range.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Self> {
        let fail = |e| context(e, "transpose", &[self]);
        let shape = self.shape();
        if shape.rank() == 0 {
            return [a, b].into_axes(&shape).map(|_| self.clone()).map_err(fail);
        }
        let (a, b) = (shape.axis(a).map_err(fail)?, shape.axis(b).map_err(fail)?);
        let order = (0..shape.rank()).map(|axis| match axis {
            _ if axis == a => b,
            _ if axis == b => a,
            _ => axis,
        });
        self.permute_axes(Axes::new(order)?)
    }

    /// The last two axes exchanged. A view.
    ///
    /// # Errors
    /// When the rank is below 2.
    pub fn t(&self) -> Result<Self> {
        self.transpose(-2, -1)
    }

    /// Broadcast to a larger shape. A view.
    ///
    /// # Errors
    /// When an extent differs and is not 1.
    pub fn expand(&self, shape: impl IntoShape) -> Result<Self> {
        let fail = |e| context(e, "expand", &[self]);
        let (from, to) = (self.shape(), shape.into_shape().map_err(fail)?);
        if from == to {
            return Ok(self.clone());
        }
        if !from.broadcasts_to(&to) {
            return Err(fail(
                Error::shape(format!("{from} does not expand to {to}"))
                    .with_hint("extents must be equal, or 1, aligned at the last axis"),
            ));
        }
        let value = B::expand(&self.value, to).map_err(fail)?;
        Ok(record(value, &[self], || Op::Expand(to)))
    }

    /// Removes an axis of extent 1.
    ///
    /// # Errors
    /// When the axis is out of range or its extent is not 1.
    pub fn squeeze(&self, axis: isize) -> Result<Self> {
        let fail = |e| context(e, "squeeze", &[self]);
        let shape = self.shape();
        let axis = shape.axis(axis).map_err(fail)?;
        if shape[axis] != 1 {
            return Err(fail(Error::shape(format!(
                "axis {axis} has extent {}, not 1",
                shape[axis]
            ))));
        }
        self.reshape(shape.reduced(Axes::one(axis), false))
    }

    /// Removes all axes of extent 1.
    ///
    /// # Errors
    /// When the device fails.
    pub fn squeeze_all(&self) -> Result<Self> {
        let shape = self.shape();
        self.reshape(shape.iter().copied().filter(|&dim| dim != 1).collect::<Vec<_>>())
    }

    /// Inserts an axis of extent 1 before `axis`; −1 appends it.
    ///
    /// # Errors
    /// When the axis is out of range, or the rank gets too large.
    pub fn unsqueeze(&self, axis: isize) -> Result<Self> {
        let shape = self.shape();
        let rank = shape.rank() as isize;
        let at = if axis < 0 { axis + rank + 1 } else { axis };
        if !(0..=rank).contains(&at) {
            let error = Error::out_of_range(format!("axis {axis} is outside {}..={rank}", -rank - 1));
            return Err(context(error, "unsqueeze", &[self]));
        }
        let mut dims = SmallVec::<[usize; MAX_RANK]>::from_slice(&shape);
        dims.insert(at as usize, 1);
        self.reshape(dims.as_slice())
    }

    /// Merges the axes from `start` to `end`, both included.
    ///
    /// # Errors
    /// When an axis is out of range, or `start` is after `end`.
    pub fn flatten(&self, start: isize, end: isize) -> Result<Self> {
        let fail = |e| context(e, "flatten", &[self]);
        let shape = self.shape();
        if shape.rank() == 0 {
            return self.reshape([1]);
        }
        let (start, end) = (shape.axis(start).map_err(fail)?, shape.axis(end).map_err(fail)?);
        if start > end {
            return Err(fail(Error::invalid(format!("axis {start} lies behind axis {end}"))));
        }
        let merged = shape[start..=end].iter().product();
        self.reshape([&shape[..start], &[merged], &shape[end + 1..]].concat())
    }

    /// A slice: one range for each axis. A view.
    ///
    /// # Errors
    /// When there is not one range for each axis, or a range exceeds its axis.
    pub fn slice(&self, ranges: &[SliceRange]) -> Result<Self> {
        let fail = |e| context(e, "slice", &[self]);
        let shape = self.shape();
        if ranges.len() != shape.rank() {
            return Err(fail(Error::shape(format!(
                "{} ranges for {} axes",
                ranges.len(),
                shape.rank()
            ))));
        }
        for (axis, (range, &dim)) in ranges.iter().zip(shape.dims()).enumerate() {
            if !range.fits(dim) {
                return Err(fail(Error::out_of_range(format!(
                    "{} elements from {} by {} leave axis {axis} of extent {dim}",
                    range.len, range.start, range.step
                ))));
            }
        }
        if ranges.iter().zip(shape.dims()).all(|(range, &dim)| range.is_full(dim)) {
            return Ok(self.clone());
        }
        let value = B::slice(&self.value, ranges).map_err(fail)?;
        Ok(record(value, &[self], || Op::Slice(ranges.into())))
    }

    /// `len` elements of an axis from `start`. A view.
    ///
    /// # Errors
    /// When the range exceeds the axis.
    pub fn narrow(&self, axis: isize, start: usize, len: usize) -> Result<Self> {
        self.slice_axis(axis, SliceRange::new(start, len, 1), "narrow")
    }

    /// A range of one axis, and all of the others.
    pub(crate) fn slice_axis(&self, axis: isize, range: SliceRange, op: &'static str) -> Result<Self> {
        let shape = self.shape();
        let axis = shape.axis(axis).map_err(|e| context(e, op, &[self]))?;
        let mut ranges: Ranges = shape.iter().map(|&dim| SliceRange::full(dim)).collect();
        ranges[axis] = range;
        self.slice(&ranges)
    }

    /// The slice at one position of an axis, which is removed; negative positions count from the back.
    ///
    /// # Errors
    /// When axis or position is out of range.
    pub fn select(&self, axis: isize, index: isize) -> Result<Self> {
        let fail = |e| context(e, "select", &[self]);
        let shape = self.shape();
        let axis = shape.axis(axis).map_err(fail)?;
        let dim = shape[axis] as isize;
        let at = if index < 0 { index + dim } else { index };
        if !(0..dim).contains(&at) {
            return Err(fail(Error::out_of_range(format!(
                "index {index} is outside axis {axis} of extent {dim}"
            ))));
        }
        self.narrow(axis as isize, at as usize, 1)?.squeeze(axis as isize)
    }

    /// Axes reversed. A view.
    ///
    /// # Errors
    /// When an axis is out of range or given twice.
    pub fn flip(&self, axes: impl IntoAxes) -> Result<Self> {
        let shape = self.shape();
        let axes = axes.into_axes(&shape).map_err(|e| context(e, "flip", &[self]))?;
        let ranges: Ranges = shape
            .iter()
            .enumerate()
            .map(|(axis, &dim)| {
                if axes.contains(axis) {
                    SliceRange::new(dim.saturating_sub(1), dim, -1)
                } else {
                    SliceRange::full(dim)
                }
            })
            .collect();
        self.slice(&ranges)
    }

    /// Adds a border of `value`: for each axis the number of elements before and after.
    ///
    /// # Errors
    /// When there is not one pair for each axis, or the shape gets too large.
    pub fn pad(&self, padding: &[(usize, usize)], value: impl Into<Scalar>) -> Result<Self> {
        let fail = |e| context(e, "pad", &[self]);
        let shape = self.shape();
        if padding.len() != shape.rank() {
            return Err(fail(Error::shape(format!(
                "{} borders for {} axes",
                padding.len(),
                shape.rank()
            ))));
        }
        let dims = shape
            .iter()
            .zip(padding)
            .map(|(&dim, &(before, after))| dim.saturating_add(before).saturating_add(after));
        Shape::new(&dims.collect::<Vec<_>>()).map_err(fail)?;
        let value = value.into();
        let padded = B::pad(&self.value, padding, value).map_err(fail)?;
        let op = || Op::Pad {
            padding: padding.into(),
            value,
        };
        Ok(record(padded, &[self], op))
    }

    /// Moves the elements of axes by `shifts`; elements that leave one end come back at the other.
    ///
    /// # Errors
    /// When an axis is out of range, or there is not one shift for each axis.
    pub fn roll(&self, shifts: &[isize], axes: &[isize]) -> Result<Self> {
        if shifts.len() != axes.len() {
            let error = Error::invalid(format!("{} shifts for {} axes", shifts.len(), axes.len()));
            return Err(context(error, "roll", &[self]));
        }
        let mut out = self.clone();
        for (&shift, &axis) in shifts.iter().zip(axes) {
            let dim = self.shape()[self.shape().axis(axis).map_err(|e| context(e, "roll", &[self]))?];
            if dim == 0 {
                continue;
            }
            let split = dim - shift.rem_euclid(dim as isize) as usize;
            if split != dim {
                let (head, tail) = (out.narrow(axis, 0, split)?, out.narrow(axis, split, dim - split)?);
                out = Self::cat(&[&tail, &head], axis)?;
            }
        }
        Ok(out)
    }

    /// Repeats the whole tensor along each axis. More counts than axes add leading axes.
    ///
    /// # Errors
    /// When there are fewer counts than axes, or the shape gets too large.
    pub fn repeat(&self, counts: &[usize]) -> Result<Self> {
        let fail = |e| context(e, "repeat", &[self]);
        let shape = self.shape();
        let Some(extra) = counts.len().checked_sub(shape.rank()) else {
            return Err(fail(Error::shape(format!(
                "{} counts for {} axes",
                counts.len(),
                shape.rank()
            ))));
        };
        let dims = [vec![1; extra], shape.to_vec()].concat();
        let mut out = self.reshape(dims.clone())?;
        for (axis, (&count, &dim)) in counts.iter().zip(&dims).enumerate() {
            if count == 1 {
                continue;
            }
            let current = out.shape();
            let mut apart = current.to_vec();
            apart[axis] = dim.saturating_mul(count);
            Shape::new(&apart).map_err(fail)?;
            // [outer, 1, rest] expanded to [outer, count, rest], so that the rank never exceeds three.
            let outer = current[..axis].iter().product();
            let rest = current[axis..].iter().product();
            out = out
                .reshape([outer, 1, rest])?
                .expand([outer, count, rest])?
                .reshape(apart)?;
        }
        Ok(out)
    }

    /// [`Tensor::repeat`], but if there are fewer counts than axes, the leading axes are not repeated.
    ///
    /// # Errors
    /// When the shape gets too large.
    pub fn tile(&self, counts: &[usize]) -> Result<Self> {
        let missing = self.rank().saturating_sub(counts.len());
        self.repeat(&[vec![1; missing], counts.to_vec()].concat())
    }
}
