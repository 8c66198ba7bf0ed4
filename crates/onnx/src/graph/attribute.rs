//! Attributes of nodes.

use std::sync::Arc;

use super::{Body, Literal, ValueType};

/// The value of a node's attribute.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Attribute {
    /// A real number.
    Float(f32),
    /// An integer.
    Int(i64),
    /// Text.
    String(String),
    /// A tensor.
    Tensor(Literal),
    /// The body of If, Loop or Scan.
    Body(Arc<Body>),
    /// Real numbers.
    Floats(Vec<f32>),
    /// Integers.
    Ints(Vec<i64>),
    /// Texts.
    Strings(Vec<String>),
    /// Tensors.
    Tensors(Vec<Literal>),
    /// Bodies.
    Bodies(Vec<Arc<Body>>),
    /// A type.
    Type(Option<ValueType>),
    /// In a [`Function`](super::Function): the attribute of this name of the calling node.
    Reference(String),
}

impl Attribute {
    /// What kind it is, in plain words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Float(_) => "a real number",
            Self::Int(_) => "an integer",
            Self::String(_) => "text",
            Self::Tensor(_) => "a tensor",
            Self::Body(_) => "a graph",
            Self::Floats(_) => "real numbers",
            Self::Ints(_) => "integers",
            Self::Strings(_) => "texts",
            Self::Tensors(_) => "tensors",
            Self::Bodies(_) => "graphs",
            Self::Type(_) => "a type",
            Self::Reference(_) => "a reference to an attribute",
        }
    }

    /// The bodies in it.
    pub fn bodies(&self) -> &[Arc<Body>] {
        match self {
            Self::Body(body) => std::slice::from_ref(body),
            Self::Bodies(bodies) => bodies,
            _ => &[],
        }
    }
}
