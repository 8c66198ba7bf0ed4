//! Pickles, as far as tensors and containers need them. Nothing is imported and nothing is called: what a pickle names
//! is compared with a list, and what is not on it becomes an inert [`Object::Foreign`].
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

/// Which of a pickle's objects.
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

/// What values refer to.
#[derive(Debug)]
pub(crate) enum Object {
    Text(String),
    Bytes,
    /// An integer of more than 64 bits.
    Large,
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A class or a function by its name, which is never looked up.
    Global(String),
    Storage(Box<Storage>),
    Tensor(Box<View>),
    /// What has a meaning in PyTorch, and none here: a device, a layout.
    Plain(&'static str),
    /// What a global that is not known would have made: that global, and all that it was given.
    Foreign {
        of: Value,
        parts: Vec<Value>,
        /// Of a tensor, why it is left out.
        why: Option<String>,
    },
}

/// A tensor: a view of a storage.
#[derive(Debug)]
pub(crate) struct View {
    /// The object that is its storage.
    pub(crate) storage: Id,
    /// In elements.
    pub(crate) offset: usize,
    pub(crate) shape: Shape,
    pub(crate) strides: Vec<usize>,
    /// What the elements are, where the storage does not say.
    pub(crate) element: Option<StorageType>,
}

/// All objects that a pickle made.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    objects: Vec<Object>,
    /// How many objects and places in containers there are.
    parts: usize,
}

/// As many objects and places in containers may a pickle make: 4 million, and a tensor takes about ten.
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

    /// Takes down that so many parts more are to be made.
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

    /// The global by which something foreign was made.
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

    /// What a value is, in a few words.
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

/// The error about a global that is not on the list.
#[cold]
pub(crate) fn refused(global: &str, why: &str) -> Error {
    Error::unsupported(format!("refuses {}: {why}", printable(global)))
}
