//! Categories as numbers.

use std::collections::HashMap;

use polygrad_core::{DType, Error, HostTensor, Result};
use smallvec::smallvec;

use super::ml;
use crate::graph::{ElementType, Literal, malformed};
use crate::import::call::{Call, Results, one};
use crate::import::ops::row::rows;

rows! {
    ml("OneHotEncoder", 1, one_hot);
    ml("LabelEncoder", 2, encoder);
}

/// What cannot be computed, since a tensor would hold text.
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

/// Numbers of an attribute in one of its forms, and their type.
fn numbers(c: &Call<'_>, start: &str) -> Result<(ElementType, Vec<f64>)> {
    let name = |end: &str| format!("{start}_{end}");
    if c.attribute(&name("strings")).is_some() {
        return Err(no_text(&name("strings")));
    }
    if let Some(list) = c.int_list(&name("int64s"))? {
        return Ok((ElementType::I64, list.iter().map(|&value| value as f64).collect()));
    }
    if let Some(list) = c.float_list(&name("floats"))? {
        return Ok((ElementType::F32, list.iter().map(|&value| f64::from(value)).collect()));
    }
    match c.literal(&name("tensor"))? {
        Some(literal) => Ok((literal.element(), literal.host().try_to_f64_vec()?)),
        None => Err(malformed(format!("{start} are missing"))),
    }
}

/// A number as a key: all NaN are one, and so are both zeros. A NaN is found since version 4 only.
fn key(value: f64) -> u64 {
    match value {
        _ if value.is_nan() => f64::NAN.to_bits(),
        _ => (value + 0.0).to_bits(),
    }
}

fn encoder(c: &Call<'_>) -> Results {
    let (_, keys) = numbers(c, "keys")?;
    let (element, values) = numbers(c, "values")?;
    if keys.len() != values.len() {
        return Err(malformed(format!("{} keys for {} values", keys.len(), values.len())));
    }
    let default = match c.literal("default_tensor")? {
        Some(literal) => literal.host().try_to_f64_vec()?.first().copied(),
        None => None,
    };
    let default = match (default, element) {
        (Some(default), _) => default,
        (None, ElementType::I64) => c.int("default_int64", -1)? as f64,
        (None, _) => c.float("default_float", -0.0)?,
    };
    // Of keys that are given twice the first counts.
    let mut table = HashMap::with_capacity(keys.len());
    for (&from, &to) in keys
        .iter()
        .zip(&values)
        .filter(|(from, _)| c.version >= 4 || !from.is_nan())
    {
        table.entry(key(from)).or_insert(to);
    }
    let found = c.floats(0)?;
    let made = c.collect(
        found
            .iter()
            .map(|&value| table.get(&key(value)).copied().unwrap_or(default)),
    )?;
    let host = HostTensor::new(c.shape(0)?, made)?.try_cast(element.dtype()?)?;
    Ok(smallvec![Literal::new(element, host)?.into()])
}
