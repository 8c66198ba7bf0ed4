//! Rewrites a body node after node.

use std::collections::{HashMap, HashSet};

use polygrad_core::Result;

use super::layers::Layer;
use super::numbers::{Bytes, Weight};
use crate::graph::{Attribute, Body, ElementType, Literal, Node, TensorType, ValueId, ValueType, free_name};

/// The nodes so far, and the names in use.
pub(crate) struct Writer {
    pub(crate) body: Body,
    pub(crate) nodes: Vec<Node>,
    names: HashSet<String>,
    /// Values derived from a value, by that value and a key.
    made: HashMap<(ValueId, String), Vec<ValueId>>,
}

impl Writer {
    pub(crate) fn new(body: &Body) -> Self {
        let mut body = body.clone();
        let nodes = std::mem::take(&mut body.nodes);
        let names = body.values.iter().map(|value| value.name.clone());
        let names = names.chain(nodes.iter().map(|node| node.name.clone())).collect();
        Self {
            body,
            nodes: Vec::new(),
            names,
            made: HashMap::new(),
        }
    }

    /// The name, or a similar one that is free.
    fn free(&mut self, name: &str) -> String {
        let free = free_name(name, |name| self.names.contains(name));
        self.names.insert(free.clone());
        free
    }

    /// A value like another one, with elements of another type.
    pub(super) fn like(&mut self, id: ValueId, suffix: &str, element: ElementType) -> ValueId {
        let value = self.body.value(id);
        let name = format!("{}_{suffix}", value.name);
        let ty = value.ty.as_ref().and_then(ValueType::as_tensor).map(|ty| {
            let shape = ty.shape.clone();
            ValueType::Tensor(TensorType { element, shape })
        });
        let name = self.free(&name);
        self.body.add_value(name, ty)
    }

    /// A value without a known shape.
    pub(crate) fn value(&mut self, like: ValueId, suffix: &str) -> ValueId {
        let name = format!("{}_{suffix}", self.body.name_of(like));
        let name = self.free(&name);
        self.body.add_value(name, None)
    }

    /// A constant that belongs to a value.
    pub(super) fn constant(&mut self, of: ValueId, suffix: &str, literal: impl Into<Literal>) -> ValueId {
        let name = format!("{}_{suffix}", self.body.name_of(of));
        self.initializer(&name, literal)
    }

    /// A constant of this name, or a similar one.
    pub(crate) fn initializer(&mut self, name: &str, literal: impl Into<Literal>) -> ValueId {
        let name = self.free(name);
        self.body.add_initializer(name, literal)
    }

    /// A value of this name, or a similar one.
    pub(crate) fn named(&mut self, name: &str) -> ValueId {
        let name = self.free(name);
        self.body.add_value(name, None)
    }

    pub(crate) fn node(
        &mut self,
        op_type: &str,
        inputs: &[ValueId],
        outputs: &[ValueId],
        attributes: Vec<(String, Attribute)>,
    ) {
        let made = outputs.first().map_or("", |id| self.body.name_of(*id));
        let name = format!("{made}_{op_type}");
        let name = self.free(&name);
        self.nodes.push(Node {
            name,
            op_type: op_type.to_owned(),
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: outputs.iter().copied().map(Some).collect(),
            attributes,
            ..Node::default()
        });
    }

    /// Values derived from a value, which are created once for all users.
    pub(super) fn once(
        &mut self,
        of: ValueId,
        word: &str,
        make: impl FnOnce(&mut Self) -> Result<Vec<ValueId>>,
    ) -> Result<Vec<ValueId>> {
        let key = (of, word.to_owned());
        if let Some(made) = self.made.get(&key) {
            return Ok(made.clone());
        }
        let made = make(self)?;
        self.made.insert(key, made.clone());
        Ok(made)
    }

    /// `from` rounded to bytes and back, as the value `to`.
    pub(super) fn rounded(&mut self, from: ValueId, to: ValueId, bytes: Bytes) -> Result<()> {
        let [scale, zero] = bytes.literals()?;
        let scale = self.constant(to, "scale", scale);
        let zero = self.constant(to, "zero_point", zero);
        let quantized = self.like(to, "quantized", ElementType::U8);
        self.node("QuantizeLinear", &[from, scale, zero], &[quantized], Vec::new());
        self.node("DequantizeLinear", &[quantized, scale, zero], &[to], Vec::new());
        Ok(())
    }

    /// A layer's weight in 8 bits. `scale` is that of its input, if the bias is to be in 32 bits.
    pub(super) fn weight(&self, layer: &Layer, per_channel: bool, scale: Option<f32>) -> Result<Option<Weight>> {
        let host = |id: ValueId| self.body.initializer(id).map(|initializer| initializer.tensor.host());
        let Some(weight) = host(layer.weight) else {
            return Ok(None);
        };
        let bias = layer.bias.and_then(host).zip(scale);
        let learned = layer.learned.as_ref().map(|learned| learned.weight.as_slice());
        Weight::of(weight, layer.axis, per_channel, learned, bias).map(Some)
    }

    pub(crate) fn done(mut self) -> Body {
        self.body.nodes = self.nodes;
        self.body
    }
}

/// The attribute `axis`, if there are several scales.
pub(super) fn along(axis: usize, scales: usize) -> Vec<(String, Attribute)> {
    match scales {
        1 => Vec::new(),
        _ => vec![("axis".to_owned(), Attribute::Int(axis as i64))],
    }
}
