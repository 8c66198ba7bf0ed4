//! Encoding of categories as numbers.

use std::collections::HashMap;
use std::sync::Arc;

use polygrad_core::{DType, Error, HostTensor, Result, Shape, printable};
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
    ml("ZipMap", 1, zip_map);
}

/// Operand 0 with its texts, if it is text, and else its numbers on the host.
fn given(c: &Call<'_>) -> Result<Literal> {
    match c.need(0)?.texts() {
        Some(_) => c.need(0)?.literal(),
        None => Ok(c.host(0)?.into()),
    }
}

fn text_list(list: &[String]) -> Result<Literal> {
    let texts = list.iter().map(|text| text.as_str().into()).collect();
    Literal::text(Shape::new(&[list.len()])?, texts)
}

fn one_hot(c: &Call<'_>) -> Results {
    let found = match c.texts("cats_strings")? {
        Some(list) => texts_of(c, list)?,
        None => {
            let list = c.int_list("cats_int64s")?;
            let list = list.ok_or_else(|| malformed("the categories are missing"))?;
            let x = c.x(0)?.to_dtype(DType::I64)?;
            let mut dims = x.dims();
            dims.push(list.len());
            c.reserve(&dims, DType::F32)?;
            x.unsqueeze(-1)?.eq(&c.make(list.to_vec(), &[list.len()])?)?
        }
    };
    let y = found.to_dtype(DType::F32)?;
    if !c.flag("zeros", true)? {
        let known = c.off_device(&y.sum([-1])?)?.try_to_f64_vec()?;
        if let Some(place) = known.iter().position(|&count| count == 0.0) {
            let given = given(c)?;
            let value = match given.texts() {
                Some(texts) => printable(&texts[place]).into_owned(),
                None => given.host().try_to_f64_vec()?[place].to_string(),
            };
            return Err(Error::out_of_range(format!("{value} is none of the categories"))
                .with_hint("with the attribute zeros = 1, such a value has only zeros"));
        }
    }
    one(y)
}

/// Whether each text is each category: `[…, categories]`.
fn texts_of(c: &Call<'_>, list: &[String]) -> Result<Tensor> {
    let (shape, x) = (c.shape(0)?, given(c)?);
    let texts = x
        .texts()
        .ok_or_else(|| Error::dtype("the categories are text, and operand 0 is not"))?;
    let mut dims = shape.to_vec();
    dims.push(list.len());
    c.reserve(&dims, DType::F32)?;
    let mut found = c.list(texts.len().saturating_mul(list.len()))?;
    for text in texts {
        found.extend(list.iter().map(|category| category.as_str() == &**text));
    }
    c.make(found, &dims)
}

/// A column of scores for each class becomes maps from classes to scores.
fn zip_map(c: &Call<'_>) -> Results {
    let keys = match (c.int_list("classlabels_int64s")?, c.texts("classlabels_strings")?) {
        (Some(list), None) => HostTensor::new(Shape::new(&[list.len()])?, list.to_vec())?.into(),
        (None, Some(list)) => text_list(list)?,
        _ => return Err(malformed("the classes are neither integers nor text")),
    };
    let x = c.x(0)?;
    let table = if x.rank() == 1 { x.unsqueeze(0)? } else { x };
    let count = keys.host().shape().numel();
    if table.rank() != 2 || table.shape()[1] != count {
        return Err(Error::shape(format!(
            "scores of shape {} for {count} classes",
            table.shape()
        )));
    }
    Ok(smallvec![Value::maps(keys, table.into())])
}

/// The values of an attribute that has several typed forms.
fn values(c: &Call<'_>, start: &str) -> Result<Literal> {
    let name = |end: &str| format!("{start}_{end}");
    if let Some(list) = c.texts(&name("strings"))? {
        return text_list(list);
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

#[derive(PartialEq, Eq, Hash)]
enum Key {
    /// An integer by its bits, or a float as f64, with all NaNs equal and both zeros equal.
    Number(u64),
    Text(Arc<str>),
}

const NAN: Key = Key::Number(f64::NAN.to_bits());

fn keys(literal: &Literal) -> Result<Vec<Key>> {
    if let Some(texts) = literal.texts() {
        return Ok(texts.iter().cloned().map(Key::Text).collect());
    }
    let host = literal.host();
    if !host.dtype().is_float() {
        let host = host.try_cast(DType::I64)?;
        let key = |&value: &i64| Key::Number(value as u64);
        return Ok(host.as_slice::<i64>()?.iter().map(key).collect());
    }
    let key = |value: f64| match value.is_nan() {
        true => NAN,
        false => Key::Number((value + 0.0).to_bits()),
    };
    Ok(host.try_to_f64_vec()?.into_iter().map(key).collect())
}

fn encoder(c: &Call<'_>) -> Results {
    let (from, to, x) = (values(c, "keys")?, values(c, "values")?, given(c)?);
    let count = to.host().shape().numel();
    if from.host().shape().numel() != count {
        return Err(malformed(format!(
            "{} keys for {count} values",
            from.host().shape().numel()
        )));
    }
    let kind = |literal: &Literal| (literal.texts().is_some(), literal.host().dtype().is_float());
    if kind(&x) != kind(&from) {
        return Err(Error::dtype(format!(
            "keys are {}, and operand 0 is {}",
            from.element(),
            c.element(0)?
        )));
    }
    // Of repeated keys the first counts; NaN is only found since version 4.
    let mut places = HashMap::with_capacity(count);
    for (place, key) in keys(&from)?.into_iter().enumerate() {
        if c.version >= 4 || !from.host().dtype().is_float() || key != NAN {
            places.entry(key).or_insert(place);
        }
    }
    let found = keys(&x)?.into_iter().map(|key| places.get(&key).copied());
    decoded(c, &to, *x.host().shape(), &found.collect::<Vec<_>>())
}

/// The values at places, and the default where there is none.
fn decoded(c: &Call<'_>, to: &Literal, shape: Shape, places: &[Option<usize>]) -> Results {
    let default = c.literal("default_tensor")?;
    if let Some(literal) = default.filter(|literal| literal.host().shape().numel() != 1) {
        return Err(malformed(format!("a default of shape {}", literal.host().shape())));
    }
    if let Some(texts) = to.texts() {
        let default: Arc<str> = match default.and_then(Literal::texts) {
            Some(texts) => texts[0].clone(),
            None => c.text("default_string", "_Unused")?.into(),
        };
        let text = |place: &Option<usize>| texts[..].get(place.unwrap_or(texts.len())).unwrap_or(&default);
        let found = places.iter().map(|place| text(place).clone()).collect();
        return Ok(smallvec![Literal::text(shape, found)?.into()]);
    }
    let default = match (default, to.element()) {
        (Some(literal), _) => literal.host().clone(),
        (None, ElementType::I64) => HostTensor::scalar(c.int("default_int64", -1)?),
        (None, _) => HostTensor::scalar(c.float("default_float", -0.0)? as f32),
    };
    let default = default.try_cast(to.host().dtype())?;
    let count = to.host().shape().numel();
    let index = c.collect(places.iter().map(|place| place.unwrap_or(count) as i64))?;
    let table = |host: HostTensor| Tensor::from_host(host, c.device)?.reshape([-1]);
    let table = Tensor::cat(&[&table(to.host().clone())?, &table(default)?], 0)?;
    let index = c.make(index, &[shape.numel()])?;
    let y = table.index_select(0, &index)?.reshape(shape)?;
    Ok(smallvec![Value::from(y).with_element(to.element())])
}
