//! Where the elements of a tensor lie in a buffer.

use std::borrow::Cow;

use crate::{Axes, MAX_RANK, Result, Shape, SliceRange, room};

/// A shape with strides and an offset, all in elements. Strides may be 0 (expanded) or negative (reversed).
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    shape: Shape,
    strides: [isize; MAX_RANK],
    offset: usize,
}

impl Layout {
    /// Row-major from offset 0.
    #[inline]
    pub fn contiguous(shape: Shape) -> Self {
        Self {
            strides: shape.contiguous_strides(),
            shape,
            offset: 0,
        }
    }

    /// Shape, strides (one for each axis) and offset as given.
    pub fn strided(shape: Shape, strides: &[isize], offset: usize) -> Self {
        let mut all = [0; MAX_RANK];
        all[..shape.rank()].copy_from_slice(&strides[..shape.rank()]);
        Self {
            shape,
            strides: all,
            offset,
        }
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// One stride for each axis, in elements.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.rank()]
    }

    /// Index of the first element in the buffer.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the elements lie row-major without gaps (from any offset). Empty tensors are contiguous.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1isize;
        for axis in (0..self.shape.rank()).rev() {
            let dim = self.shape[axis];
            if dim == 0 {
                return true;
            }
            if dim != 1 {
                if self.strides[axis] != expected {
                    return false;
                }
                expected *= dim as isize;
            }
        }
        true
    }

    /// Walks over the elements in row-major order, a row of the last axis at a time. `row` gets its start, its number
    /// of elements and their stride.
    pub fn rows(&self, mut row: impl FnMut(usize, usize, isize)) {
        fn walk(dims: &[usize], strides: &[isize], at: isize, row: &mut dyn FnMut(usize, usize, isize)) {
            match (dims, strides) {
                ([dim, dims @ ..], [stride, strides @ ..]) if !dims.is_empty() => {
                    for i in 0..*dim as isize {
                        walk(dims, strides, at + i * stride, row);
                    }
                }
                ([dim], [stride]) => row(at as usize, *dim, *stride),
                _ => row(at as usize, 1, 1),
            }
        }
        if self.shape.numel() > 0 {
            walk(self.shape.dims(), self.strides(), self.offset as isize, &mut row);
        }
    }

    /// The elements in row-major order: borrowed from the buffer if the layout is contiguous, else a copy.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn values<'a, T: Copy>(&self, buffer: &'a [T]) -> Result<Cow<'a, [T]>> {
        let count = self.shape.numel();
        if self.is_contiguous() {
            return Ok(Cow::Borrowed(if count == 0 {
                &[]
            } else {
                &buffer[self.offset..self.offset + count]
            }));
        }
        let mut out = room(count)?;
        self.rows(|start, count, step| match step {
            0 => out.resize(out.len() + count, buffer[start]),
            1 => out.extend_from_slice(&buffer[start..start + count]),
            _ => out.extend((0..count).map(|i| buffer[start.wrapping_add_signed(i as isize * step)])),
        });
        Ok(Cow::Owned(out))
    }

    /// Axes reordered: output axis `i` is input axis `axes[i]`.
    #[must_use]
    pub fn permute(&self, axes: Axes) -> Self {
        let mut out = *self;
        for (to, from) in axes.iter().enumerate() {
            out.shape.dims_mut()[to] = self.shape[from];
            out.strides[to] = self.strides[from];
        }
        out
    }

    /// Broadcast to a larger shape by zero strides. The shape must broadcast to `target`.
    #[must_use]
    pub fn expand(&self, target: Shape) -> Self {
        let mut strides = [0; MAX_RANK];
        let skip = target.rank() - self.shape.rank();
        for axis in skip..target.rank() {
            if self.shape[axis - skip] == target[axis] {
                strides[axis] = self.strides[axis - skip];
            }
        }
        Self {
            shape: target,
            strides,
            offset: self.offset,
        }
    }

    /// Slices every axis by a range within its extent.
    #[must_use]
    pub fn slice(&self, ranges: &[SliceRange]) -> Self {
        let mut out = *self;
        for (axis, range) in ranges.iter().enumerate() {
            out.cut(axis, *range);
        }
        out
    }

    /// Slices one axis by a range within its extent.
    #[must_use]
    pub fn slice_axis(&self, axis: usize, range: SliceRange) -> Self {
        let mut out = *self;
        out.cut(axis, range);
        out
    }

    fn cut(&mut self, axis: usize, range: SliceRange) {
        let stride = self.strides[axis];
        self.shape.dims_mut()[axis] = range.len;
        self.strides[axis] = stride * range.step;
        if range.len > 0 {
            self.offset = self.offset.wrapping_add_signed(range.start as isize * stride);
        }
    }

    /// The same elements in the same order under another shape. `None` if strides cannot express it, so that a copy is
    /// needed.
    pub fn reshape(&self, target: Shape) -> Option<Self> {
        debug_assert_eq!(self.shape.numel(), target.numel());
        if self.is_contiguous() {
            let mut out = Self::contiguous(target);
            out.offset = self.offset;
            return Some(out);
        }
        // Walk both shapes from the back, matching groups of axes with the same number of elements; within a group
        // of input axes each stride must continue the one inside it.
        let mut strides = [0isize; MAX_RANK];
        let mut to = target.rank();
        let mut from = self.shape.rank();
        while from > 0 {
            from -= 1;
            if self.shape[from] == 1 {
                continue;
            }
            let mut elements = self.shape[from];
            let inner = self.strides[from];
            let mut expected = inner * elements as isize;
            let mut covered = 1;
            let mut step = inner;
            loop {
                while covered < elements {
                    if to == 0 {
                        return None;
                    }
                    to -= 1;
                    strides[to] = step;
                    covered *= target[to];
                    step *= target[to] as isize;
                }
                if covered == elements {
                    break;
                }
                loop {
                    if from == 0 {
                        return None;
                    }
                    from -= 1;
                    if self.shape[from] != 1 {
                        break;
                    }
                }
                if self.strides[from] != expected {
                    return None;
                }
                elements *= self.shape[from];
                expected *= self.shape[from] as isize;
            }
        }
        Some(Self {
            shape: target,
            strides,
            offset: self.offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(layout: &Layout) -> Vec<isize> {
        let mut out = vec![layout.offset() as isize];
        for (&dim, &stride) in layout.shape().iter().zip(layout.strides()) {
            out = out
                .iter()
                .flat_map(|&base| (0..dim as isize).map(move |i| base + i * stride))
                .collect();
        }
        out
    }

    #[test]
    fn views_address_the_right_elements() {
        let base = Layout::contiguous(Shape::from([2, 3]));
        let transposed = base.permute(Axes::new([1, 0]).unwrap());
        assert_eq!(indices(&transposed), [0, 3, 1, 4, 2, 5]);
        assert!(!transposed.is_contiguous());
        let flipped = base.slice(&[SliceRange::full(2), SliceRange::new(2, 3, -1)]);
        assert_eq!(indices(&flipped), [2, 1, 0, 5, 4, 3]);
        assert_eq!(
            indices(&base.slice_axis(1, SliceRange::new(2, 3, -1))),
            indices(&flipped)
        );
        let column = base.slice(&[SliceRange::full(2), SliceRange::new(1, 1, 1)]);
        assert_eq!(
            indices(&column.expand(Shape::from([2, 2, 4]))),
            [1, 1, 1, 1, 4, 4, 4, 4, 1, 1, 1, 1, 4, 4, 4, 4]
        );
    }

    #[test]
    fn reshapes_without_a_copy_where_strides_allow() {
        let base = Layout::contiguous(Shape::from([2, 3, 4]));
        let swapped = base.permute(Axes::new([1, 0, 2]).unwrap());
        let split = swapped.reshape(Shape::from([3, 2, 2, 2])).unwrap();
        assert_eq!(indices(&split), indices(&swapped));
        assert!(swapped.reshape(Shape::from([6, 4])).is_none());
        let with_ones = swapped.reshape(Shape::from([3, 1, 2, 1, 4, 1])).unwrap();
        assert_eq!(indices(&with_ones), indices(&swapped));
        let inner = base.slice(&[SliceRange::full(2), SliceRange::full(3), SliceRange::new(0, 2, 2)]);
        let merged = inner.reshape(Shape::from([6, 2])).unwrap();
        assert_eq!(indices(&merged), indices(&inner));
        let all = inner.reshape(Shape::from([12])).unwrap();
        assert_eq!(indices(&all), indices(&inner));
    }

    #[test]
    fn every_reshape_keeps_order_or_declines() {
        let shapes: [&[usize]; 6] = [&[12], &[3, 4], &[2, 6], &[2, 2, 3], &[1, 12], &[4, 1, 3]];
        let base = Layout::contiguous(Shape::from([4, 6]));
        let views = [
            base.slice(&[SliceRange::new(0, 2, 2), SliceRange::full(6)]),
            base.slice(&[SliceRange::full(4), SliceRange::new(5, 3, -2)]),
            base.slice(&[SliceRange::new(1, 2, 1), SliceRange::full(6)])
                .permute(Axes::new([1, 0]).unwrap()),
            base.slice(&[SliceRange::new(0, 1, 1), SliceRange::full(6)])
                .expand(Shape::from([2, 6])),
        ];
        for view in views {
            for dims in shapes {
                if let Some(out) = view.reshape(Shape::new(dims).unwrap()) {
                    assert_eq!(indices(&out), indices(&view), "{view:?} to {dims:?}");
                }
            }
        }
    }
}
