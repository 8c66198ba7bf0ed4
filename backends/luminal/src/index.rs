//! Indexing ops, as custom nodes, since luminal's indices are f32 and unchecked. A position outside its axis is found
//! when the node runs.

use polygrad_core::{DType, Element, Error, Layout, Result, SliceRange, collect, room};

use crate::kernel;
use crate::support::{refused, typed};
use crate::tensor::LuminalTensor;
use crate::values::{Item, View};

pub(crate) fn gather(x: &LuminalTensor, axis: usize, index: &LuminalTensor) -> Result<LuminalTensor> {
    typed!("gather", x.dtype(), T => {
        kernel::record("gather", [x, index], *index.shape(), T::DTYPE, move |[x, index]| {
            let places = places(&x, axis, &index)?;
            let values = x.values::<T>()?;
            Ok(T::tensor(collect(places.iter().map(|&place| values[place]))?))
        })
    })
}

pub(crate) fn scatter(
    x: &LuminalTensor,
    axis: usize,
    index: &LuminalTensor,
    src: &LuminalTensor,
) -> Result<LuminalTensor> {
    let src = like_index(src, index);
    typed!("scatter", x.dtype(), T => {
        kernel::record("scatter", [x, index, &src], *x.shape(), T::DTYPE, move |[x, index, src]| {
            let places = places(&x, axis, &index)?;
            let mut out = x.values::<T>()?.into_owned();
            places.iter().zip(src.values::<T>()?.iter()).for_each(|(&place, &value)| out[place] = value);
            Ok(T::tensor(out))
        })
    })
}

/// How terms are added up: in a wider type, with one rounding.
struct Rule<T, S> {
    wide: fn(T) -> S,
    add: fn(S, S) -> S,
    narrow: fn(S) -> T,
}

pub(crate) fn scatter_add(
    x: &LuminalTensor,
    axis: usize,
    index: &LuminalTensor,
    src: &LuminalTensor,
) -> Result<LuminalTensor> {
    fn of<T: Item, S: Copy + 'static>(
        axis: usize,
        inputs: [&LuminalTensor; 3],
        rule: Rule<T, S>,
    ) -> Result<LuminalTensor> {
        let shape = *inputs[0].shape();
        kernel::record("scatter_add", inputs, shape, T::DTYPE, move |[x, index, src]| {
            let places = places(&x, axis, &index)?;
            let mut totals = collect(x.values::<T>()?.iter().map(|&value| (rule.wide)(value)))?;
            for (&place, &value) in places.iter().zip(src.values::<T>()?.iter()) {
                totals[place] = (rule.add)(totals[place], (rule.wide)(value));
            }
            Ok(T::tensor(collect(totals.into_iter().map(rule.narrow))?))
        })
    }
    let src = like_index(src, index);
    let inputs = [x, index, &src];
    match x.dtype() {
        DType::F32 => {
            let rule = Rule {
                wide: f64::from,
                add: |a, b| a + b,
                narrow: |x| x as f32,
            };
            of::<f32, f64>(axis, inputs, rule)
        }
        DType::I64 => {
            let rule = Rule {
                wide: |x| x,
                add: i64::wrapping_add,
                narrow: |x| x,
            };
            of::<i64, i64>(axis, inputs, rule)
        }
        other => Err(refused("scatter_add", other)),
    }
}

pub(crate) fn index_select(x: &LuminalTensor, axis: usize, index: &LuminalTensor) -> Result<LuminalTensor> {
    let shape = polygrad_core::Shape::new(&x.shape().with_dim(axis, index.shape().numel()))?;
    typed!("index_select", x.dtype(), T => {
        kernel::record("index_select", [x, index], shape, T::DTYPE, move |[x, index]| {
            let chosen = positions(&x, axis, &index)?;
            let (outer, dim) = (x.shape()[..axis].iter().product::<usize>(), x.shape()[axis]);
            let inner = x.shape()[axis + 1..].iter().product::<usize>();
            let (values, mut out) = (x.values::<T>()?, room(shape.numel())?);
            for slice in 0..outer {
                for &i in &chosen {
                    out.extend_from_slice(&values[(slice * dim + i) * inner..][..inner]);
                }
            }
            Ok(T::tensor(out))
        })
    })
}

/// The positions along an axis that an index tensor contains, each checked.
fn positions(x: &View<'_>, axis: usize, index: &View<'_>) -> Result<Vec<usize>> {
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

/// For each element of an index tensor, the index of the selected element in the row-major values of `x`.
fn places(x: &View<'_>, axis: usize, index: &View<'_>) -> Result<Vec<usize>> {
    let mut places = positions(x, axis, index)?;
    let strides = x.shape().contiguous_strides();
    let along = strides[axis] as usize;
    // Offsets of the elements at position 0 on the axis.
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
fn like_index(src: &LuminalTensor, index: &LuminalTensor) -> LuminalTensor {
    let ranges: Vec<SliceRange> = index.shape().iter().map(|&dim| SliceRange::full(dim)).collect();
    src.view(src.layout().slice(&ranges))
}
