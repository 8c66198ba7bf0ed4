//! Quantized products that a file writes in floats: DequantizeLinear of both operands, MatMul or Conv, QuantizeLinear.
//!
//! They become one QLinearMatMul or QLinearConv each, before anything is folded, since folding would make floats of
//! the weights. That is what such files mean; results may differ by one step where the float product is next to a half.

use std::collections::HashMap;

use polygrad_core::DType;

use crate::graph::{Attribute, Body, ElementType, Literal, Node, ValueId};

/// How far a bias's scale may be from the product of the other two.
const CLOSE: f64 = 1e-4;

/// The nodes of a body with such products in the place of the last node of each, and nothing else changed: the nodes
/// before it are no longer needed where nobody else uses what they give. `None` if there are none. `trained` says which
/// initializers change.
pub(super) fn products(body: &Body, trained: impl Fn(&str) -> bool) -> Option<Vec<Node>> {
    let view = View::new(body, trained);
    let mut nodes = None;
    for (i, node) in body.nodes.iter().enumerate() {
        if let Some(product) = view.product(node) {
            nodes.get_or_insert_with(|| body.nodes.clone())[i] = product;
        }
    }
    nodes
}

/// A body, and who makes and uses what.
struct View<'a> {
    makers: HashMap<ValueId, &'a Node>,
    uses: HashMap<ValueId, usize>,
    constants: HashMap<ValueId, &'a Literal>,
}

