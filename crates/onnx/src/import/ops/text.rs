//! Text: comparisons, conversions, and counts of n-grams.

use std::collections::HashMap;
use std::sync::Arc;

use polygrad_core::{DType, Error, HostTensor, Result, Shape, printable};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::row::{Row, rows};
use crate::graph::{ElementType, malformed};
use crate::import::call::{Call, Results, sizes};
use crate::import::value::Value;

rows! {
    Row::new("TfIdfVectorizer", 9, vectorize);
}

/// Whether texts that are broadcast are equal.
pub(super) fn equal(c: &Call<'_>, a: &[Arc<str>], b: &[Arc<str>]) -> Result<Tensor> {
    // Equal texts have equal numbers.
    let mut numbers: HashMap<Arc<str>, i64> = HashMap::new();
    let mut numbered = |i: usize, texts: &[Arc<str>]| -> Result<Tensor> {
        let mut all = c.list(texts.len())?;
        for text in texts {
            let next = numbers.len() as i64;
            all.push(*numbers.entry(text.clone()).or_insert(next));
        }
        c.make(all, &c.shape(i)?)
    };
    let (a, b) = (numbered(0, a)?, numbered(1, b)?);
    c.reserve(&a.shape().broadcast(&b.shape())?, DType::Bool)?;
    a.eq(&b)
}

/// Text as numbers.
pub(super) fn cast(c: &Call<'_>, texts: &[Arc<str>], to: ElementType) -> Results {
    if to == ElementType::String {
        return Ok(smallvec![c.need(0)?.clone()]);
    }
    let no_number = |text: &str| Error::invalid(format!("{} is no {to}", printable(text)));
    let (shape, dtype) = (c.shape(0)?, to.dtype()?);
    if let Some((low, high)) = to.range() {
        let number = |text: &Arc<str>| {
            let number = text.trim().parse::<i64>().ok();
            let number = number.filter(|number| (low..=high).contains(number));
            number.ok_or_else(|| no_number(text))
        };
        let numbers = texts.iter().map(number).collect::<Result<Vec<_>>>()?;
        let made = c.make_as(numbers, &shape, dtype)?;
        return Ok(smallvec![Value::from(made).with_element(to)]);
    }
    if !dtype.is_float() || to.is_small_float() {
        return Err(Error::unsupported(format!("Cast of text to {to}")));
    }
    // Rust reads inf and nan in any case, as ONNX has them.
    let number = |text: &Arc<str>| text.trim().parse::<f64>().map_err(|_| no_number(text));
    let numbers = texts.iter().map(number).collect::<Result<Vec<_>>>()?;
    Ok(smallvec![c.make_as(numbers, &shape, dtype)?.into()])
}

fn vectorize(c: &Call<'_>) -> Results {
    let shape = c.shape(0)?;
    let (rows, columns) = match shape.dims() {
        [] => (1, 1),
        [columns] => (1, *columns),
        [rows, columns] => (*rows, *columns),
        _ => return Err(Error::shape(format!("{shape} is not [C] or [N, C]"))),
    };
    let missing = |name: &'static str| malformed(format!("{name} is missing"));
    let pool = c.int_list("pool_int64s")?.ok_or_else(|| missing("pool_int64s"))?;
    let starts = sizes(c.int_list("ngram_counts")?.ok_or_else(|| missing("ngram_counts"))?)?;
    let places = sizes(c.int_list("ngram_indexes")?.ok_or_else(|| missing("ngram_indexes"))?)?;
    let (least, most) = (c.count("min_gram_length", 1)?, c.count("max_gram_length", 1)?);
    let skips = c.count("max_skip_count", 0)?;
    // From an n-gram to the index of its count.
    let mut grams: HashMap<&[i64], usize> = HashMap::new();
    let mut number = 0;
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(pool.len());
        let part = pool
            .get(start..end)
            .ok_or_else(|| malformed("ngram_counts lie outside the pool"))?;
        for gram in part.chunks_exact(i + 1) {
            let place = *places
                .get(number)
                .ok_or_else(|| malformed("there are fewer ngram_indexes than n-grams"))?;
            number += 1;
            if (least..=most).contains(&gram.len()) {
                grams.insert(gram, place);
            }
        }
    }
    let width = places.iter().max().copied().unwrap_or(0).saturating_add(1);
    c.reserve(&[rows, width], DType::F64)?;
    let items = c.ints(0)?;
    let mut counts = c.collect((0..rows * width).map(|_| 0f32))?;
    for row in 0..rows {
        let items = &items[row * columns..][..columns];
        for distance in 1..=skips.min(columns).saturating_add(1) {
            // Single items do not depend on the skip distance: they are counted once.
            let from = if distance == 1 { least.max(1) } else { least.max(2) };
            for length in from..=most.min(columns) {
                let reach = (length - 1).saturating_mul(distance);
                for start in 0..columns.saturating_sub(reach) {
                    c.limits.step()?;
                    let gram: Vec<i64> = (0..length).map(|i| items[start + i * distance]).collect();
                    if let Some(&place) = grams.get(gram.as_slice()) {
                        counts[row * width + place] += 1.0;
                    }
                }
            }
        }
    }
    let weights = c.float_list("weights")?;
    let weight = |i: usize| match weights {
        Some(weights) => weights.get(i % width).copied().unwrap_or(1.0),
        None => 1.0,
    };
    let mode = c.text("mode", "TF")?;
    for (i, count) in counts.iter_mut().enumerate() {
        *count = match mode {
            "TF" => *count,
            "IDF" if *count > 0.0 => weight(i),
            "IDF" => 0.0,
            "TFIDF" => *count * weight(i),
            other => return Err(malformed(format!("TfIdfVectorizer has no mode {other:?}"))),
        };
    }
    let dims = if shape.rank() == 2 {
        vec![rows, width]
    } else {
        vec![width]
    };
    Ok(smallvec![HostTensor::new(Shape::new(&dims)?, counts)?.into()])
}
