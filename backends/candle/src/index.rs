//! Indexing ops. The index's values are the only thing that Polygrad does not check before calling.

use candle_core::Tensor;
use polygrad_core::{DType, Element, Error, Layout, Result, Scalar, SliceRange, dispatch_dtype};

use crate::CandleTensor;
use crate::binary::cast;
use crate::engine::engine;
use crate::movement::{pick, slice};
use crate::values::Item;

/// Fails if an index is outside its axis: candle lets negative ones wrap around, and treats the largest one as "none".
fn check(op: &'static str, index: &CandleTensor, axis: usize, dim: usize) -> Result<()> {
    if index.shape().numel() == 0 {
        return Ok(());
    }
    let outside = |i: i64| Error::out_of_range(format!("index {i} is outside 0..{dim} of axis {axis}")).with_op(op);
    let inside = |i: i64| usize::try_from(i).is_ok_and(|i| i < dim);
    if index.device().is_cpu() {
        let held = index.held(op)?;
        let wrong = held.values::<i64>()?.iter().copied().find(|&i| !inside(i));
        return wrong.map_or(Ok(()), |i| Err(outside(i)));
    }
    let extremes = engine(op, || {
        let flat = index.raw().flatten_all()?;
        Ok([flat.min(0)?.to_scalar::<i64>()?, flat.max(0)?.to_scalar::<i64>()?])
    })?;
    let wrong = extremes.into_iter().find(|&i| !inside(i));
    wrong.map_or(Ok(()), |i| Err(outside(i)))
}

pub(crate) fn gather(x: &CandleTensor, axis: usize, index: &CandleTensor) -> Result<CandleTensor> {
    check("gather", index, axis, x.shape()[axis])?;
    let shape = index.shape();
    if shape.numel() == 0 {
        return CandleTensor::full(shape, Scalar::Int(0), x.dtype(), &x.device());
    }
    // candle requires the other extents to be equal.
    let x = like(x, index, Some(axis))?;
    let (dense, index) = (x.dense("gather")?, index.dense("gather")?);
    CandleTensor::made("gather", shape.numel(), x.dtype(), || dense.gather(&index, axis))
}

/// The part of `x` that corresponds to the elements of `index`; all of it along `axis`.
fn like(x: &CandleTensor, index: &CandleTensor, axis: Option<usize>) -> Result<CandleTensor> {
    let (shape, dims) = (x.shape(), index.shape());
    let ranges = dims
        .iter()
        .enumerate()
        .map(|(i, &dim)| SliceRange::full(if axis == Some(i) { shape[i] } else { dim }));
    slice(x, &ranges.collect::<Vec<_>>())
}

pub(crate) fn scatter(x: &CandleTensor, axis: usize, index: &CandleTensor, src: &CandleTensor) -> Result<CandleTensor> {
    check("scatter", index, axis, x.shape()[axis])?;
    if index.shape().numel() == 0 {
        return Ok(x.clone());
    }
    let src = like(src, index, None)?;
    if fits(x, axis, index) || !x.device().is_cpu() {
        return scattered("scatter", x, index, &src, |x, index, src| x.scatter(index, src, axis));
    }
    dispatch_dtype!(x.dtype(), T => spread::<T>("scatter", x, axis, index, &src, |_, new| new))
}

pub(crate) fn scatter_add(
    x: &CandleTensor,
    axis: usize,
    index: &CandleTensor,
    src: &CandleTensor,
) -> Result<CandleTensor> {
    check("scatter_add", index, axis, x.shape()[axis])?;
    if index.shape().numel() == 0 {
        return Ok(x.clone());
    }
    let dtype = x.dtype();
    if matches!(dtype, DType::F16 | DType::BF16) {
        let (x, src) = (cast(x, DType::F32)?, cast(src, DType::F32)?);
        return cast(&scatter_add(&x, axis, index, &src)?, dtype);
    }
    let src = like(src, index, None)?;
    if !x.device().is_cpu() || dtype.is_float() && fits(x, axis, index) {
        return scattered("scatter_add", x, index, &src, |x, index, src| {
            x.scatter_add(index, src, axis)
        });
    }
    if dtype.is_float() {
        return dispatch_dtype!(dtype, T => {
            spread::<T>("scatter_add", x, axis, index, &src, |old, new| <T as Element>::from_f64(old.to_f64() + new.to_f64()))
        });
    }
    dispatch_dtype!(dtype, T => {
        spread::<T>("scatter_add", x, axis, index, &src, |old, new| T::from_i64(old.to_i64().wrapping_add(new.to_i64())))
    })
}

/// Whether candle's scatter accepts an index: it requires all other extents to be equal.
fn fits(x: &CandleTensor, axis: usize, index: &CandleTensor) -> bool {
    x.shape().with_dim(axis, 1) == index.shape().with_dim(axis, 1)
}

/// A scatter that combines elements with the existing ones by a rule.
fn spread<T: Item>(
    op: &'static str,
    x: &CandleTensor,
    axis: usize,
    index: &CandleTensor,
    src: &CandleTensor,
    rule: impl Fn(T, T) -> T,
) -> Result<CandleTensor> {
    let (held, held_index, held_src) = (x.held(op)?, index.held(op)?, src.held(op)?);
    let mut out = held.values::<T>()?.into_owned();
    let (indices, src) = (held_index.values::<i64>()?, held_src.values::<T>()?);
    let strides = x.shape().contiguous_strides();
    let along = strides[axis] as usize;
    // Offsets of the elements at position 0 on the axis.
    let mut others = strides;
    others[axis] = 0;
    let mut at = 0;
    Layout::strided(index.shape(), &others, 0).rows(|start, count, step| {
        for i in 0..count {
            let place = indices[at] as usize * along + start + i * step as usize;
            out[place] = rule(out[place], src[at]);
            at += 1;
        }
    });
    CandleTensor::of(x.shape(), out, &x.device())
}

pub(crate) fn index_select(x: &CandleTensor, axis: usize, index: &CandleTensor) -> Result<CandleTensor> {
    check("index_select", index, axis, x.shape()[axis])?;
    pick(x, axis, index)
}

/// candle's own op for floats; for integers it checks overflow, and it rounds f16 and bf16 at each step.
pub(crate) fn index_add(
    x: &CandleTensor,
    axis: usize,
    index: &CandleTensor,
    src: &CandleTensor,
) -> Result<CandleTensor> {
    let dtype = x.dtype();
    if matches!(dtype, DType::F16 | DType::BF16) {
        let (x, src) = (cast(x, DType::F32)?, cast(src, DType::F32)?);
        return cast(&index_add(&x, axis, index, &src)?, dtype);
    }
    if !dtype.is_float() && x.device().is_cpu() {
        return polygrad_core::decompose::index_add::<crate::Candle>(x, axis, index, src);
    }
    check("index_add", index, axis, x.shape()[axis])?;
    if src.shape().numel() == 0 {
        return Ok(x.clone());
    }
    scattered("index_add", x, index, src, |x, index, src| {
        x.index_add(index, src, axis)
    })
}

/// candle's own scatters, which require contiguous elements.
fn scattered(
    op: &'static str,
    x: &CandleTensor,
    index: &CandleTensor,
    src: &CandleTensor,
    call: impl FnOnce(&Tensor, &Tensor, &Tensor) -> candle_core::Result<Tensor>,
) -> Result<CandleTensor> {
    let (dense, index, src) = (x.dense(op)?, index.dense(op)?, src.dense(op)?);
    CandleTensor::made(op, x.shape().numel(), x.dtype(), || call(&dense, &index, &src))
}
