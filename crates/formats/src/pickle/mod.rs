//! Pickles, as far as tensors and containers need them. Nothing is imported or called: names in a pickle are compared
//! with a list, and anything not on it becomes an inert [`Object::Foreign`].
//!
//! Source of the opcodes: CPython's `Lib/pickletools.py`. Source of the calls: PyTorch's `torch/_utils.py` and
//! `torch/serialization.py`.

mod machine;
mod rebuild;
mod storage;

pub(crate) use machine::{Machine, Stopped};
pub(crate) use storage::{Storage, StorageType};

use polygrad_core::printable;
use polygrad_tensor::{Error, Result, Shape};

use crate::source::damaged;

/// Index of an object of a pickle.
pub(crate) type Id = u32;

/// A value on the stack, in the memo or in a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Object(Id),
}

/// An object that values refer to.
#[derive(Debug)]
pub(crate) enum Object {
    Text(String),
    Bytes,
    /// An integer of more than 64 bits.
    Large,
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A class or a function by its name, which is never resolved.
    Global(String),
    Storage(Box<Storage>),
    Tensor(Box<View>),
    /// An object with a meaning in PyTorch but none here: a device, a layout.
    Plain(&'static str),
    /// The result of calling an unknown global: the global and its arguments.
    Foreign {
        of: Value,
        parts: Vec<Value>,
        /// For a tensor, why it is left out.
        why: Option<String>,
    },
}

/// A tensor: a view of a storage.
#[derive(Debug)]
pub(crate) struct View {
    /// The object that is its storage.
    pub(crate) storage: Id,
    /// Offset in elements.
    pub(crate) offset: usize,
    pub(crate) shape: Shape,
    pub(crate) strides: Vec<usize>,
    /// The element type, if the storage does not have one.
    pub(crate) element: Option<StorageType>,
}

/// All objects created by a pickle.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    objects: Vec<Object>,
    /// Number of objects and of places in containers.
    parts: usize,
}

/// The most objects and places in containers of a pickle: 4 million; a tensor takes about ten.
const MAX_PARTS: usize = 1 << 22;

impl Heap {
    pub(crate) fn get(&self, value: Value) -> Option<&Object> {
        match value {
            Value::Object(id) => self.objects.get(id as usize),
            _ => None,
        }
    }

    pub(crate) fn object(&self, id: Id) -> Option<&Object> {
        self.objects.get(id as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    fn get_mut(&mut self, value: Value) -> Option<&mut Object> {
        match value {
            Value::Object(id) => self.objects.get_mut(id as usize),
            _ => None,
        }
    }

    /// Counts further objects or places, and fails if there are too many.
    fn count(&mut self, parts: usize) -> Result<()> {
        self.parts = self.parts.saturating_add(parts);
        match self.parts <= MAX_PARTS {
            true => Ok(()),
            false => Err(damaged(format!("its pickle has more than {MAX_PARTS} parts"))),
        }
    }

    fn add(&mut self, object: Object) -> Result<Value> {
        self.count(1)?;
        let id = self.objects.len() as Id;
        self.objects.push(object);
        Ok(Value::Object(id))
    }

    pub(crate) fn text(&self, value: Value) -> Option<&str> {
        match self.get(value) {
            Some(Object::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The elements of a list or a tuple.
    pub(crate) fn sequence(&self, value: Value) -> Option<&[Value]> {
        match self.get(value) {
            Some(Object::List(values) | Object::Tuple(values)) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn dict(&self, value: Value) -> Option<&[(Value, Value)]> {
        match self.get(value) {
            Some(Object::Dict(entries)) => Some(entries),
            _ => None,
        }
    }

    /// The global that created a foreign object.
    pub(crate) fn global(&self, value: Value) -> Option<&str> {
        let global = match self.get(value)? {
            Object::Foreign { of, .. } => self.get(*of)?,
            object => object,
        };
        match global {
            Object::Global(name) => Some(name),
            _ => None,
        }
    }

    /// A short description of a value.
    pub(crate) fn describe(&self, value: Value) -> String {
        const SHOWN: usize = 40;
        let Some(object) = self.get(value) else {
            return match value {
                Value::None => "None".to_owned(),
                Value::Bool(value) => if value { "True" } else { "False" }.to_owned(),
                Value::Int(value) => value.to_string(),
                Value::Float(value) => value.to_string(),
                Value::Object(_) => "nothing".to_owned(),
            };
        };
        match object {
            Object::Text(text) if text.chars().count() <= SHOWN => format!("{text:?}"),
            Object::Text(_) => "a text".to_owned(),
            Object::Bytes => "bytes".to_owned(),
            Object::Large => "a large integer".to_owned(),
            Object::List(values) => format!("a list of {}", values.len()),
            Object::Tuple(values) => format!("a tuple of {}", values.len()),
            Object::Dict(entries) => format!("a dict of {}", entries.len()),
            Object::Storage(_) => "a storage without a tensor".to_owned(),
            Object::Tensor(_) => "a tensor".to_owned(),
            Object::Plain(what) => (*what).to_owned(),
            Object::Foreign { why: Some(why), .. } => printable(why).into_owned(),
            Object::Global(_) | Object::Foreign { .. } => {
                format!("refuses {}", printable(self.global(value).unwrap_or_default()))
            }
        }
    }
}

/// The error for a global that is not on the list.
#[cold]
pub(crate) fn refused(global: &str, why: &str) -> Error {
    Error::unsupported(format!("refuses {}: {why}", printable(global)))
}
