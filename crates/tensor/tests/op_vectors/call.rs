//! The arguments of one case, as an adapter asks for them: by PyTorch's position and name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use polygrad_tensor::{Backend, Error, ErrorKind, Scalar, Tensor};
use serde_json::Value;

use crate::set::Case;

/// Why a case has no answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another family of ops has this one, or none has.
    OtherFamily,
    /// The library does not offer it.
    Unsupported(String),
    /// It failed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::Unsupported(error.to_string()),
            _ => Self::Failed(error),
        }
    }
}

/// The outputs of an op, in PyTorch's order.
pub(crate) type Answer<B> = Result<Vec<Tensor<B>>, Stop>;

/// An answer of one tensor.
pub(crate) fn one<B: Backend>(tensor: Tensor<B>) -> Answer<B> {
    Ok(vec![tensor])
}

/// An answer of values and positions.
pub(crate) fn pair<B: Backend>((values, indices): (Tensor<B>, Tensor<B>)) -> Answer<B> {
    Ok(vec![values, indices])
}

pub(crate) fn unsupported<B: Backend>(reason: impl Into<String>) -> Answer<B> {
    Err(Stop::Unsupported(reason.into()))
}

pub(crate) struct Call<'a, B: Backend> {
    case: &'a Case,
    tensors: &'a BTreeMap<String, Tensor<B>>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a, B: Backend> Call<'a, B> {
    pub(crate) fn new(case: &'a Case, tensors: &'a BTreeMap<String, Tensor<B>>) -> Self {
        Self {
            case,
            tensors,
            read: RefCell::default(),
        }
    }

    pub(crate) fn op(&self) -> &'a str {
        &self.case.op
    }

    /// The arguments that were given and never asked for: an answer without them would be one to another question.
    pub(crate) fn unread(&self) -> Vec<String> {
        let read = self.read.borrow();
        let positions = self.case.args.iter().enumerate().map(|(i, v)| (i.to_string(), v));
        let names = self.case.kwargs.iter().map(|(name, v)| (name.clone(), v));
        positions
            .chain(names)
            .filter(|(name, value)| !value.is_null() && !read.contains(name))
            .map(|(name, _)| name)
            .collect()
    }

    /// The argument, unless it is absent or None.
    fn value(&self, position: usize, name: &str) -> Option<&'a Value> {
        let (key, value) = match self.case.kwargs.get(name) {
            Some(value) => (name.to_owned(), value),
            None => (position.to_string(), self.case.args.get(position)?),
        };
        self.read.borrow_mut().insert(key);
        Some(value).filter(|value| !value.is_null())
    }

    pub(crate) fn has(&self, position: usize, name: &str) -> bool {
        self.value(position, name).is_some()
    }

    /// Takes note of an argument that has no bearing on the answer.
    pub(crate) fn ignore(&self, position: usize, name: &str) {
        self.value(position, name);
    }

    pub(crate) fn optional_tensor(&self, position: usize, name: &str) -> Option<&'a Tensor<B>> {
        self.value(position, name)?.get("t").map(|key| self.at(key))
    }

    pub(crate) fn tensor(&self, position: usize, name: &str) -> &'a Tensor<B> {
        self.optional_tensor(position, name)
            .unwrap_or_else(|| panic!("{}: no tensor {name}", self.case.k))
    }

    pub(crate) fn tensors(&self, position: usize, name: &str) -> Vec<&'a Tensor<B>> {
        let list = self.value(position, name).and_then(Value::as_array);
        let list = list.unwrap_or_else(|| panic!("{}: no tensors {name}", self.case.k));
        list.iter().map(|value| self.at(&value["t"])).collect()
    }

    fn at(&self, key: &Value) -> &'a Tensor<B> {
        &self.tensors[key.as_str().unwrap()]
    }

    /// Whether an argument is a number, and which.
    pub(crate) fn scalar(&self, position: usize, name: &str) -> Option<Scalar> {
        self.value(position, name).and_then(|value| match value {
            Value::Bool(value) => Some(Scalar::Bool(*value)),
            Value::Number(number) if number.is_i64() => number.as_i64().map(Scalar::Int),
            other => real(other).map(Scalar::Float),
        })
    }

    pub(crate) fn float(&self, position: usize, name: &str, default: f64) -> f64 {
        self.value(position, name).and_then(real).unwrap_or(default)
    }

    pub(crate) fn int(&self, position: usize, name: &str) -> Option<isize> {
        let value = self.value(position, name)?.as_i64();
        Some(value.unwrap_or_else(|| panic!("{}: {name} is no integer", self.case.k)) as isize)
    }

    pub(crate) fn flag(&self, position: usize, name: &str, default: bool) -> bool {
        self.value(position, name).and_then(Value::as_bool).unwrap_or(default)
    }

    pub(crate) fn text(&self, position: usize, name: &str) -> Option<&'a str> {
        self.value(position, name).and_then(Value::as_str)
    }

    /// A list of integers, or a single one as a list.
    pub(crate) fn ints(&self, position: usize, name: &str) -> Option<Vec<isize>> {
        match self.value(position, name)? {
            Value::Number(number) => Some(vec![number.as_i64()? as isize]),
            Value::Array(values) => values
                .iter()
                .map(|value| value.as_i64().map(|int| int as isize))
                .collect(),
            _ => None,
        }
    }

    /// One integer for each of three axes: a list that covers the spatial ones, or one for all. An empty list counts as absent.
    pub(crate) fn window(&self, position: usize, name: &str) -> Option<[usize; 3]> {
        let list = self.ints(position, name).filter(|list| !list.is_empty())?;
        Some(std::array::from_fn(|axis| *list.get(axis).unwrap_or(&list[0]) as usize))
    }

    /// The dtype that the result is asked in; only the one that the input has anyway is known here.
    pub(crate) fn expect_same_dtype(&self, position: usize) -> Result<(), Stop> {
        match self.text(position, "dtype") {
            None | Some("float64") => Ok(()),
            Some(other) => Err(Stop::Unsupported(format!("dtype={other}"))),
        }
    }
}

/// A real number, or one of the three that JSON lacks.
fn real(value: &Value) -> Option<f64> {
    match value.as_str() {
        None => value.as_f64(),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        Some("nan") => Some(f64::NAN),
        Some(_) => None,
    }
}
