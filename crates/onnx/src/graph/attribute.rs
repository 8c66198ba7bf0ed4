//! Attributes of nodes.

use std::sync::Arc;

use bytes::Bytes;
use polygrad_core::Result;

use super::read::{Reader, Scope};
use super::{Body, Literal, ValueType, malformed};
use crate::proto::{AttributeProto, attribute_type};

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
    /// Text that is not UTF-8. Converters write bytes so for ops of their own, and no op of ONNX has such an attribute.
    Bytes(Bytes),
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
    /// Its kind, in plain words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Float(_) => "a real number",
            Self::Int(_) => "an integer",
            Self::String(_) => "text",
            Self::Bytes(_) => "text that is not UTF-8",
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

impl Reader<'_> {
    pub(super) fn attribute(&self, proto: AttributeProto, around: &mut Vec<Scope>) -> Result<Attribute> {
        let name = proto.name.clone();
        self.attribute_value(proto, around)
            .map_err(|e| e.in_module(format!("attribute {name}")))
    }

    fn attribute_value(&self, proto: AttributeProto, around: &mut Vec<Scope>) -> Result<Attribute> {
        if !proto.ref_attr_name.is_empty() {
            return Ok(Attribute::Reference(proto.ref_attr_name));
        }
        let missing = || malformed("the attribute has no value of its type");
        let text = |bytes: Bytes| {
            String::from_utf8(bytes.into()).map_err(|e| malformed("text that is not UTF-8").with_source(e))
        };
        Ok(match kind(&proto) {
            attribute_type::FLOAT => Attribute::Float(proto.f.unwrap_or(0.0)),
            attribute_type::INT => Attribute::Int(proto.i.unwrap_or(0)),
            attribute_type::STRING => match std::str::from_utf8(proto.s.as_deref().unwrap_or_default()) {
                Ok(text) => Attribute::String(text.into()),
                Err(_) => Attribute::Bytes(proto.s.unwrap_or_default()),
            },
            attribute_type::TENSOR => Attribute::Tensor(Literal::read(*proto.t.ok_or_else(missing)?, &self.budget)?),
            attribute_type::GRAPH => Attribute::Body(Arc::new(self.graph(*proto.g.ok_or_else(missing)?, around)?)),
            attribute_type::FLOATS => Attribute::Floats(proto.floats),
            attribute_type::INTS => Attribute::Ints(proto.ints),
            attribute_type::STRINGS => Attribute::Strings(proto.strings.into_iter().map(text).collect::<Result<_>>()?),
            attribute_type::TENSORS => {
                let tensors = proto.tensors.into_iter();
                Attribute::Tensors(tensors.map(|t| Literal::read(t, &self.budget)).collect::<Result<_>>()?)
            }
            attribute_type::GRAPHS => {
                let graphs = proto.graphs.into_iter();
                Attribute::Bodies(
                    graphs
                        .map(|g| Ok(Arc::new(self.graph(g, around)?)))
                        .collect::<Result<_>>()?,
                )
            }
            attribute_type::SPARSE_TENSOR => {
                let sparse = proto.sparse_tensor.ok_or_else(missing)?;
                Attribute::Tensor(Literal::read_sparse(*sparse, &self.budget)?.1)
            }
            attribute_type::TYPE_PROTO => Attribute::Type(ValueType::read(proto.tp.as_deref().ok_or_else(missing)?)?),
            other => return Err(malformed(format!("attributes of type {other} are not known here"))),
        })
    }
}

/// The attribute's type. In old files it follows from the field that is set.
fn kind(proto: &AttributeProto) -> i32 {
    if proto.r#type != attribute_type::UNDEFINED {
        return proto.r#type;
    }
    let found = [
        (proto.f.is_some(), attribute_type::FLOAT),
        (proto.i.is_some(), attribute_type::INT),
        (proto.s.is_some(), attribute_type::STRING),
        (proto.t.is_some(), attribute_type::TENSOR),
        (proto.g.is_some(), attribute_type::GRAPH),
        (!proto.floats.is_empty(), attribute_type::FLOATS),
        (!proto.ints.is_empty(), attribute_type::INTS),
        (!proto.strings.is_empty(), attribute_type::STRINGS),
        (!proto.tensors.is_empty(), attribute_type::TENSORS),
        (!proto.graphs.is_empty(), attribute_type::GRAPHS),
    ];
    let found = found.into_iter().find(|(is_there, _)| *is_there);
    found.map_or(attribute_type::UNDEFINED, |(_, kind)| kind)
}
