//! Features shifted, scaled, thresholded and joined.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::Tensor;

use super::ml;
use crate::graph::malformed;
use crate::import::call::{Call, Results, one, size};
use crate::import::ops::row::rows;

rows! {
    ml("Scaler", 1, scaler);
    ml("Normalizer", 1, normalizer);
    ml("Binarizer", 1, |c| {
        let x = c.x(0)?;
        one(x.gt(c.float("threshold", 0.0)?)?.to_dtype(x.dtype())?)
    });
    ml("Imputer", 1, imputer);
    ml("FeatureVectorizer", 1, vectorizer);
    ml("ArrayFeatureExtractor", 1, extractor).moves(0..1);
}

/// A list attribute with a number for each feature of `x`, or a single number.
fn by_feature(c: &Call<'_>, name: &str, list: Vec<f32>, x: &Tensor) -> Result<Tensor> {
    let features = x.shape().last().copied().unwrap_or(1);
    match list.len() {
        1 => c.make(list, &[]),
        count if count == features => c.make(list, &[count]),
        count => Err(malformed(format!("{name} has {count} numbers for {features} features"))),
    }
}

fn scaler(c: &Call<'_>) -> Results {
    let x = c.x(0)?.to_dtype(DType::F32)?;
    let list = |name: &str, default: f32| {
        c.float_list(name)
            .map(|list| list.map_or(vec![default], <[f32]>::to_vec))
    };
    let offset = by_feature(c, "offset", list("offset", 0.0)?, &x)?;
    let scale = by_feature(c, "scale", list("scale", 1.0)?, &x)?;
    one(((x - offset)? * scale)?)
}

fn normalizer(c: &Call<'_>) -> Results {
    let x = c.x(0)?.to_dtype(DType::F32)?;
    if !(1..=2).contains(&x.rank()) {
        return Err(Error::shape(format!("{} is not [F] or [N, F]", x.shape())));
    }
    let norm = match c.text("norm", "MAX")? {
        "MAX" => x.amax_keepdim([-1])?,
        "L1" => x.abs()?.sum_keepdim([-1])?,
        "L2" => x.square()?.sum_keepdim([-1])?.sqrt()?,
        other => return Err(malformed(format!("Normalizer has no norm {other:?}"))),
    };
    // Zeros stay zeros.
    let norm = norm.masked_fill(&norm.eq(0.0)?, 1.0)?;
    one((x / norm)?)
}

fn imputer(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    if !x.dtype().is_float() {
        let wanted = c.int_list("imputed_value_int64s")?;
        let wanted = wanted.ok_or_else(|| malformed("imputed_value_int64s is missing"))?;
        let features = x.shape().last().copied().unwrap_or(1);
        let values = match wanted.len() {
            1 => c.make(wanted.to_vec(), &[])?,
            count if count == features => c.make(wanted.to_vec(), &[count])?,
            count => return Err(malformed(format!("{count} numbers for {features} features"))),
        };
        let gone = x.eq(c.int("replaced_value_int64", 0)?)?;
        return one(Tensor::where_(&gone, &values.to_dtype(x.dtype())?, &x)?);
    }
    let wanted = c.float_list("imputed_value_floats")?;
    let wanted = wanted.ok_or_else(|| malformed("imputed_value_floats is missing"))?;
    let values = by_feature(c, "imputed_value_floats", wanted.to_vec(), &x)?.to_dtype(x.dtype())?;
    let replaced = c.float("replaced_value_float", 0.0)?;
    let gone = if replaced.is_nan() { x.isnan()? } else { x.eq(replaced)? };
    one(Tensor::where_(&gone, &values, &x)?)
}

/// Concatenates the features of all operands. An attribute gives the width of each: it is cut, or padded with zeros.
fn vectorizer(c: &Call<'_>) -> Results {
    let widths = c
        .int_list("inputdimensions")?
        .ok_or_else(|| malformed("inputdimensions is missing"))?;
    if widths.len() != c.inputs.len() || widths.is_empty() {
        return Err(malformed(format!(
            "{} inputdimensions for {} operands",
            widths.len(),
            c.inputs.len()
        )));
    }
    let part = |(i, &width): (usize, &i64)| {
        let (x, width) = (c.x(i)?.to_dtype(DType::F32)?, size(width)?);
        let x = match *x.shape().dims() {
            [features] => x.reshape([1, features])?,
            [_, _] => x,
            _ => return Err(Error::shape(format!("operand {i} of shape {}", x.shape()))),
        };
        let [rows, features] = [x.shape()[0], x.shape()[1]];
        c.reserve(&[rows, width], DType::F32)?;
        match width <= features {
            true => x.narrow(1, 0, width),
            false => x.pad(&[(0, 0), (0, width - features)], 0.0),
        }
    };
    let parts = widths.iter().enumerate().map(part).collect::<Result<Vec<_>>>()?;
    one(Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1)?)
}

fn extractor(c: &Call<'_>) -> Results {
    let (x, places) = (c.x(0)?, c.x(1)?);
    let x = if x.rank() == 1 { x.unsqueeze(0)? } else { x };
    if x.rank() == 0 || places.numel() == 0 {
        return Err(Error::shape(format!("features {} of {}", places.shape(), x.shape())));
    }
    let mut dims = x.dims();
    let last = dims.len() - 1;
    dims[last] = places.numel();
    c.reserve(&dims, x.dtype())?;
    one(x.index_select(-1, &places.to_dtype(DType::I64)?.reshape([places.numel()])?)?)
}
