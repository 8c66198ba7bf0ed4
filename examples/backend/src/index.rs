//! Ops with an index tensor, whose values are the one thing that Polygrad does not check before it calls.

use polygrad::backend::{Element, Error, Layout, Result, SliceRange, collect, room};

use crate::movement::slice;
use crate::support::typed;
use crate::tensor::ToyTensor;
use crate::total::Total;

pub(crate) fn gather(x: &ToyTensor, axis: usize, index: &ToyTensor) -> Result<ToyTensor> {
    let places = places(x, axis, index).map_err(|e| e.with_op("gather"))?;
    typed!("gather", x.dtype(), [f32 f64 i64 bool], T => {
        let values = x.values::<T>()?;
        Ok(ToyTensor::new(*index.shape(), collect(places.iter().map(|&place| values[place]))?))
    })
}

pub(crate) fn scatter(x: &ToyTensor, axis: usize, index: &ToyTensor, src: &ToyTensor) -> Result<ToyTensor> {
    let places = places(x, axis, index).map_err(|e| e.with_op("scatter"))?;
    let src = like_index(src, index);
    typed!("scatter", x.dtype(), [f32 f64 i64 bool], T => {
        let mut out = x.values::<T>()?.into_owned();
        places.iter().zip(src.values::<T>()?.iter()).for_each(|(&place, &value)| out[place] = value);
        Ok(ToyTensor::new(*x.shape(), out))
    })
}

pub(crate) fn scatter_add(x: &ToyTensor, axis: usize, index: &ToyTensor, src: &ToyTensor) -> Result<ToyTensor> {
    let places = places(x, axis, index).map_err(|e| e.with_op("scatter_add"))?;
    let src = like_index(src, index);
    typed!("scatter_add", x.dtype(), [f32 f64 i64], T => {
        let mut totals = collect(x.values::<T>()?.iter().map(|&value| Total::of([value])))?;
        places.iter().zip(src.values::<T>()?.iter()).for_each(|(&place, &value)| totals[place].add(value));
        Ok(ToyTensor::new(*x.shape(), collect(totals.into_iter().map(Total::value::<T>))?))
    })
}

pub(crate) fn index_select(x: &ToyTensor, axis: usize, index: &ToyTensor) -> Result<ToyTensor> {
    fn of<T: Element>(x: &ToyTensor, axis: usize, chosen: &[usize]) -> Result<ToyTensor> {
        let shape = x.shape().with_dim(axis, chosen.len());
        let (outer, dim) = (x.shape()[..axis].iter().product::<usize>(), x.shape()[axis]);
        let inner = x.shape()[axis + 1..].iter().product::<usize>();
        let (values, mut out) = (x.values::<T>()?, room(shape.numel())?);
        for slice in 0..outer {
            for &i in chosen {
                out.extend_from_slice(&values[(slice * dim + i) * inner..][..inner]);
            }
        }
        Ok(ToyTensor::new(shape, out))
    }
    let chosen = positions(x, axis, index).map_err(|e| e.with_op("index_select"))?;
    typed!("index_select", x.dtype(), [f32 f64 i64 bool], T => of::<T>(x, axis, &chosen))
}

/// The positions along an axis that an index tensor contains, each checked.
fn positions(x: &ToyTensor, axis: usize, index: &ToyTensor) -> Result<Vec<usize>> {
    let dim = x.shape()[axis];
    let indices = index.values::<i64>()?;
    let mut out = room(indices.len())?;
    for &i in indices.iter() {
        match usize::try_from(i) {
            Ok(i) if i < dim => out.push(i),
            _ => {
                return Err(Error::out_of_range(format!(
                    "index {i} is outside 0..{dim} of axis {axis}"
                )));
            }
        }
    }
    Ok(out)
}

/// For each element of an index tensor, the offset that it refers to in the row-major values of `x`.
fn places(x: &ToyTensor, axis: usize, index: &ToyTensor) -> Result<Vec<usize>> {
    let mut places = positions(x, axis, index)?;
    let strides = x.shape().contiguous_strides();
    let along = strides[axis] as usize;
    // The offset with position 0 on the axis.
    let mut others = strides;
    others[axis] = 0;
    let mut at = 0;
    Layout::strided(*index.shape(), &others, 0).rows(|start, count, step| {
        for (i, place) in places[at..at + count].iter_mut().enumerate() {
            *place = *place * along + start + i * step as usize;
        }
        at += count;
    });
    Ok(places)
}

/// The part of `src` that corresponds to the elements of `index`.
fn like_index(src: &ToyTensor, index: &ToyTensor) -> ToyTensor {
    let ranges: Vec<SliceRange> = index.shape().iter().map(|&dim| SliceRange::full(dim)).collect();
    slice(src, &ranges)
}
