//! Elements and slices by index.

use polygrad_core::{Result, Shape, SliceRange};

use super::movement::slice;
use crate::export::OnnxTensor;
use crate::export::call::Call;

type T = OnnxTensor;

pub(crate) fn gather(x: &T, axis: usize, index: &T) -> Result<T> {
    let call = Call::of("GatherElements", [x, index]).int("axis", axis as i64);
    x.recording.one(call.gives(index.shape, x.dtype))
}

pub(crate) fn scatter(x: &T, axis: usize, index: &T, src: &T, adds: bool) -> Result<T> {
    let ranges: Vec<_> = index.shape.iter().map(|&dim| SliceRange::full(dim)).collect();
    let src = if src.shape == index.shape {
        src.clone()
    } else {
        slice(src, &ranges)?
    };
    let mut call = Call::of("ScatterElements", [x, index, &src]).int("axis", axis as i64);
    if adds {
        call = call.text("reduction", "add");
    }
    x.like(call)
}

pub(crate) fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
    let call = Call::of("Gather", [x, index]).int("axis", axis as i64);
    x.recording
        .one(call.gives(x.shape.with_dim(axis, index.shape[0]), x.dtype))
}

pub(crate) fn embedding(weight: &T, index: &T) -> Result<T> {
    let shape = Shape::new(&[index.shape.dims(), &weight.shape[1..]].concat())?;
    let call = Call::of("Gather", [weight, index]).int("axis", 0);
    weight.recording.one(call.gives(shape, weight.dtype))
}
