//! Rotary positions.

use super::wide::{is_narrow, widen};
use crate::{Backend, Result, SliceRange};

/// See [`Backend::rotary`].
pub(super) fn rotary<B: Backend>(x: &B::Tensor, cos: &B::Tensor, sin: &B::Tensor) -> Result<B::Tensor> {
    if is_narrow::<B>(x) {
        let wide = B::rotary(&widen::<B>(x)?, &widen::<B>(cos)?, &widen::<B>(sin)?)?;
        return B::cast(&wide, B::dtype(x));
    }
    let shape = B::shape(x);
    let axis = shape.rank() - 1;
    let half = shape[axis] / 2;
    let part = |start: usize| {
        let mut ranges: Vec<SliceRange> = shape.iter().map(|&extent| SliceRange::full(extent)).collect();
        ranges[axis] = SliceRange::new(start, half, 1);
        B::slice(x, &ranges)
    };
    let (a, b) = (part(0)?, part(half)?);
    let first = B::sub(&B::mul(&a, cos)?, &B::mul(&b, sin)?)?;
    let second = B::add(&B::mul(&b, cos)?, &B::mul(&a, sin)?)?;
    B::concat(&[&first, &second], axis)
}
