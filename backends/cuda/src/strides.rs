//! Shapes whose axes are merged if the strides of all operands allow it.

use polygrad_core::{Layout, Shape};

/// Extents and, for each operand, strides; at least one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axes {
    pub(crate) dims: Vec<usize>,
    pub(crate) strides: Vec<Vec<isize>>,
}

impl Axes {
    /// The axes of a shape, merged into the fewest that visit the same elements in the same order.
    pub(crate) fn new(dims: &[usize], strides: &[&[isize]]) -> Self {
        let mut out = Self {
            dims: Vec::new(),
            strides: vec![Vec::new(); strides.len()],
        };
        for axis in (0..dims.len()).rev() {
            if dims[axis] == 1 {
                continue;
            }
            // The innermost axis so far is the last one.
            let joins = out.dims.last().is_some_and(|&inner| {
                (strides.iter().zip(&out.strides)).all(|(outer, mine)| {
                    mine.last()
                        .is_some_and(|&stride| outer[axis] == stride.wrapping_mul(inner.cast_signed()))
                })
            });
            match out.dims.last_mut() {
                Some(inner) if joins => *inner *= dims[axis],
                _ => {
                    out.dims.push(dims[axis]);
                    for (mine, outer) in out.strides.iter_mut().zip(strides) {
                        mine.push(outer[axis]);
                    }
                }
            }
        }
        if out.dims.is_empty() {
            out.dims.push(1);
            out.strides.iter_mut().for_each(|mine| mine.push(0));
        }
        out.dims.reverse();
        out.strides.iter_mut().for_each(|mine| mine.reverse());
        out
    }

    /// The axes of layouts that share a shape.
    pub(crate) fn of(shape: &Shape, layouts: &[&Layout]) -> Self {
        let strides: Vec<_> = layouts.iter().map(|layout| layout.strides()).collect();
        Self::new(shape, &strides)
    }

    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Whether an operand's elements are contiguous.
    pub(crate) fn is_row(&self, operand: usize) -> bool {
        self.rank() == 1 && (self.strides[operand][0] == 1 || self.dims[0] == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_join_where_all_operands_allow_it() {
        let axes = Axes::new(&[2, 3, 1, 4], &[&[12, 4, 99, 1], &[0, 0, 7, 0]]);
        assert_eq!((axes.dims, axes.strides), (vec![24], vec![vec![1], vec![0]]));
        let axes = Axes::new(&[2, 3, 4], &[&[12, 4, 1], &[4, 0, 1]]);
        assert_eq!(axes.dims, [2, 3, 4]);
        let axes = Axes::new(&[1, 1], &[&[5, 5]]);
        assert_eq!((axes.dims.as_slice(), axes.is_row(0)), (&[1][..], true));
    }
}
