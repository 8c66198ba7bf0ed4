//! One op of the table, and how it is called.

use std::sync::Arc;

use polygrad_core::{DType, Error, HostTensor, Result};

use crate::graph::{ElementType, Literal};
use crate::import::call::{Call, Made, Results};
use crate::import::value::Value;

/// A function that computes an op.
pub(crate) type Kernel = fn(&Call<'_>) -> Results;

/// One op of the table.
pub(crate) struct Row {
    pub(crate) domain: &'static str,
    pub(crate) op_type: &'static str,
    /// The version of the domain's ops that introduced it.
    pub(crate) since: i64,
    pub(crate) kernel: Kernel,
    /// The operand whose element type all results have.
    pub(crate) like: Option<usize>,
    /// Whether two runs on the same operands may differ.
    pub(crate) random: bool,
    /// Whether the result depends only on the shape of operand 0, the only operand.
    pub(crate) of_shape: bool,
    /// For an op that is computed in f32 if operands are narrower floats, and rounded once: for each result, the
    /// operand whose dtype it gets. Further results use the last entry.
    pub(crate) wide: &'static [usize],
    /// For an op that only moves elements: the operands whose elements it moves, which may be text.
    pub(crate) moves: std::ops::Range<usize>,
}

impl Row {
    pub(super) const fn new(op_type: &'static str, since: i64, kernel: Kernel) -> Self {
        Self {
            domain: "",
            op_type,
            since,
            kernel,
            like: None,
            random: false,
            of_shape: false,
            wide: &[],
            moves: 0..0,
        }
    }

    /// Results have the element type of operand `i`.
    pub(super) const fn like(mut self, i: usize) -> Self {
        self.like = Some(i);
        self
    }

    /// [`Row::like`] the first of these operands, whose elements the op only moves.
    pub(super) const fn moves(mut self, operands: std::ops::Range<usize>) -> Self {
        self.like = Some(operands.start);
        self.moves = operands;
        self
    }

    pub(super) const fn random(mut self) -> Self {
        self.random = true;
        self
    }

    pub(super) const fn of_shape(mut self) -> Self {
        self.of_shape = true;
        self
    }

    /// Computed in f32 if operand 0 is a narrower float; the results get its dtype.
    pub(super) const fn wide(self) -> Self {
        self.wide_like(&[0])
    }

    /// [`Row::wide`] with the operand for each result.
    pub(super) const fn wide_like(mut self, operands: &'static [usize]) -> Self {
        self.wide = operands;
        self
    }

    pub(super) const fn of(mut self, domain: &'static str) -> Self {
        self.domain = domain;
        self
    }
}

/// The rows of a family: `rows! { … }` in its file makes them `ROWS`.
macro_rules! rows {
    ($($row:expr;)*) => {
        /// This family's part of the table.
        pub(super) const ROWS: &[$crate::import::ops::row::Row] = &[$($row),*];
    };
}
pub(super) use rows;

/// Calls the op of a row.
pub(crate) fn apply(row: &Row, call: &Call<'_>) -> Results {
    for value in call.inputs.iter().flatten() {
        if let (Some(shape), Some(dtype)) = (value.shape(), value.dtype())
            && shape.numel() == 0
        {
            // A sum over nothing, or with padding around it, has the size given by its other extents.
            let others = shape
                .iter()
                .fold(dtype.size(), |bytes, &extent| bytes.saturating_mul(extent.max(1)));
            call.limits.check_bytes(others)?;
        }
    }
    if !row.moves.is_empty() && call.inputs.iter().flatten().any(|value| value.texts().is_some()) {
        return moved_texts(row, call);
    }
    let narrow = |value: &Value| matches!(value.dtype(), Some(DType::F16 | DType::BF16));
    if !row.wide.is_empty() && call.inputs.iter().flatten().any(narrow) {
        return settle(row, call, in_f32(row, call)?);
    }
    settle(row, call, (row.kernel)(call)?)
}

/// Calls an op that moves elements with the places of texts among all operands' texts, and returns the texts at the
/// places that it gives.
fn moved_texts(row: &Row, call: &Call<'_>) -> Results {
    let mut all: Vec<Arc<str>> = Vec::new();
    let mut place = |(i, value): (usize, &Option<Value>)| -> Result<Option<Value>> {
        match (value, row.moves.contains(&i)) {
            (Some(value), true) => {
                let Some(texts) = value.texts() else {
                    return Err(Error::dtype(format!("operand {i} is numbers, and another is text")));
                };
                let start = all.len() as i64;
                all.extend(texts.iter().cloned());
                let places: Vec<i64> = (start..all.len() as i64).collect();
                Ok(Some(HostTensor::new(call.shape(i)?, places)?.into()))
            }
            _ => Ok(value.clone()),
        }
    };
    let inputs = call
        .inputs
        .iter()
        .enumerate()
        .map(&mut place)
        .collect::<Result<Vec<_>>>()?;
    let results = (row.kernel)(&Call {
        inputs: &inputs,
        ..*call
    })?;
    let text = |value: Value| {
        let host = value.host()?;
        let places = host.as_slice::<i64>()?.iter();
        let found = places.map(|&place| all.get(place as usize).cloned());
        let found: Option<Vec<_>> = found.collect();
        let found = found.ok_or_else(|| Error::invalid("an element of no operand"))?;
        Ok(Literal::text(*host.shape(), found)?.into())
    };
    results.into_iter().map(text).collect()
}

/// Calls an op with operands converted from narrower floats to f32, and rounds the results.
fn in_f32(row: &Row, call: &Call<'_>) -> Results {
    let widened = |value: &Option<Value>| match value {
        Some(value) if matches!(value.dtype(), Some(DType::F16 | DType::BF16)) => match value.on_host() {
            Some(literal) => Ok(Some(literal.host().try_cast(DType::F32)?.into())),
            None => Ok(Some(value.tensor(call.device)?.to_dtype(DType::F32)?.into())),
        },
        other => Ok(other.clone()),
    };
    let inputs = call.inputs.iter().map(widened).collect::<Result<Vec<_>>>()?;
    let results = (row.kernel)(&Call {
        inputs: &inputs,
        ..*call
    })?;
    let last = row.wide.len() - 1;
    let rounded = |(i, value): (usize, Value)| {
        let dtype = call.value(row.wide[i.min(last)]).and_then(Value::dtype);
        match (value.dtype(), dtype) {
            (Some(DType::F32), Some(dtype @ (DType::F16 | DType::BF16))) => {
                Ok(value.tensor(call.device)?.to_dtype(dtype)?.into())
            }
            _ => Ok(value),
        }
    };
    results.into_iter().enumerate().map(rounded).collect()
}

/// Sets the element type of results as their row says, and wraps values outside its range, as its arithmetic does.
pub(crate) fn settle(row: &Row, call: &Call<'_>, results: Made) -> Results {
    let Some(element) = row.like.and_then(|i| call.value(i)?.element()) else {
        return Ok(results);
    };
    if !element.is_widened() {
        return Ok(results);
    }
    let held = element.dtype()?;
    results
        .into_iter()
        .map(|value| match value.dtype() {
            Some(dtype) if dtype == held => wrap(value, element, call),
            _ => Ok(value),
        })
        .collect()
}

/// Brings integers into the range of a narrower type, modulo its size.
pub(crate) fn wrap(value: Value, element: ElementType, call: &Call<'_>) -> Result<Value> {
    let Some((low, high)) = element.range() else {
        return Ok(value.with_element(element));
    };
    if element == ElementType::U64 {
        return held_by_i64(value);
    }
    let size = high - low + 1;
    let x = value.tensor(call.device)?.to_dtype(DType::I64)?;
    let wrapped = (((&x - low)? % size)? + low)?;
    Ok(Value::from(wrapped.to_dtype(element.dtype()?)?).with_element(element))
}

/// A uint64 stored as i64. Arithmetic modulo 2⁶⁴ is exact, so a negative number is a uint64 that i64 cannot represent.
fn held_by_i64(value: Value) -> Result<Value> {
    let host = value.host()?;
    if host.as_slice::<i64>()?.iter().any(|&v| v < 0) {
        return Err(
            Error::out_of_range("a result is an uint64 above 2⁶³ − 1, which is not held here")
                .with_hint("compute with int64 or double there"),
        );
    }
    Ok(value.with_element(ElementType::U64))
}