/// The operands of a DequantizeLinear or QuantizeLinear: values, scale and zero point.
struct Quantized<'a> {
    values: ValueId,
    scale: (ValueId, &'a Literal),
    zero: (ValueId, &'a Literal),
}

impl<'a> View<'a> {
    fn new(body: &'a Body, trained: impl Fn(&str) -> bool) -> Self {
        let mut uses = HashMap::new();
        let inner = body.nodes.iter().flat_map(|node| &node.attributes);
        let captured = inner.flat_map(|(_, attribute)| attribute.bodies());
        let captured = captured.flat_map(|body| body.captures.iter().map(|capture| capture.outer));
        let read = body.nodes.iter().flat_map(|node| node.inputs.iter().flatten().copied());
        for id in read.chain(captured).chain(body.outputs.iter().copied()) {
            *uses.entry(id).or_insert(0) += 1;
        }
        let made = body
            .nodes
            .iter()
            .flat_map(|node| node.outputs.iter().flatten().map(move |id| (*id, node)));
        let fixed = body.initializers.iter().filter(|initializer| {
            !body.inputs.contains(&initializer.value) && !trained(body.name_of(initializer.value))
        });
        let written = body
            .nodes
            .iter()
            .filter_map(|node| match (node.op_type.as_str(), node.attribute("value")) {
                ("Constant", Some(Attribute::Tensor(literal))) => Some(((*node.outputs.first()?)?, literal)),
                _ => None,
            });
        Self {
            makers: made.collect(),
            uses,
            constants: fixed
                .map(|initializer| (initializer.value, &initializer.tensor))
                .chain(written)
                .collect(),
        }
    }

    /// The product that ends with a node.
    fn product(&self, last: &Node) -> Option<Node> {
        let y = self.quantized(last, "QuantizeLinear", |_| false)?;
        let mut inner = self.alone(y.values)?;
        if inner.op_type == "Relu" && inner.domain.is_empty() && first(y.zero.1) == lowest(y.zero.1)? {
            // What is below 0 is cut off anyway.
            inner = self.alone((*inner.inputs.first()?)?)?;
        }
        if !inner.domain.is_empty() {
            return None;
        }
        let rank = |w: &Quantized<'_>| {
            self.constants
                .get(&w.values)
                .map(|literal| literal.host().shape().rank())
        };
        let (op_type, axis): (_, fn(i64) -> bool) = match inner.op_type.as_str() {
            "MatMul" => ("QLinearMatMul", |axis| axis == 1 || axis == -1),
            "Conv" => ("QLinearConv", |axis| axis == 0),
            _ => return None,
        };
        let x = self.quantized(self.maker(*inner.inputs.first()?)?, "DequantizeLinear", |_| false)?;
        let w = self.quantized(self.maker(*inner.inputs.get(1)?)?, "DequantizeLinear", axis)?;
        let fits = match op_type {
            "QLinearMatMul" => rank(&w)? == 2,
            _ => rank(&w)? >= 3,
        };
        if !fits {
            return None;
        }
        let operands = [
            x.values, x.scale.0, x.zero.0, w.values, w.scale.0, w.zero.0, y.scale.0, y.zero.0,
        ];
        let mut inputs: Vec<Option<ValueId>> = operands.into_iter().map(Some).collect();
        if let Some(&Some(bias)) = inner.inputs.get(2) {
            inputs.push(Some(self.bias(bias, &x, &w)?));
        }
        Some(Node {
            name: inner.name.clone(),
            op_type: op_type.to_owned(),
            inputs,
            outputs: last.outputs.clone(),
            attributes: inner.attributes.clone(),
            ..Node::default()
        })
    }

    fn maker(&self, id: Option<ValueId>) -> Option<&'a Node> {
        self.makers.get(&id?).copied()
    }

    /// The node that makes a value which is used once.
    fn alone(&self, id: ValueId) -> Option<&'a Node> {
        (self.uses.get(&id) == Some(&1)).then(|| self.maker(Some(id)))?
    }

    /// The operands of a node of this kind whose scale and zero point are constants of 8 bits: one, or several along an
    /// axis that `along` says yes to.
    fn quantized(&self, node: &Node, op_type: &str, along: impl Fn(i64) -> bool) -> Option<Quantized<'a>> {
        let &[Some(values), Some(scale), Some(zero)] = node.inputs.as_slice() else {
            return None;
        };
        let constant = |id: ValueId| Some((id, *self.constants.get(&id)?));
        let (scale, zero) = (constant(scale)?, constant(zero)?);
        let axis = match node.attribute("axis") {
            None => 1,
            Some(Attribute::Int(axis)) => *axis,
            Some(_) => return None,
        };
        let plain = node.attributes.iter().all(|(name, _)| name == "axis");
        let count = scale.1.host().shape().numel();
        let fits = node.op_type == op_type
            && node.domain.is_empty()
            && plain
            && matches!(zero.1.element(), ElementType::U8 | ElementType::I8)
            && scale.1.element() == ElementType::F32
            && zero.1.host().shape() == scale.1.host().shape()
            && (count == 1 || (scale.1.host().shape().rank() == 1 && along(axis)));
        fits.then_some(Quantized { values, scale, zero })
    }

    /// The bias of i32 of which a DequantizeLinear makes one with the scale of the products.
    fn bias(&self, id: ValueId, x: &Quantized<'_>, w: &Quantized<'_>) -> Option<ValueId> {
        let node = self
            .maker(Some(id))
            .filter(|node| node.op_type == "DequantizeLinear" && node.domain.is_empty())?;
        let &[Some(values), Some(scale), ref zero @ ..] = node.inputs.as_slice() else {
            return None;
        };
        let numbers = |literal: &Literal| literal.host().to_f64_vec();
        if let Some(Some(zero)) = zero.first()
            && numbers(self.constants.get(zero)?).iter().any(|&zero| zero != 0.0)
        {
            return None;
        }
        let bias = *self.constants.get(&values)?;
        let (found, scales) = (numbers(self.constants.get(&scale)?), numbers(w.scale.1));
        let outputs = bias.host().shape().numel();
        let of = |list: &[f64], i: usize| {
            if list.len() == 1 {
                Some(list[0])
            } else {
                list.get(i).copied()
            }
        };
        let close = |i: usize| {
            let (found, wanted) = (of(&found, i)?, first(x.scale.1) * of(&scales, i)?);
            Some((found - wanted).abs() <= CLOSE * wanted.abs())
        };
        let fits = bias.host().dtype() == DType::I32 && bias.element() == ElementType::I32;
        (fits && (0..outputs).all(|i| close(i) == Some(true))).then_some(values)
    }
}

/// The first number, NaN if there is none.
fn first(literal: &Literal) -> f64 {
    literal.host().to_f64_vec().first().copied().unwrap_or(f64::NAN)
}

fn lowest(literal: &Literal) -> Option<f64> {
    literal.element().range().map(|(low, _)| low as f64)
}
