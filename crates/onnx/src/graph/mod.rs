//! A model file's content, as plain data.
//!
//! A [`Graph`] is the content of a file: a [`Body`] of nodes, the versions of the ops that they call, and what the file
//! says about itself. Reading checks everything, so that a graph read from a file has no dangling name, no cycle and no
//! tensor whose size differs from its shape. Writing makes the same checks again.

mod attribute;
mod budget;
mod check;
mod element;
mod error;
mod external;
pub(crate) mod minifloat;
mod order;
mod read;
mod save;
mod tensor;
mod types;
mod weight;
mod write;

use std::collections::HashMap;

pub use attribute::Attribute;
pub use element::ElementType;
pub(crate) use error::malformed;
pub use external::external_files;
pub use save::SaveOptions;
pub use tensor::Literal;
pub use types::{Dim, TensorType, ValueType};

use crate::quantize::prune;

/// A value of a [`Body`]: its index in [`Body::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// As an index into [`Body::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Its name, unique in its body and those around it.
    pub name: String,
    /// Its type, if the file says it.
    pub ty: Option<ValueType>,
}

/// A call of an op.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The node's own name; may be empty.
    pub name: String,
    /// The op, such as `Conv`.
    pub op_type: String,
    /// The op's domain; empty for `ai.onnx`.
    pub domain: String,
    /// The op's overload, for functions of the model; mostly empty.
    pub overload: String,
    /// The version of the op, if it comes from a function; else the model's opsets say it.
    pub version: Option<i64>,
    /// The operands; `None` for an optional one that is left out.
    pub inputs: Vec<Option<ValueId>>,
    /// The results; `None` for an optional one that is unused.
    pub outputs: Vec<Option<ValueId>>,
    /// The attributes by name.
    pub attributes: Vec<(String, Attribute)>,
}

impl Node {
    /// The attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }
}

/// A value that is fixed in the file: a weight or a constant.
#[derive(Clone, Debug)]
pub struct Initializer {
    /// The value that it defines.
    pub value: ValueId,
    /// That value's content.
    pub tensor: Literal,
}

/// A value of the enclosing body that an inner one uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Its id in the inner body.
    pub inner: ValueId,
    /// Its id in the body directly around it.
    pub outer: ValueId,
}

/// Nodes in topological order, and the values that flow between them.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The name; ONNX's checker requires one.
    pub name: String,
    /// All values, by id.
    pub values: Vec<ValueInfo>,
    /// The inputs in order. An input that is also an initializer has a default.
    pub inputs: Vec<ValueId>,
    /// The outputs in order.
    pub outputs: Vec<ValueId>,
    /// The values fixed in the file.
    pub initializers: Vec<Initializer>,
    /// The calls, each after those that it depends on.
    pub nodes: Vec<Node>,
    /// The values of the enclosing body that it uses; empty for the outermost body.
    pub captures: Vec<Capture>,
}

impl Body {
    /// Adds a value. Its name is not checked here, but when the graph is written.
    pub fn add_value(&mut self, name: impl Into<String>, ty: Option<ValueType>) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(ValueInfo { name: name.into(), ty });
        id
    }

    /// Adds a value that is fixed to this tensor.
    pub fn add_initializer(&mut self, name: impl Into<String>, tensor: impl Into<Literal>) -> ValueId {
        let tensor = tensor.into();
        let ty = ValueType::Tensor(TensorType::of(&tensor));
        let value = self.add_value(name, Some(ty));
        self.initializers.push(Initializer { value, tensor });
        value
    }

    /// What is known of a value; its id must be one of this body's.
    pub fn value(&self, id: ValueId) -> &ValueInfo {
        &self.values[id.index()]
    }

    /// A value's name; its id must be one of this body's.
    pub fn name_of(&self, id: ValueId) -> &str {
        &self.values[id.index()].name
    }

    /// The initializer that fixes a value.
    pub fn initializer(&self, id: ValueId) -> Option<&Initializer> {
        self.initializers.iter().find(|initializer| initializer.value == id)
    }
}

/// An op that the model itself defines, in terms of others.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// The op type by which nodes call it.
    pub name: String,
    /// Its domain.
    pub domain: String,
    /// Its overload; mostly empty.
    pub overload: String,
    /// Its implementation. [`Attribute::Reference`] stands for an attribute of the calling node.
    pub body: Body,
    /// Its attributes, with the default of each optional one.
    pub attributes: Vec<(String, Option<Attribute>)>,
    /// The op versions that its body was written against.
    pub opsets: HashMap<String, i64>,
}

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Version of the format.
    pub ir_version: i64,
    /// The program that wrote it.
    pub producer_name: String,
    /// That program's version.
    pub producer_version: String,
    /// The model's name space, such as `org.example`.
    pub domain: String,
    /// The model's own version.
    pub model_version: i64,
    /// What the model is.
    pub doc_string: String,
    /// Further entries, in the file's order.
    pub metadata: Vec<(String, String)>,
}

impl Default for Header {
    /// IR version 10, by Polygrad.
    fn default() -> Self {
        Self {
            ir_version: 10,
            producer_name: "polygrad".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            domain: String::new(),
            model_version: 0,
            doc_string: String::new(),
            metadata: Vec::new(),
        }
    }
}

/// A model as a file holds it.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// What the file says about itself.
    pub header: Header,
    /// The version of each domain's ops; the empty domain is `ai.onnx`.
    pub opsets: HashMap<String, i64>,
    /// Ops that the model defines.
    pub functions: Vec<Function>,
    /// What it computes.
    pub body: Body,
}

impl Graph {
    /// Makes these values the outputs, and removes the nodes and initializers that contribute to none of them.
    pub fn keep_outputs(&mut self, outputs: Vec<ValueId>) {
        self.body.outputs = outputs;
        prune(&mut self.body);
    }
}

/// The name, or a similar one that is free.
pub(crate) fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut free = name.to_owned();
    let mut number = 0;
    while is_taken(&free) {
        number += 1;
        free = format!("{name}_{number}");
    }
    free
}
