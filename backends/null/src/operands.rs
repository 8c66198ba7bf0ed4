//! What each call's operands are, and whether they fit each other.

use polygrad_core::compute::{Conv2d, DevicePtr, DeviceView, Pool2d, Scatter, Softmax};
use polygrad_core::{Axes, DType, Error, ReduceOp, Result, Shape};

pub(crate) fn aligned(view: &DeviceView) -> Result<()> {
    let size = view.dtype.size();
    if view.ptr.get().is_multiple_of(size as u64) {
        return Ok(());
    }
    Err(
        Error::invalid(format!("{:?} is no address of {}", view.ptr, view.dtype))
            .with_hint(format!("it must be a multiple of {size}")),
    )
}

/// Elements of a contiguous shape.
pub(crate) fn whole(ptr: DevicePtr, dtype: DType, dims: &[usize]) -> Result<DeviceView> {
    let shape = Shape::new(dims).map_err(|error| Error::invalid(error.message().to_owned()))?;
    Ok(DeviceView::contiguous(ptr, dtype, shape))
}

/// So many bytes, which are whole elements.
pub(crate) fn bytes(ptr: DevicePtr, dtype: DType, bytes: usize) -> Result<DeviceView> {
    whole(ptr, dtype, &[bytes / dtype.size()])
}

pub(crate) fn axis(shape: &Shape, axis: usize) -> Result<()> {
    if axis < shape.rank() {
        return Ok(());
    }
    Err(Error::out_of_range(format!("axis {axis} of shape {shape}")))
}

/// Whether `index` has the rank of `x` and, but along the axis, nothing that `x` has not.
pub(crate) fn index_fits(x: &Shape, along: usize, index: &DeviceView) -> Result<()> {
    axis(x, along)?;
    let dims = index.shape();
    let fits = dims.rank() == x.rank() && (0..x.rank()).all(|i| i == along || dims[i] <= x[i]);
    if fits && index.dtype == DType::I64 {
        return Ok(());
    }
    Err(Error::invalid(format!("an index {}{dims} into {x}", index.dtype)).with_hint("it is i64, and no larger"))
}

pub(crate) fn conv(call: &Conv2d) -> Result<Vec<DeviceView>> {
    Ok(vec![
        whole(call.input, call.dtype, &call.input_shape)?,
        whole(call.weight, call.dtype, &call.weight_shape)?,
        whole(call.output, call.dtype, &call.output_shape()?)?,
    ])
}

pub(crate) fn pool(call: &Pool2d, positions: bool) -> Result<Vec<DeviceView>> {
    let shape = call.params.output_shape(&Shape::new(&call.input_shape)?)?;
    let mut out = vec![
        whole(call.input, call.dtype, &call.input_shape)?,
        whole(call.output, call.dtype, &shape)?,
    ];
    if positions {
        out.push(whole(call.positions, DType::I64, &shape)?);
    }
    Ok(out)
}

pub(crate) fn scatter(call: &Scatter) -> Result<Vec<DeviceView>> {
    index_fits(call.target.shape(), call.axis, &call.index)?;
    if call.source.shape() != call.index.shape() || call.source.dtype != call.target.dtype {
        return Err(Error::invalid(format!(
            "a source {}{} for an index {} into {}",
            call.source.dtype,
            call.source.shape(),
            call.index.shape(),
            call.target.dtype
        )));
    }
    if !call.target.is_injective() {
        return Err(Error::invalid("the target has an element twice"));
    }
    Ok(vec![call.target, call.index, call.source])
}

pub(crate) fn softmax(call: &Softmax, saved: bool) -> Result<Vec<DeviceView>> {
    let ptrs = [Some(call.input), saved.then_some(call.saved), Some(call.output)];
    let dims = [call.rows, call.columns];
    (ptrs.into_iter().flatten())
        .map(|ptr| whole(ptr, call.dtype, &dims))
        .collect()
}

/// An op that is not defined for a dtype.
pub(crate) fn refuse(accepted: bool, dtype: DType) -> Result<()> {
    if accepted {
        return Ok(());
    }
    Err(Error::dtype(format!("not defined for {dtype}")))
}

/// Whether a reduction has something to reduce, or needs nothing.
pub(crate) fn reduced(op: ReduceOp, shape: &Shape, axes: Axes) -> Result<()> {
    let none = axes.iter().any(|i| shape[i] == 0);
    if none && op.needs_elements() && shape.reduced(axes, false).numel() > 0 {
        return Err(Error::invalid(format!("{} over no elements", op.name())));
    }
    Ok(())
}
