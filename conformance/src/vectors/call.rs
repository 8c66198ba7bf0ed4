//! The arguments of one case, which an adapter reads by PyTorch's position and name.
//!
//! An argument of a kind that the adapter does not know ends the case as unsupported, with a reason that names it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use polygrad_tensor::{Backend, DType, Error, ErrorKind, Scalar, Tensor};
use serde_json::Value;

use super::set::Vector;

/// Why a case has no answer.
#[derive(Debug)]
pub(crate) enum CaseError {
    /// The op belongs to another family, or to none.
    OtherFamily,
    /// The library does not support it.
    Unsupported(String),
    /// It failed.
    Failed(String),
}

impl From<Error> for CaseError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::Unsupported(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// The outputs of an op, in PyTorch's order.
pub(crate) type CaseOutputs<B> = Result<Vec<Tensor<B>>, CaseError>;

/// The result of reading an argument.
pub(crate) type CaseResult<T> = Result<T, CaseError>;

/// An answer of one tensor.
pub(crate) fn one<B: Backend>(tensor: Tensor<B>) -> CaseOutputs<B> {
    Ok(vec![tensor])
}

/// An answer of values and positions.
pub(crate) fn pair<B: Backend>((values, indices): (Tensor<B>, Tensor<B>)) -> CaseOutputs<B> {
    Ok(vec![values, indices])
}

pub(crate) fn unsupported<T>(reason: impl Into<String>) -> CaseResult<T> {
    Err(CaseError::Unsupported(reason.into()))
}

/// The position of an argument that is only given by name.
pub(crate) const NAMED: usize = usize::MAX;

pub(crate) struct Call<'a, B: Backend> {
    case: &'a Vector,
    tensors: &'a BTreeMap<String, Tensor<B>>,
    dtype: DType,
    read: RefCell<BTreeSet<String>>,
    replaced: RefCell<BTreeMap<String, Tensor<B>>>,
}

impl<'a, B: Backend> Call<'a, B> {
    pub(crate) fn new(case: &'a Vector, tensors: &'a BTreeMap<String, Tensor<B>>, dtype: DType) -> Self {
        Self {
            case,
            tensors,
            dtype,
            read: RefCell::default(),
            replaced: RefCell::default(),
        }
    }

