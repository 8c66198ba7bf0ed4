//! New tensors, and what is known of their values at export time.

use polygrad_core::{Backend, BinaryOp, DType, Error, HostTensor, Result, Scalar, Shape};
use polygrad_reference::{Reference, ReferenceDevice};

use super::elementwise::{binary, cast};
use super::movement::expand;
use crate::export::OnnxTensor;
use crate::export::call::Call;
use crate::export::extent::Extent;
use crate::export::recording::Recording;
use crate::graph::{Attribute, Literal};

type T = OnnxTensor;

/// Constants with more elements are created when the model runs.
const LIMIT: usize = 1 << 10;

pub(crate) fn from_host(host: HostTensor, recording: &Recording) -> Result<T> {
    let state = recording.state();
    for &dim in host.shape().iter() {
        let extent = state.symbols.read(dim)?;
        if extent.is_symbolic() {
            return Err(Error::unsupported(format!(
                "values from the host cannot have the extent {}, which is known when the model runs",
                state.symbols.text(&extent)
            ))
            .with_hint("make them on the device, with arange and comparisons, so that they follow the extent"));
        }
    }
    drop(state);
    Ok(recording.constant(host))
}

pub(crate) fn to_host(x: &T) -> Result<HostTensor> {
    x.constant().ok_or_else(|| {
        Error::unsupported(
            "a model that reads values on the host cannot be recorded: they are known when the model runs",
        )
        .with_hint("compute with tensors instead: where_ in place of if, and no item or to_vec in forward")
    })
}

pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType, recording: &Recording) -> Result<T> {
    let symbolic = number(value, recording);
    let fixed = {
        let state = recording.state();
        let extents: Vec<Extent> = shape
            .iter()
            .map(|&dim| state.symbols.read(dim))
            .collect::<Result<_>>()?;
        extents.iter().all(|extent| !extent.is_symbolic())
    };
    if let Some((extent, inverse)) = symbolic {
        let mut state = recording.state();
        let id = state.scalar(&extent, dtype)?;
        drop(state);
        let scalar = recording.tensor(id);
        let scalar = if inverse { scalar.map("Reciprocal")? } else { scalar };
        return if shape.rank() == 0 {
            Ok(scalar)
        } else {
            expand(&scalar, shape)
        };
    }
    let one = |shape: Shape| Reference::to_host(&Reference::full(shape, value, dtype, &ReferenceDevice)?);
    if fixed && shape.numel() <= LIMIT {
        return Ok(recording.constant(one(shape)?));
    }
    let mut state = recording.state();
    let extents: Vec<Extent> = shape
        .iter()
        .map(|&dim| state.symbols.read(dim))
        .collect::<Result<_>>()?;
    let target = state.extents(&extents)?;
    let value = Attribute::Tensor(Literal::from(one(Shape::from([1]))?));
    let call = Call::new("ConstantOfShape").input(target).attribute("value", value);
    let id = state.one(call.gives(shape, dtype))?;
    drop(state);
    Ok(recording.tensor(id))
}

/// The extent that equals a number, or whose inverse equals it (then true).
fn number(value: Scalar, recording: &Recording) -> Option<(Extent, bool)> {
    let state = recording.state();
    let number = value.to_f64();
    match value {
        Scalar::Bool(_) => None,
        Scalar::Int(_) => state.symbols.read_number(number).map(|extent| (extent, false)),
        Scalar::Float(_) => {
            let whole = |number: f64| {
                let rounded = number.round();
                ((number - rounded).abs() <= 1e-9 * rounded).then_some(rounded)
            };
            let read = |number: f64| state.symbols.read_number(whole(number)?);
            read(number)
                .map(|extent| (extent, false))
                .or_else(|| Some((read(number.recip())?, true)))
        }
    }
}

pub(crate) fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, recording: &Recording) -> Result<T> {
    let shape = Shape::new(&[len])?;
    let (count, first) = {
        let state = recording.state();
        let first = match start {
            Scalar::Int(start) => state.symbols.read_number(start as f64),
            _ => None,
        };
        (state.symbols.read(len)?, first)
    };
    if !count.is_symbolic() && first.is_none() {
        let host = Reference::to_host(&Reference::iota(len, start, step, dtype, &ReferenceDevice)?)?;
        return Ok(recording.constant(host));
    }
    let whole = match (start, step) {
        (Scalar::Int(start), Scalar::Int(step)) if dtype == DType::I64 => Some((start, step)),
        _ => None,
    };
    let mut state = recording.state();
    let range = |state: &mut crate::export::recording::State, from: &Extent, to: &Extent, step: i64| {
        let from = state.scalar(from, DType::I64)?;
        let to = state.scalar(to, DType::I64)?;
        let step = state.constant(HostTensor::scalar(step));
        let call = Call::new("Range").input(from).input(to).input(step);
        state.one(call.gives(shape, DType::I64))
    };
    if let Some((start, step)) = whole {
        let from = first.unwrap_or(Extent::fixed(start));
        let to = count.times(&Extent::fixed(step)).plus(&from);
        let id = range(&mut state, &from, &to, step)?;
        drop(state);
        return Ok(recording.tensor(id));
    }
    let id = range(&mut state, &Extent::fixed(0), &count, 1)?;
    drop(state);
    let place = cast(&recording.tensor(id), dtype)?;
    let scaled = binary(BinaryOp::Mul, &place, &place.number(step.to_f64()))?;
    binary(BinaryOp::Add, &scaled, &full(Shape::SCALAR, start, dtype, recording)?)
}
