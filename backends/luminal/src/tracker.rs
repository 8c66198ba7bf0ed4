//! Layouts as luminal's `ShapeTracker`s, which support permuted and broadcast axes.

use luminal::shape::ShapeTracker;
use luminal::shape::symbolic::Expression;
use polygrad_core::{Layout, Shape};

/// The most axes that luminal supports.
pub(crate) const MAX_AXES: usize = 6;

/// The tracker of a layout over `memory` elements, or `None` if there is none: for parts of a memory, steps, reversed
/// axes, and too many axes.
pub(crate) fn of(layout: &Layout, memory: usize) -> Option<ShapeTracker> {
    let (dims, strides) = (layout.shape().dims(), layout.strides());
    let counted = 1..=i32::MAX as usize;
    if dims.len() > MAX_AXES || layout.offset() != 0 || !counted.contains(&layout.shape().numel()) {
        return None;
    }
    if layout.is_contiguous() {
        let plain = ShapeTracker::new(&dims.iter().map(|&dim| Expression::from(dim)).collect::<Vec<_>>());
        return (layout.shape().numel() == memory && !dims.is_empty()).then_some(plain);
    }
    let mut real: Vec<usize> = (0..dims.len())
        .filter(|&axis| dims[axis] > 1 && strides[axis] != 0)
        .collect();
    real.sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
    let mut expected = 1;
    for &axis in real.iter().rev() {
        if strides[axis] != expected {
            return None;
        }
        expected *= dims[axis] as isize;
    }
    if expected as usize != memory {
        return None;
    }
    let fake = (0..dims.len()).filter(|axis| !real.contains(axis));
    let order: Vec<usize> = real.iter().copied().chain(fake).collect();
    let mut tracker = ShapeTracker::new(
        &order
            .iter()
            .map(|&axis| Expression::from(dims[axis]))
            .collect::<Vec<_>>(),
    );
    for (place, &axis) in order.iter().enumerate() {
        tracker.indexes[axis] = place;
        tracker.fake[place] = place >= real.len();
    }
    Some(tracker)
}

/// Whether a layout contains no element twice.
pub(crate) fn of_once(layout: &Layout) -> bool {
    let axes = layout.shape().iter().zip(layout.strides());
    layout.offset() == 0 && axes.filter(|&(&dim, _)| dim > 1).all(|(_, &stride)| stride > 0)
}

/// Layouts of one shape with the fewest axes that suit all of them, since luminal computes the place of each element
/// from its number, axis by axis.
pub(crate) fn common<const N: usize>(layouts: [&Layout; N]) -> [Layout; N] {
    let mut axes: Vec<(usize, [isize; N])> = Vec::new();
    for (axis, &dim) in layouts[0].shape().iter().enumerate() {
        if dim == 1 {
            continue;
        }
        let strides = layouts.map(|layout| layout.strides()[axis]);
        match axes.last_mut() {
            Some((outer, before)) if (0..N).all(|i| before[i] == strides[i] * dim as isize) => {
                *outer *= dim;
                *before = strides;
            }
            _ => axes.push((dim, strides)),
        }
    }
    if axes.is_empty() {
        axes.push((1, [1; N]));
    }
    let mut shape = *layouts[0].shape();
    std::array::from_fn(|i| {
        let dims: Vec<usize> = axes.iter().map(|(dim, _)| *dim).collect();
        let strides: Vec<isize> = axes.iter().map(|(_, strides)| strides[i]).collect();
        // At most as many axes as an existing shape, and as many elements, except for a scalar, whose single axis has
        // extent 1.
        shape = Shape::new(&dims).unwrap_or(shape);
        Layout::strided(shape, &strides, layouts[i].offset())
    })
}