    /// The dtype under test.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn op(&self) -> &'a str {
        &self.case.op
    }

    /// OpInfo's name for this variant of the op.
    pub(crate) fn variant(&self) -> &'a str {
        &self.case.variant
    }

    /// The arguments that were given but never read: an answer that ignores them would be meaningless.
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

    /// The argument, converted by `read`.
    fn as_kind<T>(
        &self,
        position: usize,
        name: &str,
        kind: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> CaseResult<Option<T>> {
        let Some(value) = self.value(position, name) else {
            return Ok(None);
        };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => unsupported(format!("argument {name} is no {kind}: {value}")),
        }
    }

    /// Whether an argument was given by name, even if it is None.
    pub(crate) fn given(&self, name: &str) -> bool {
        self.case.kwargs.contains_key(name)
    }

    /// Ends the case if an argument that the library lacks is given by name, with a value other than None, False or 0.
    pub(crate) fn not_offered(&self, name: &str) -> CaseResult<()> {
        match self.value(NAMED, name) {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(value) if value.as_f64() == Some(0.0) => Ok(()),
            Some(value) => unsupported(format!("argument {name}={value} is not offered")),
        }
    }

    /// An argument as in the manifest.
    pub(crate) fn json(&self, name: &str) -> Option<&'a Value> {
        self.value(NAMED, name)
    }

    pub(crate) fn has(&self, position: usize, name: &str) -> bool {
        self.value(position, name).is_some()
    }

    /// Marks an argument that does not affect the answer as read.
    pub(crate) fn ignore(&self, position: usize, name: &str) {
        self.value(position, name);
    }

    /// The argument if it is a tensor; `None` if it is a number or a list.
    pub(crate) fn optional_tensor(&self, position: usize, name: &str) -> CaseResult<Option<&'a Tensor<B>>> {
        match self.value(position, name) {
            Some(value @ Value::Object(_)) => self.at(name, value).map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) fn tensor(&self, position: usize, name: &str) -> CaseResult<&'a Tensor<B>> {
        match self.value(position, name) {
            Some(value) => self.at(name, value),
            None => unsupported(format!("argument {name} is missing")),
        }
    }

    pub(crate) fn tensors(&self, position: usize, name: &str) -> CaseResult<Vec<&'a Tensor<B>>> {
        match self.value(position, name) {
            Some(Value::Array(list)) => list.iter().map(|value| self.at(name, value)).collect(),
            Some(value) => unsupported(format!("argument {name} is no list of tensors: {value}")),
            None => unsupported(format!("argument {name} is missing")),
        }
    }

    /// An argument that is a list of lists of tensors.
    pub(crate) fn lists_of_tensors(&self, position: usize, name: &str) -> CaseResult<Vec<Vec<&'a Tensor<B>>>> {
        let list = |value: &'a Value| match value {
            Value::Array(list) => list.iter().map(|value| self.at(name, value)).collect(),
            other => unsupported(format!("argument {name} holds no list of tensors: {other}")),
        };
        match self.value(position, name) {
            Some(Value::Array(lists)) => lists.iter().map(list).collect(),
            other => unsupported(format!("argument {name} is no list of lists: {other:?}")),
        }
    }

    /// The tensors whose names begin with a prefix, with the rest of their names.
    pub(crate) fn with_prefix(&self, prefix: &str) -> CaseResult<Vec<(&'a str, &'a Tensor<B>)>> {
        let names = self.case.kwargs.keys().filter_map(|name| name.strip_prefix(prefix));
        names
            .map(|rest| Ok((rest, self.tensor(NAMED, &format!("{prefix}{rest}"))?)))
            .collect()
    }

    /// Reads the gradient of a tensor that was given by name from another leaf, which took over its value.
    pub(crate) fn replace(&self, name: &str, leaf: Tensor<B>) -> CaseResult<()> {
        self.tensor(NAMED, name)?;
        let key = self
            .case
            .kwargs
            .get(name)
            .and_then(|value| value.get("t"))
            .and_then(Value::as_str);
        let mut replaced = self.replaced.borrow_mut();
        replaced.extend(key.map(|key| (key.to_owned(), leaf)));
        Ok(())
    }

    /// The leaves that replaced arguments, by the arguments' keys.
    pub(crate) fn into_replaced(self) -> BTreeMap<String, Tensor<B>> {
        self.replaced.into_inner()
    }

    fn at(&self, name: &str, value: &Value) -> CaseResult<&'a Tensor<B>> {
        let found = value
            .get("t")
            .and_then(Value::as_str)
            .and_then(|key| self.tensors.get(key));
        match found {
            Some(tensor) => Ok(tensor),
            None => unsupported(format!("argument {name} is no tensor: {value}")),
        }
    }

    /// The argument if it is a number; `None` if it is a tensor or a list.
    pub(crate) fn scalar(&self, position: usize, name: &str) -> Option<Scalar> {
        self.value(position, name).and_then(|value| match value {
            Value::Bool(value) => Some(Scalar::Bool(*value)),
            Value::Number(number) if number.is_i64() => number.as_i64().map(Scalar::Int),
            other => real(other).map(Scalar::Float),
        })
    }

    pub(crate) fn optional_float(&self, position: usize, name: &str) -> CaseResult<Option<f64>> {
        self.as_kind(position, name, "number", real)
    }

    pub(crate) fn float(&self, position: usize, name: &str, default: f64) -> CaseResult<f64> {
        Ok(self.optional_float(position, name)?.unwrap_or(default))
    }

    pub(crate) fn optional_int(&self, position: usize, name: &str) -> CaseResult<Option<isize>> {
        self.as_kind(position, name, "integer", integer)
    }

    pub(crate) fn int(&self, position: usize, name: &str, default: isize) -> CaseResult<isize> {
        Ok(self.optional_int(position, name)?.unwrap_or(default))
    }

    /// An integer that is not negative.
    pub(crate) fn size(&self, position: usize, name: &str, default: usize) -> CaseResult<usize> {
        let read = self.as_kind(position, name, "size", |value| integer(value)?.try_into().ok())?;
        Ok(read.unwrap_or(default))
    }

    pub(crate) fn flag(&self, position: usize, name: &str, default: bool) -> CaseResult<bool> {
        let read = self.as_kind(position, name, "truth value", Value::as_bool)?;
        Ok(read.unwrap_or(default))
    }

    pub(crate) fn text(&self, position: usize, name: &str) -> CaseResult<Option<&'a str>> {
        self.as_kind(position, name, "text", Value::as_str)
    }

    /// The argument if it is a word; `None` if it is a number or a list.
    pub(crate) fn word(&self, position: usize, name: &str) -> Option<&'a str> {
        self.value(position, name).and_then(Value::as_str)
    }

    /// A list of integers, or a single one as a list.
    pub(crate) fn ints(&self, position: usize, name: &str) -> CaseResult<Option<Vec<isize>>> {
        self.as_kind(position, name, "list of integers", |value| match value {
            Value::Array(values) => values.iter().map(integer).collect(),
            single => integer(single).map(|int| vec![int]),
        })
    }

    /// A list of integers that are not negative, or a single one as a list.
    pub(crate) fn sizes(&self, position: usize, name: &str) -> CaseResult<Option<Vec<usize>>> {
        let size = |value| usize::try_from(integer(value)?).ok();
        self.as_kind(position, name, "list of sizes", |value| match value {
            Value::Array(values) => values.iter().map(size).collect(),
            single => size(single).map(|int| vec![int]),
        })
    }

    /// One size for each of three axes: a list that covers the spatial ones, or one for all. An empty list counts as
    /// absent.
    pub(crate) fn window(&self, position: usize, name: &str) -> CaseResult<Option<[usize; 3]>> {
        let list = self.sizes(position, name)?.unwrap_or_default();
        Ok(list
            .first()
            .map(|&all| std::array::from_fn(|axis| *list.get(axis).unwrap_or(&all))))
    }

    /// An extent for each of `count` axes, `None` where PyTorch has None: a list, or one for all.
    pub(crate) fn extents(&self, position: usize, name: &str, count: usize) -> CaseResult<Option<Vec<Option<usize>>>> {
        let extent = |value: &Value| match value {
            Value::Null => Some(None),
            value => usize::try_from(integer(value)?).ok().map(Some),
        };
        self.as_kind(position, name, "list of sizes", |value| match value {
            Value::Array(values) => values.iter().map(extent).collect(),
            single => extent(single).map(|extent| vec![extent; count]),
        })
    }

    /// A number for each of `count` axes: a list, or one for all.
    pub(crate) fn floats(&self, position: usize, name: &str, count: usize) -> CaseResult<Option<Vec<f64>>> {
        self.as_kind(position, name, "list of numbers", |value| match value {
            Value::Array(values) => values.iter().map(real).collect(),
            single => real(single).map(|number| vec![number; count]),
        })
    }

    /// The input in the requested dtype, and whether one was requested; float64 stands for the dtype under test.
    pub(crate) fn input_in_dtype(&self, position: usize) -> CaseResult<(Tensor<B>, bool)> {
        let x = self.tensor(0, "input")?;
        let dtype = match self
            .text(position, "dtype")?
            .map(|name| name.trim_start_matches("torch."))
        {
            None => return Ok((x.clone(), false)),
            Some("float64") => self.dtype,
            Some("int64") => DType::I64,
            Some("int32") => DType::I32,
            Some("uint8") => DType::U8,
            Some("bool") => DType::Bool,
            Some(other) => return unsupported(format!("argument dtype={other}")),
        };
        Ok((x.to_dtype(dtype)?, true))
    }
}

fn integer(value: &Value) -> Option<isize> {
    value.as_i64()?.try_into().ok()
}

/// A real number, or one of the three that JSON cannot represent.
fn real(value: &Value) -> Option<f64> {
    match value.as_str() {
        None => value.as_f64(),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        Some("nan") => Some(f64::NAN),
        Some(_) => None,
    }
}
