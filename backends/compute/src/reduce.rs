//! Reductions and scans.

use polygrad_core::compute::{ArgReduce, CumSum, Kernel, Reduce, ReduceAxes, Sort};
use polygrad_core::{ArgOp, Axes, Backend, DType, Error, ErrorKind, ReduceOp, Result, Scalar, Shape};
use polygrad_reference::Reference;

use crate::array::Array;
use crate::elementwise::{full, refused};
use crate::host::{on_host, one_on_host};
use crate::movement::{contiguous, permute, reshape};

pub(crate) fn reduce(op: ReduceOp, x: &Array, axes: Axes, keepdims: bool) -> Result<Array> {
    if !op.accepts(x.dtype()) {
        return Err(refused(op.name(), x.dtype()));
    }
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let (kept, bare) = (x.shape().reduced(axes, keepdims), x.shape().reduced(axes, false));
    if bare.numel() == 0 || x.shape().numel() == 0 {
        return over_nothing(op, x, kept);
    }
    let driver = &x.context().driver;
    let out = if driver.supports(Kernel::ReduceAxes, x.dtype()) {
        let out = Array::empty(x.context(), bare, x.dtype())?;
        let call = ReduceAxes {
            op,
            input: x.view()?,
            axes,
            output: out.start()?,
        };
        x.context().launch(op.name(), |driver| driver.reduce_axes(&call))?;
        out
    } else {
        match over_one_axis(op, x, axes, bare) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                one_on_host(x.context(), &[x], |x| Reference::reduce(op, &x[0], axes, false))?
            }
            other => other?,
        }
    };
    reshape(&out, kept)
}

/// The result if there are no elements to reduce, or no results.
fn over_nothing(op: ReduceOp, x: &Array, shape: Shape) -> Result<Array> {
    let value = match op {
        ReduceOp::Sum | ReduceOp::Any => 0,
        ReduceOp::Prod | ReduceOp::All => 1,
        _ if shape.numel() == 0 => 0,
        _ => return Err(Error::invalid("a reduction over no elements").with_op(op.name())),
    };
    full(x.context(), shape, Scalar::Int(value), x.dtype())
}

/// Reduces with the kernel that every driver has: the axes are moved to the end, where they are one.
fn over_one_axis(op: ReduceOp, x: &Array, axes: Axes, bare: Shape) -> Result<Array> {
    let order = (0..x.shape().rank())
        .filter(|&axis| !axes.contains(axis))
        .chain(axes.iter());
    let ordered = contiguous(&permute(x, Axes::new(order)?))?;
    let out = Array::empty(x.context(), bare, x.dtype())?;
    let call = Reduce {
        op,
        dtype: x.dtype(),
        outer: bare.numel(),
        len: x.shape().numel() / bare.numel(),
        inner: 1,
        input: ordered.start()?,
        output: out.start()?,
    };
    x.context().launch(op.name(), |driver| driver.reduce(&call))?;
    Ok(out)
}

pub(crate) fn arg_reduce(op: ArgOp, x: &Array, axis: usize, keepdims: bool) -> Result<Array> {
    let shape = x.shape().reduced(Axes::one(axis), keepdims);
    if !x.context().driver.supports(Kernel::ArgReduce, x.dtype()) || shape.numel() == 0 {
        return one_on_host(x.context(), &[x], |x| Reference::arg_reduce(op, &x[0], axis, keepdims));
    }
    let out = Array::empty(x.context(), shape, DType::I64)?;
    let call = ArgReduce {
        op,
        input: x.view()?,
        axis,
        output: out.start()?,
    };
    x.context().launch(op.name(), |driver| driver.arg_reduce(&call))?;
    Ok(out)
}

pub(crate) fn cumsum(x: &Array, axis: usize) -> Result<Array> {
    if x.dtype() == DType::Bool {
        return Err(refused("cumsum", x.dtype()));
    }
    if !x.context().driver.supports(Kernel::CumSum, x.dtype()) || x.shape().numel() == 0 {
        return one_on_host(x.context(), &[x], |x| Reference::cumsum(&x[0], axis));
    }
    let out = Array::empty(x.context(), *x.shape(), x.dtype())?;
    let call = CumSum {
        input: x.view()?,
        axis,
        output: out.start()?,
    };
    x.context().launch("cumsum", |driver| driver.cumsum(&call))?;
    Ok(out)
}

pub(crate) fn sort(x: &Array, axis: usize, descending: bool) -> Result<(Array, Array)> {
    if !x.context().driver.supports(Kernel::Sort, x.dtype()) || x.shape().numel() == 0 {
        let [values, positions] = on_host(x.context(), &[x], |x| {
            Reference::sort(&x[0], axis, descending).map(|(values, positions)| [values, positions])
        })?;
        return Ok((values, positions));
    }
    let values = Array::empty(x.context(), *x.shape(), x.dtype())?;
    let positions = Array::empty(x.context(), *x.shape(), DType::I64)?;
    let call = Sort {
        input: x.view()?,
        axis,
        descending,
        values: values.start()?,
        positions: positions.start()?,
    };
    x.context().launch("sort", |driver| driver.sort(&call))?;
    Ok((values, positions))
}
