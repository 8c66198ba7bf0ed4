//! Reductions, scans and sorting.

use polygrad_core::{ArgOp, Axes, DType, HostTensor, ReduceOp, Result};

use super::elementwise::{cast, unknown};
use crate::export::OnnxTensor;
use crate::export::call::Call;

type T = OnnxTensor;

pub(crate) fn reduce(op: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
    if axes.is_empty() {
        return Ok(x.clone());
    }
    // ONNX reduces only numbers, so bools are counted. The maximum of an empty set would be true.
    let as_number = match op {
        ReduceOp::Any => Some((ReduceOp::Sum, DType::I64)),
        ReduceOp::All => Some((ReduceOp::Min, DType::I32)),
        ReduceOp::Max | ReduceOp::Min if matches!(x.dtype, DType::Bool | DType::U8) => Some((op, DType::I32)),
        _ => None,
    };
    if let Some((op, dtype)) = as_number {
        return cast(&reduce(op, &cast(x, dtype)?, axes, keepdims)?, x.dtype);
    }
    let name = match op {
        ReduceOp::Sum => "ReduceSum",
        ReduceOp::Mean => "ReduceMean",
        ReduceOp::Prod => "ReduceProd",
        ReduceOp::Max => "ReduceMax",
        ReduceOp::Min => "ReduceMin",
        _ => return Err(unknown(op.name())),
    };
    let mut state = x.recording.state();
    let mut call = Call::of(name, [x]);
    if state.opset.takes_axes_as_input(name) {
        let list: Vec<i64> = axes.iter().map(|axis| axis as i64).collect();
        call = call.input(state.ints(&list)?);
    } else {
        call = call.ints("axes", axes.iter());
    }
    let call = call.int("keepdims", i64::from(keepdims));
    let id = state.one(call.gives(x.shape.reduced(axes, keepdims), x.dtype))?;
    drop(state);
    Ok(x.recording.tensor(id))
}

pub(crate) fn arg_reduce(op: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
    if x.dtype == DType::Bool {
        return arg_reduce(op, &cast(x, DType::I32)?, axis, keepdims);
    }
    let name = match op {
        ArgOp::Max => "ArgMax",
        _ => "ArgMin",
    };
    let call = Call::of(name, [x])
        .int("axis", axis as i64)
        .int("keepdims", i64::from(keepdims));
    let shape = x.shape.reduced(Axes::one(axis), keepdims);
    x.recording.one(call.gives(shape, DType::I64))
}

pub(crate) fn cumsum(x: &T, axis: usize) -> Result<T> {
    let axis = x.recording.constant(HostTensor::scalar(axis as i64));
    x.like(Call::of("CumSum", [x, &axis]))
}

pub(crate) fn sort(x: &T, axis: usize, descending: bool) -> Result<(T, T)> {
    // ONNX sorts only numbers.
    if x.dtype == DType::Bool {
        let (values, places) = sort(&cast(x, DType::I32)?, axis, descending)?;
        return Ok((cast(&values, DType::Bool)?, places));
    }
    let count = x.extents()[axis].clone();
    let count = x.recording.state().extent(&count)?;
    let call = Call::of("TopK", [x])
        .input(count)
        .int("axis", axis as i64)
        .int("largest", i64::from(descending))
        .int("sorted", 1);
    let both = x
        .recording
        .emit(call.gives(x.shape, x.dtype).gives(x.shape, DType::I64))?;
    Ok((both[0].clone(), both[1].clone()))
}
