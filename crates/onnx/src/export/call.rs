//! A call of an ONNX op that is about to be recorded.

use std::fmt::Write;

use polygrad_core::{DType, Shape};

use super::OnnxTensor;
use crate::graph::{Attribute, ValueId};

/// A call: op, operands, attributes, and what its outputs look like.
pub(super) struct Call {
    pub(super) op: &'static str,
    pub(super) inputs: Vec<Option<ValueId>>,
    pub(super) attributes: Vec<(String, Attribute)>,
    pub(super) outputs: Vec<(Shape, DType)>,
    pub(super) walked: Option<ValueId>,
}

impl Call {
    pub(super) fn new(op: &'static str) -> Self {
        Self {
            op,
            inputs: Vec::new(),
            attributes: Vec::new(),
            outputs: Vec::new(),
            walked: None,
        }
    }

    /// A call on these operands.
    pub(super) fn of<'a>(op: &'static str, inputs: impl IntoIterator<Item = &'a OnnxTensor>) -> Self {
        let mut call = Self::new(op);
        call.inputs = inputs.into_iter().map(|x| Some(x.id)).collect();
        call
    }

    /// A further operand.
    pub(super) fn input(mut self, id: impl Into<Option<ValueId>>) -> Self {
        self.inputs.push(id.into());
        self
    }

    /// An attribute.
    pub(super) fn attribute(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.push((name.to_owned(), value));
        self
    }

    /// An attribute that is an integer.
    pub(super) fn int(self, name: &str, value: i64) -> Self {
        self.attribute(name, Attribute::Int(value))
    }

    /// An attribute that is a list of integers.
    pub(super) fn ints(self, name: &str, values: impl IntoIterator<Item = usize>) -> Self {
        let values = values.into_iter().map(|value| value as i64).collect();
        self.attribute(name, Attribute::Ints(values))
    }

    /// An attribute that is a real number, which is an f32 in a file: see [`is_exact`].
    pub(super) fn float(self, name: &str, value: f64) -> Self {
        self.attribute(name, Attribute::Float(value as f32))
    }

    /// An attribute that is a text.
    pub(super) fn text(self, name: &str, value: &str) -> Self {
        self.attribute(name, Attribute::String(value.to_owned()))
    }

    /// A further output.
    pub(super) fn gives(mut self, shape: Shape, dtype: DType) -> Self {
        self.outputs.push((shape, dtype));
        self
    }

    /// Says that the op computes the output's extents from those of this operand.
    pub(super) fn walks(mut self, x: &OnnxTensor) -> Self {
        self.walked = Some(x.id);
        self
    }

    /// Identifies the call: calls with equal keys have equal results.
    pub(super) fn key(&self) -> String {
        let mut key = format!("{} {:?}", self.op, self.inputs);
        for (name, value) in &self.attributes {
            let _ = write!(key, " {name}={value:?}");
        }
        let _ = write!(key, " {:?}", self.outputs);
        key
    }
}

/// Whether an attribute, which is an f32, holds the number as exactly as a tensor of the dtype would.
pub(super) fn is_exact(value: f64, dtype: DType) -> bool {
    dtype != DType::F64 || f64::from(value as f32) == value
}
