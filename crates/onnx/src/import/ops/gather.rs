//! Selection of elements by index.

use polygrad_core::{DType, Error, Result, Shape};
use polygrad_tensor::Tensor;

use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, one};

rows! {
    Row::new("Gather", 1, gather).moves(0..1);
    Row::new("GatherElements", 11, |c| {
        let x = c.x(0)?;
        let axis = c.axis("axis", 0, x.rank())?;
        let index = from_front(&c.x(1)?, x.shape()[axis])?;
        c.reserve(&index.shape(), x.dtype())?;
        one(x.gather(axis as isize, &index)?)
    }).moves(0..1);
    Row::new("GatherND", 11, gather_nd).moves(0..1);
    Row::new("ReverseSequence", 10, reverse_sequence).like(0);
    Row::new("Compress", 9, compress).moves(0..1);
}

/// Indices counted from the front, as i64.
pub(super) fn from_front(index: &Tensor, extent: usize) -> Result<Tensor> {
    let index = index.to_dtype(DType::I64)?;
    Tensor::where_(&index.lt(0i64)?, &(&index + extent as i64)?, &index)
}

fn gather(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let axis = c.axis("axis", 0, x.rank())?;
    let index = c.x(1)?;
    one(take(c, &x, axis, &index)?)
}

/// Whole slices along an axis, for an index of any shape.
pub(super) fn take(c: &Call<'_>, x: &Tensor, axis: usize, index: &Tensor) -> Result<Tensor> {
    let shape = x.shape();
    let mut dims = List::from_slice(&shape[..axis]);
    dims.extend_from_slice(&index.shape());
    dims.extend_from_slice(&shape[axis + 1..]);
    let dims = c.reserve(&dims, x.dtype())?;
    let flat = from_front(index, shape[axis])?.reshape([index.numel()])?;
    x.index_select(axis as isize, &flat)?.reshape(dims)
}

/// An index outside every tensor, even after batch offsets are added to it.
const OUTSIDE: i64 = i64::MIN / 4;

/// Flattens index tuples `[…, k]`, which index the axes from `batch` on of a tensor: one number for each tuple, counted
/// in slices after those axes. With batch axes, the numbers of each batch continue those of the previous one.
pub(super) fn linear(shape: &Shape, index: &Tensor, batch: usize) -> Result<Tensor> {
    let tuples = index.shape();
    let Some((&k, outer)) = tuples.split_last() else {
        return Err(Error::shape("the indices are a scalar, not tuples"));
    };
    if batch + k > shape.rank() || batch > outer.len() || shape[..batch] != outer[..batch] {
        return Err(Error::shape(format!(
            "indices of shape {tuples} do not fit {shape} with {batch} batch axes"
        )));
    }
    let index = index.to_dtype(DType::I64)?;
    let device = index.device();
    let mut place: Tensor = Tensor::full(outer, 0i64, (&device, DType::I64))?;
    for j in 0..k {
        let extent = shape[batch + j];
        let one = from_front(&index.select(-1, j as isize)?, extent)?;
        // An index out of range would address another element, so it is replaced by one outside all.
        let outside = one.lt(0i64)?.logical_or(&one.ge(extent as i64)?)?;
        let one = one.masked_fill(&outside, OUTSIDE)?;
        // Clamped first, since OUTSIDE times an extent would overflow to an arbitrary index.
        place = ((place.maximum(&place.full_like(-1i64)?)? * extent as i64)? + one)?;
        place = place.masked_fill(&place.lt(0i64)?, OUTSIDE)?;
    }
    let batches: usize = shape[..batch].iter().product();
    if batch > 0 {
        let each: usize = shape[batch..batch + k].iter().product();
        let mut dims = outer[..batch].to_vec();
        dims.resize(outer.len(), 1);
        let starts: Vec<i64> = (0..batches).map(|i| (i * each) as i64).collect();
        place = (place + Tensor::from_vec(starts, dims, &device)?)?;
    }
    Ok(place)
}

fn gather_nd(c: &Call<'_>) -> Results {
    let (x, index) = (c.x(0)?, c.x(1)?);
    let batch = c.count("batch_dims", 0)?;
    let shape = x.shape();
    let place = linear(&shape, &index, batch)?;
    let k = index.shape()[index.rank() - 1];
    let rows: usize = shape[..batch + k].iter().product();
    let rest: usize = shape[batch + k..].iter().product();
    let mut dims = place.dims();
    dims.extend(&shape[batch + k..]);
    let dims = c.reserve(&dims, x.dtype())?;
    let flat = place.reshape([place.numel()])?;
    one(x.reshape([rows, rest])?.index_select(0, &flat)?.reshape(dims)?)
}

fn reverse_sequence(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let (batch, time) = (c.axis("batch_axis", 1, x.rank())?, c.axis("time_axis", 0, x.rank())?);
    let shape = x.shape();
    let lengths = c.ints(1)?;
    if batch + time != 1 || lengths.len() != shape[batch] {
        return Err(malformed(format!(
            "{} lengths for {shape}; the batch and time axes are 0 and 1",
            lengths.len()
        )));
    }
    let steps = shape[time];
    c.reserve(&[steps, lengths.len()], DType::I64)?;
    let mut index = c.list(steps.saturating_mul(lengths.len()))?;
    let at = |t: usize, b: usize| {
        let length = lengths[b].clamp(0, steps as i64) as usize;
        (if t < length { length - 1 - t } else { t }) as i64
    };
    for i in 0..shape[0] {
        for j in 0..shape[1] {
            index.push(if time == 0 { at(i, j) } else { at(j, i) });
        }
    }
    let mut dims = vec![shape[0], shape[1]];
    dims.resize(shape.rank(), 1);
    let index = c.make(index, &dims)?.expand(shape)?;
    one(x.gather(time as isize, &index)?)
}

fn compress(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let (x, axis) = match c.opt_int("axis")? {
        Some(number) => {
            let axis = crate::import::call::axis(number, x.rank())?;
            (x, axis)
        }
        None => (x.reshape([x.numel()])?, 0),
    };
    let keep = c.ints(1)?;
    let mut kept: Vec<i64> = c.list(keep.len())?;
    kept.extend(
        keep.iter()
            .enumerate()
            .filter(|(_, keep)| **keep != 0)
            .map(|(i, _)| i as i64),
    );
    let count = kept.len();
    one(x.index_select(axis as isize, &c.make(kept, &[count])?)?)
}
