//! Checks of inputs against the types in the file.

use polygrad_core::{DType, Error, HostTensor, Result};
use smallvec::SmallVec;

use super::value::Value;
use crate::graph::{Dim, ElementType, TensorType, ValueInfo, ValueType, minifloat};

/// The extents that names stand for in a run.
pub(super) type Dims<'a> = SmallVec<[(&'a str, usize); 4]>;

/// The value, if it matches the type of the input in the file.
pub(super) fn fit<'a>(value: Value, info: &'a ValueInfo, dims: &mut Dims<'a>) -> Result<Value> {
    match &info.ty {
        Some(ty) => fit_type(value, ty, dims).map_err(|e| e.in_module(format!("input {:?}", info.name))),
        None => Ok(value),
    }
}

fn fit_type<'a>(value: Value, ty: &'a ValueType, dims: &mut Dims<'a>) -> Result<Value> {
    match (ty, value.shape(), value.dtype()) {
        (ValueType::Tensor(ty), Some(shape), None) if ty.element == ElementType::String => {
            fit_shape(ty, &shape, dims)?;
            Ok(value)
        }
        (ValueType::Tensor(ty), Some(_), None) => Err(Error::dtype(format!("text was given for {ty}"))),
        (ValueType::Tensor(ty), Some(_), Some(dtype)) if ty.element == ElementType::String => {
            Err(Error::dtype(format!("{dtype} was given for {ty}")).with_hint("give it text, of Literal::text"))
        }
        (ValueType::Tensor(ty), Some(shape), Some(dtype)) => {
            fit_dtype(ty, dtype)?;
            fit_shape(ty, &shape, dims)?;
            if ty.element.is_widened() && value.element() != Some(ty.element) {
                has_numbers_of(ty.element, &value.host()?)?;
            }
            Ok(value.with_element(ty.element))
        }
        (ValueType::Tensor(ty), ..) => Err(Error::invalid(format!("this is no tensor, but {ty} is wanted"))),
        (ValueType::Sequence(_), ..) if value.as_sequence().is_none() => {
            Err(Error::invalid("this is no sequence, but one is wanted"))
        }
        (ValueType::Optional(Some(inner)), ..) if !value.is_absent() => fit_type(value, inner, dims),
        _ => Ok(value),
    }
}

/// Fails at the first number that the element type cannot represent, although its dtype can.
fn has_numbers_of(element: ElementType, host: &HostTensor) -> Result<()> {
    let range = element.range().map(|(low, high)| (low as f64, high as f64));
    let is_one = |v: f64| match range {
        Some((low, high)) => (low..=high).contains(&v),
        None => v.is_nan() || f64::from(minifloat::decode(element, minifloat::encode(element, v as f32, false))) == v,
    };
    let mut wrong = None;
    host.each_f64(|v| {
        if wrong.is_none() && !is_one(v) {
            wrong = Some(v);
        }
    });
    match (wrong, element.range()) {
        (None, _) => Ok(()),
        (Some(v), Some((low, high))) => Err(Error::out_of_range(format!("{v} is no {element}"))
            .with_hint(format!("give it numbers from {low} to {high}"))),
        (Some(v), None) => Err(Error::out_of_range(format!("{v} is no {element}"))
            .with_hint(format!("round the values to {element} first"))),
    }
}

fn fit_dtype(ty: &TensorType, dtype: DType) -> Result<()> {
    let wanted = ty.element.dtype()?;
    if wanted == dtype {
        return Ok(());
    }
    Err(Error::dtype(format!("{dtype} was given for {ty}")).with_hint(format!("convert it with to_dtype to {wanted}")))
}

fn fit_shape<'a>(ty: &'a TensorType, shape: &[usize], dims: &mut Dims<'a>) -> Result<()> {
    let Some(wanted) = &ty.shape else { return Ok(()) };
    let mut named = |name: &'a str, extent: usize| match dims.iter().find(|(known, _)| *known == name) {
        Some((_, known)) => *known == extent,
        None => {
            dims.push((name, extent));
            true
        }
    };
    let fits = wanted.len() == shape.len()
        && wanted.iter().zip(shape).all(|(wanted, &extent)| match wanted {
            Dim::Fixed(wanted) => *wanted == extent,
            Dim::Named(name) => named(name, extent),
            Dim::Unknown => true,
        });
    if fits {
        return Ok(());
    }
    Err(Error::shape(format!("a tensor of shape {shape:?} was given for {ty}"))
        .with_hint("give it the shape that the file says; equal names are equal extents"))
}
