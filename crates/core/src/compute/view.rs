//! Strided tensors in a device's memory.

use std::ops::Range;

use super::DevicePtr;
use crate::{DType, Error, Layout, Result, Shape};

/// A strided tensor in a device's memory.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView {
    /// The address from which the layout counts.
    pub ptr: DevicePtr,
    /// Dtype of the elements.
    pub dtype: DType,
    /// Shape, strides and offset, in elements.
    pub layout: Layout,
}

impl DeviceView {
    /// A view with any layout.
    pub const fn new(ptr: DevicePtr, dtype: DType, layout: Layout) -> Self {
        Self { ptr, dtype, layout }
    }

    /// A contiguous row-major view that starts at `ptr`.
    pub fn contiguous(ptr: DevicePtr, dtype: DType, shape: Shape) -> Self {
        Self::new(ptr, dtype, Layout::contiguous(shape))
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The address of the first element if the elements are contiguous in row-major order, else `None`.
    pub fn start(&self) -> Option<DevicePtr> {
        self.layout
            .is_contiguous()
            .then(|| self.ptr.add(self.layout.offset() * self.dtype.size()))
    }

    /// Range of bytes, relative to `ptr`, that contains its elements; empty if there are none.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when it begins before `ptr` or overflows.
    pub fn span(&self) -> Result<Range<usize>> {
        if self.shape().numel() == 0 {
            return Ok(0..0);
        }
        let (mut low, mut high) = (self.layout.offset() as i128, self.layout.offset() as i128);
        for (&dim, &stride) in self.shape().dims().iter().zip(self.layout.strides()) {
            let reach = (dim as i128 - 1) * stride as i128;
            low += reach.min(0);
            high += reach.max(0);
        }
        let size = self.dtype.size() as i128;
        match (usize::try_from(low * size), usize::try_from((high + 1) * size)) {
            (Ok(start), Ok(end)) => Ok(start..end),
            _ => Err(Error::invalid(format!(
                "a view of shape {} with strides {:?} from element {} leaves the memory",
                self.shape(),
                self.layout.strides(),
                self.layout.offset()
            ))),
        }
    }

    /// Whether no two elements share memory, which is required of a view that is written to. May be false for unusual
    /// strides although it holds.
    pub fn is_injective(&self) -> bool {
        let mut axes: Vec<(usize, usize)> = (self.shape().dims().iter())
            .zip(self.layout.strides())
            .filter(|&(&dim, _)| dim != 1)
            .map(|(&dim, &stride)| (stride.unsigned_abs(), dim))
            .collect();
        if axes.iter().any(|&(_, dim)| dim == 0) {
            return true;
        }
        axes.sort_unstable();
        let mut reach = 0usize;
        axes.into_iter().all(|(stride, dim)| {
            let apart = stride > reach;
            reach = reach.saturating_add(stride.saturating_mul(dim - 1));
            apart
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axes, SliceRange};

    #[test]
    fn spans_cover_what_strides_reach() {
        let view = |layout| DeviceView::new(DevicePtr::NULL, DType::F32, layout);
        let base = Layout::contiguous(Shape::from([2, 3]));
        assert_eq!(view(base).span().unwrap(), 0..24);
        let flipped = base.slice(&[SliceRange::new(1, 1, 1), SliceRange::new(2, 2, -2)]);
        assert_eq!(view(flipped).span().unwrap(), 12..24);
        assert_eq!(
            view(base.slice(&[SliceRange::full(2), SliceRange::new(0, 0, 1)]))
                .span()
                .unwrap(),
            0..0
        );
        let before = Layout::strided(Shape::from([2]), &[-1], 0);
        assert!(view(before).span().is_err());
        let far = Layout::strided(Shape::from([2]), &[isize::MAX], usize::MAX);
        assert!(view(far).span().is_err());
    }

    #[test]
    fn what_may_be_written_has_no_element_twice() {
        let view = |layout| DeviceView::new(DevicePtr::NULL, DType::F32, layout);
        let base = Layout::contiguous(Shape::from([2, 3, 4]));
        assert!(view(base.permute(Axes::new([2, 0, 1]).unwrap())).is_injective());
        let part = [SliceRange::new(1, 2, -1), SliceRange::new(0, 2, 2), SliceRange::full(4)];
        assert!(view(base.slice(&part)).is_injective());
        assert!(!view(Layout::contiguous(Shape::from([3])).expand(Shape::from([2, 3]))).is_injective());
        assert!(!view(Layout::strided(Shape::from([3, 2]), &[1, 1], 0)).is_injective());
        assert!(view(Layout::strided(Shape::SCALAR, &[], 5)).is_injective());
    }
}
