//! Borders made of the tensor's own elements.

use std::ops::Range;

use polygrad_core::{Backend, BorderMode, Composite, Error, Result, Scalar, Shape, SliceRange};

use super::{collected, context};
use crate::Tensor;
use crate::graph::needs_graph;

/// The values of a border, by PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// One value.
    Constant(Scalar),
    /// The elements next to the edge, mirrored at it; the edge itself is not repeated.
    Reflect,
    /// The element at the edge.
    Replicate,
    /// The elements from the other end.
    Circular,
}

impl PadMode {
    /// The element of an axis that appears at `position`, which may be outside the axis. `kept` is the part of the axis
    /// that negative borders do not cut off.
    fn source(self, position: isize, dim: isize, kept: &Range<isize>) -> isize {
        match self {
            Self::Reflect if position < 0 => -position,
            Self::Reflect if position >= dim => 2 * (dim - 1) - position,
            Self::Circular => kept.start + (position - kept.start).rem_euclid(kept.end - kept.start),
            _ => position.clamp(0, dim - 1),
        }
    }

    /// The widest border for which an axis of extent `dim` has enough elements.
    fn limit(self, dim: usize) -> usize {
        match self {
            Self::Reflect => dim.saturating_sub(1),
            Self::Circular => dim,
            _ if dim == 0 => 0,
            _ => usize::MAX,
        }
    }
}

impl<B: Backend> Tensor<B> {
    /// Adds a border in one of several modes: for each axis the number of elements before and after. A negative number
    /// cuts off that many elements instead. Unlike PyTorch's, the list begins with the first axis and includes all
    /// axes.
    ///
    /// # Errors
    /// When there is not one pair for each axis, more is cut off than there is, the shape gets too large, or an axis
    /// has too few elements for the border (`Reflect` needs one more than the border's width, `Circular` as many as its
    /// width, `Replicate` one).
    pub fn pad_with(&self, padding: &[(isize, isize)], mode: PadMode) -> Result<Self> {
        let fail = |e| context(e, "pad", &[self]);
        let shape = self.shape();
        if padding.len() != shape.rank() {
            let error = Error::shape(format!("{} borders for {} axes", padding.len(), shape.rank()));
            return Err(fail(error));
        }
        let mut dims = shape.to_vec();
        for (axis, &(before, after)) in padding.iter().enumerate() {
            let length = (shape[axis] as isize)
                .checked_add(before)
                .and_then(|n| n.checked_add(after));
            let cut = before.min(0).unsigned_abs().saturating_add(after.min(0).unsigned_abs());
            dims[axis] = match length {
                Some(length) if length >= 0 && cut <= shape[axis] => length as usize,
                _ => {
                    return Err(fail(Error::shape(format!(
                        "the border ({before}, {after}) leaves nothing valid of axis {axis} of extent {}",
                        shape[axis]
                    ))));
                }
            };
        }
        Shape::new(&dims).map_err(fail)?;
        let kept = |axis: usize| {
            let (before, after) = padding[axis];
            -before.min(0)..shape[axis] as isize + after.min(0)
        };
        if let PadMode::Constant(value) = mode {
            let ranges = (0..shape.rank()).map(kept);
            let ranges = ranges.map(|kept| SliceRange::new(kept.start as usize, kept.len(), 1));
            let border = padding.iter().map(|&(a, b)| (a.max(0) as usize, b.max(0) as usize));
            return self
                .slice(&ranges.collect::<Vec<_>>())?
                .pad(&border.collect::<Vec<_>>(), value);
        }
        for (axis, &(before, after)) in padding.iter().enumerate() {
            let (extent, widest) = (shape[axis], before.max(after).max(0) as usize);
            let within = if mode == PadMode::Circular {
                kept(axis).len()
            } else {
                extent
            };
            if widest > mode.limit(within) {
                return Err(fail(Error::shape(format!(
                    "axis {axis} of extent {extent} has too few elements for a {mode:?} border of {widest}"
                ))));
            }
        }
        if let Some(y) = self.bordered(padding, mode).map_err(fail)? {
            return Ok(y);
        }
        // PyTorch's autocast does not compute reflection over three axes in f32.
        let wide = match mode {
            PadMode::Reflect => padding.iter().filter(|border| **border != (0, 0)).count() < 3,
            _ => mode == PadMode::Replicate,
        };
        let raised = if wide { self.raised()? } else { None };
        let mut out = raised.unwrap_or_else(|| self.clone());
        for (axis, &(before, after)) in padding.iter().enumerate() {
            let (dim, kept) = (shape[axis] as isize, kept(axis));
            if (before, after) != (0, 0) {
                let index = collected(dims[axis], |i| mode.source(i as isize - before, dim, &kept) as i64);
                let index = index.map_err(fail)?;
                let index = Self::from_vec(index, [dims[axis]], &self.device())?;
                out = out.index_select(axis as isize, &index).map_err(fail)?;
            }
        }
        Ok(out)
    }

    /// The border as one op of the backend. `None` if the backend has none, something is cut off, or a gradient is
    /// needed.
    fn bordered(&self, padding: &[(isize, isize)], mode: PadMode) -> Result<Option<Self>> {
        let mode = match mode {
            PadMode::Constant(_) => return Ok(None),
            PadMode::Reflect => BorderMode::Reflect,
            PadMode::Replicate => BorderMode::Replicate,
            PadMode::Circular => BorderMode::Circular,
        };
        let widths = padding.iter().map(|&(before, after)| {
            let width = |border: isize| usize::try_from(border).ok();
            Some((width(before)?, width(after)?))
        });
        match widths.collect::<Option<Vec<_>>>() {
            Some(widths) if !needs_graph(&[self]) => {
                let whole = Composite::Border { widths: &widths, mode };
                Ok(B::composite(&whole, &self.value)?.map(Self::from_inner))
            }
            _ => Ok(None),
        }
    }
}
