//! Encoding of categories as numbers.

use std::collections::HashMap;

use polygrad_core::{DType, Error, HostTensor, Result, Shape};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::ml;
use crate::graph::{ElementType, Literal, malformed};
use crate::import::call::{Call, Results, one};
use crate::import::ops::row::rows;
use crate::import::value::Value;

rows! {
    ml("OneHotEncoder", 1, one_hot);
    ml("LabelEncoder", 2, encoder);
}

/// An error for ops on text, which tensors cannot hold here.
fn no_text(what: &str) -> Error {
    Error::unsupported(format!("{what} is text, which is not held here"))
        .with_hint("encode text as integers before the model, and convert the model for integers")
}

fn one_hot(c: &Call<'_>) -> Results {
    let Some(list) = c.int_list("cats_int64s")? else {
        return Err(no_text("the list of categories"));
    };
    let x = c.x(0)?.to_dtype(DType::I64)?;
    let count = list.len();
    let mut dims = x.dims();
    dims.push(count);
    c.reserve(&dims, DType::F32)?;
    let found = x.unsqueeze(-1)?.eq(&c.make(list.to_vec(), &[count])?)?;
    let y = found.to_dtype(DType::F32)?;
    if !c.flag("zeros", true)? {
        let host = c.off_device(&x)?;
        if let Some(other) = host.as_slice::<i64>()?.iter().find(|value| !list.contains(value)) {
            return Err(
                Error::out_of_range(format!("{other} is none of the categories {list:?}"))
                    .with_hint("with the attribute zeros = 1, such a value has only zeros"),
            );
        }
    }
    one(y)
}

/// The numbers of an attribute that has several typed forms.
fn numbers(c: &Call<'_>, start: &str) -> Result<Literal> {
    let name = |end: &str| format!("{start}_{end}");
    if c.attribute(&name("strings")).is_some() {
        return Err(no_text(&name("strings")));
    }
    if let Some(list) = c.int_list(&name("int64s"))? {
        return Ok(HostTensor::new(Shape::new(&[list.len()])?, list.to_vec())?.into());
    }
    if let Some(list) = c.float_list(&name("floats"))? {
        return Ok(HostTensor::new(Shape::new(&[list.len()])?, list.to_vec())?.into());
    }
    let tensor = c.literal(&name("tensor"))?;
    tensor.cloned().ok_or_else(|| malformed(format!("{start} are missing")))
}

/// Numbers as hash keys: integers by their bits, floats as f64, with all NaNs equal and both zeros equal.
fn keys(host: &HostTensor) -> Result<Vec<u64>> {
    if !host.dtype().is_float() {
        let host = host.try_cast(DType::I64)?;
        return Ok(host.as_slice::<i64>()?.iter().map(|&value| value as u64).collect());
    }
    let key = |value: f64| match value.is_nan() {
        true => f64::NAN.to_bits(),
        false => (value + 0.0).to_bits(),
    };
    Ok(host.try_to_f64_vec()?.into_iter().map(key).collect())
}

fn encoder(c: &Call<'_>) -> Results {
    let (from, to) = (numbers(c, "keys")?, numbers(c, "values")?);
    let (from, element, count) = (from.host(), to.element(), to.host().shape().numel());
    if from.shape().numel() != count {
        return Err(malformed(format!("{} keys for {count} values", from.shape().numel())));
    }
    let x = c.host(0)?;
    if x.dtype().is_float() != from.dtype().is_float() {
        return Err(Error::dtype(format!(
            "keys are {}, and operand 0 is {}",
            from.dtype(),
            c.element(0)?
        )));
    }
    let default = match (c.literal("default_tensor")?, element) {
        (Some(literal), _) => literal.host().clone(),
        (None, ElementType::I64) => HostTensor::scalar(c.int("default_int64", -1)?),
        (None, _) => HostTensor::scalar(c.float("default_float", -0.0)? as f32),
    };
    if default.shape().numel() != 1 {
        return Err(malformed(format!("a default of shape {}", default.shape())));
    }
    let default = default.try_cast(to.host().dtype())?;
    // Of repeated keys the first counts; NaN is only found since version 4.
    let mut places = HashMap::with_capacity(count);
    let nan = f64::NAN.to_bits();
    let known = keys(from)?.into_iter().enumerate();
    for (place, key) in known.filter(|(_, key)| c.version >= 4 || !from.dtype().is_float() || *key != nan) {
        places.entry(key).or_insert(place as i64);
    }
    let found = keys(&x)?;
    let found = c.collect(found.iter().map(|key| places.get(key).copied().unwrap_or(count as i64)))?;
    let table = |host: HostTensor| Tensor::from_host(host, c.device)?.reshape([-1]);
    let table = Tensor::cat(&[&table(to.host().clone())?, &table(default)?], 0)?;
    let index = c.make(found, &[x.shape().numel()])?;
    let y = table.index_select(0, &index)?.reshape(*x.shape())?;
    Ok(smallvec![Value::from(y).with_element(element)])
}
