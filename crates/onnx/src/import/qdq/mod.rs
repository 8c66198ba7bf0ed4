//! Quantized ops that a file expresses in floats: DequantizeLinear of the operands, the op, QuantizeLinear.
//!
//! MatMul, Gemm and Conv become one QLinearMatMul, QGemm or QLinearConv each, before anything is folded, since folding
//! would make floats of the weights. That is what such files mean; results may differ by one step where the float
//! product is next to a half. MatMul and Gemm without a QuantizeLinear behind them are products of bytes with a result
//! in f32, and so are MatMulInteger with a Cast and a Mul by the scales; the bias that is added next goes with it. Ops
//! that only move numbers or choose among them run on the bytes if the scale stays the same. Add, Mul and Concat become
//! QLinearAdd, QLinearMul and QLinearConcat.
//!
//! Gelu in five nodes, and products of a value with its sigmoid, become one here, too, so that they may follow a
//! product or a convolution.

mod gated;
mod gelu;
mod unsigned;

use std::cell::RefCell;
use std::collections::HashMap;

use polygrad_core::{DType, HostTensor, Result};

use super::ops::MICROSOFT;
use crate::graph::{Attribute, Body, ElementType, Literal, Node, ValueId};

/// Ops whose results are elements of their first operand, whatever these represent.
pub(crate) const MOVES: [&str; 9] = [
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// The largest relative difference of a bias's scale from the product of the other two.
const CLOSE: f64 = 1e-4;

/// A bias of as many steps of its scale does not fit i32.
const MOST_STEPS: f32 = 2_147_483_520.0;

/// Replacements for a body's own nodes.
#[derive(Default)]
pub(super) struct Fused {
    /// Each replaces the node of the same index, the last one of a fused op; all other nodes stay.
    pub(super) nodes: HashMap<usize, Node>,
    /// Values beyond those of the body.
    pub(super) constants: Vec<(ValueId, Literal)>,
}

/// The ops of a body that are quantized, Gelu, Silu or HardSwish. `trained` says which initializers change.
///
/// # Errors
/// When memory runs out.
pub(super) fn fused(body: &Body, trained: impl Fn(&str) -> bool) -> Result<Fused> {
    let view = View::new(body, trained);
    let nodes = body.nodes.iter().enumerate();
    let fused = nodes.filter_map(|(i, node)| {
        let found = view
            .rounded(node)
            .or_else(|| view.moved(node))
            .or_else(|| view.combined(node));
        let found = found.or_else(|| view.biased(node)).or_else(|| view.unbiased(node));
        Some((i, found.or_else(|| view.gelu(node)).or_else(|| view.gated(node))?))
    });
    let mut nodes = fused.collect();
    let mut constants = view.made.take();
    unsigned::held(&view, body, &mut nodes, &mut constants)?;
    Ok(Fused { nodes, constants })
}

/// A body, with the producers and uses of its values.
struct View<'a> {
    makers: HashMap<ValueId, &'a Node>,
    uses: HashMap<ValueId, usize>,
    constants: HashMap<ValueId, &'a Literal>,
    /// Biases that were quantized, and the number of the body's values, which come before theirs.
    made: RefCell<Vec<(ValueId, Literal)>>,
    count: usize,
}

/// The operands of a DequantizeLinear or QuantizeLinear: values, scale and zero point.
struct Quantized<'a> {
    values: ValueId,
    scale: (ValueId, &'a Literal),
    zero: (ValueId, &'a Literal),
}

/// The operands of a product, and the attributes that its form on bytes also has.
struct Product<'a> {
    x: Quantized<'a>,
    w: Quantized<'a>,
    /// An i32 value.
    bias: Option<ValueId>,
    attributes: Vec<(String, Attribute)>,
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
            made: RefCell::default(),
            count: body.values.len(),
        }
    }

    /// The product that ends with this QuantizeLinear.
    fn rounded(&self, last: &Node) -> Option<Node> {
        let y = self.quantized(last, "QuantizeLinear", |_| false)?;
        let mut inner = self.alone(y.values)?;
        if inner.op_type == "Relu" && inner.domain.is_empty() && first(y.zero.1) == lowest(y.zero.1)? {
            // Negative values are clamped anyway.
            inner = self.alone((*inner.inputs.first()?)?)?;
        }
        let product = self.operands(inner)?;
        let (x, w) = (&product.x, &product.w);
        let mut inputs = [x.values, x.scale.0, x.zero.0, w.values, w.scale.0, w.zero.0]
            .map(Some)
            .to_vec();
        let result = [y.scale.0, y.zero.0].map(Some);
        let (domain, op_type) = match inner.op_type.as_str() {
            "Gemm" => {
                inputs.push(product.bias);
                inputs.extend(result);
                (MICROSOFT, "QGemm")
            }
            op => {
                inputs.extend(result);
                inputs.extend(product.bias.map(Some));
                ("", if op == "Conv" { "QLinearConv" } else { "QLinearMatMul" })
            }
        };
        Some(Node {
            name: inner.name.clone(),
            op_type: op_type.to_owned(),
            domain: domain.to_owned(),
            inputs,
            outputs: last.outputs.clone(),
            attributes: product.attributes,
            ..Node::default()
        })
    }

    /// Add, Mul and Concat of dequantized operands, which end with this QuantizeLinear.
    fn combined(&self, last: &Node) -> Option<Node> {
        let y = self.quantized(last, "QuantizeLinear", |_| false)?;
        let mut inner = self.alone(y.values)?;
        if inner.op_type == "Relu" && inner.domain.is_empty() && first(y.zero.1) == lowest(y.zero.1)? {
            // Negative values are clamped anyway.
            inner = self.alone((*inner.inputs.first()?)?)?;
        }
        let op_type = match inner.op_type.as_str() {
            "Add" => "QLinearAdd",
            "Mul" => "QLinearMul",
            "Concat" => "QLinearConcat",
            _ => return None,
        };
        let mut inputs = Vec::with_capacity(3 * inner.inputs.len() + 2);
        for &operand in inner.inputs.iter().filter(|_| inner.domain.is_empty()) {
            let x = self.quantized(self.maker(operand)?, "DequantizeLinear", |_| false)?;
            inputs.extend([x.values, x.scale.0, x.zero.0].map(Some));
        }
        let own = [y.scale.0, y.zero.0].map(Some);
        let place = if op_type == "QLinearConcat" { 0 } else { inputs.len() };
        inputs.splice(place..place, own);
        (inner.domain.is_empty() && inputs.len() >= 5).then(|| Node {
            name: inner.name.clone(),
            op_type: op_type.to_owned(),
            domain: MICROSOFT.to_owned(),
            inputs,
            outputs: last.outputs.clone(),
            attributes: inner.attributes.clone(),
            ..Node::default()
        })
    }

    /// A product of bytes in f32, and the Add of a bias after it.
    fn biased(&self, last: &Node) -> Option<Node> {
        let plain = last.op_type == "Add" && last.domain.is_empty();
        let &[Some(a), Some(b)] = last.inputs.as_slice() else {
            return None;
        };
        [(a, b), (b, a)].into_iter().find_map(|(product, bias)| {
            let mut node = self.unbiased(self.alone(product).filter(|_| plain)?)?;
            let columns = self.constants.get(&node.inputs[1]?)?.host().shape().last().copied()?;
            let found = self.constants.get(&bias)?;
            let fits = found.element() == ElementType::F32 && found.host().shape().dims() == [columns];
            if !fits || node.op_type != "MatMulIntegerToFloat" {
                return None;
            }
            node.inputs.push(Some(bias));
            node.outputs.clone_from(&last.outputs);
            Some(node)
        })
    }

    fn unbiased(&self, node: &Node) -> Option<Node> {
        self.real(node).or_else(|| self.scaled(node))
    }

    /// The nodes that tools write for an operand that is quantized in each run: MatMulInteger, Cast, and Mul by the
    /// product of the two scales.
    fn scaled(&self, last: &Node) -> Option<Node> {
        let of = |id: ValueId, op_type: &str| {
            let node = self.alone(id)?;
            (node.op_type == op_type && node.domain.is_empty()).then_some(node)
        };
        let plain = last.op_type == "Mul" && last.domain.is_empty();
        let &[Some(a), Some(b)] = last.inputs.as_slice() else {
            return None;
        };
        let (cast, scales) = [(a, b), (b, a)]
            .into_iter()
            .find_map(|(sums, scale)| Some((of(sums, "Cast").filter(|_| plain)?, self.maker(Some(scale))?)))?;
        let product = of((*cast.inputs.first()?)?, "MatMulInteger")?;
        let is_f32 =
            matches!(cast.attribute("to"), Some(Attribute::Int(to)) if *to == i64::from(ElementType::F32.number()));
        let operand = |i: usize| product.inputs.get(i).copied().flatten();
        let (x, w) = (operand(0)?, operand(1)?);
        let &[Some(left), Some(right)] = scales.inputs.as_slice() else {
            return None;
        };
        let one = |id: ValueId| self.dynamic(id, 1) == Some(x);
        let (scale_x, scale_w) = if one(left) { (left, right) } else { (right, left) };
        let weight = self.constants.get(&w)?.host().shape();
        let scale = self.constants.get(&scale_w)?;
        let shape = scale.host().shape();
        let fits = is_f32
            && scales.op_type == "Mul"
            && scales.domain.is_empty()
            && one(scale_x)
            && weight.rank() == 2
            && scale.element() == ElementType::F32
            && shape.rank() <= 1
            && (shape.numel() == 1 || shape.dims() == [weight[1]])
            && operand(2).is_none_or(|zero| self.dynamic(zero, 2) == Some(x));
        let inputs = [Some(x), Some(w), Some(scale_x), Some(scale_w), operand(2), operand(3)];
        fits.then(|| Node {
            name: product.name.clone(),
            op_type: "MatMulIntegerToFloat".to_owned(),
            domain: MICROSOFT.to_owned(),
            inputs: inputs.to_vec(),
            outputs: last.outputs.clone(),
            ..Node::default()
        })
    }

    /// The bytes from the DynamicQuantizeLinear whose output at an index is this value.
    fn dynamic(&self, id: ValueId, place: usize) -> Option<ValueId> {
        let node = self.maker(Some(id))?;
        let is_dynamic = node.op_type == "DynamicQuantizeLinear" && node.domain.is_empty();
        (is_dynamic && node.outputs.get(place) == Some(&Some(id))).then(|| node.outputs[0])?
    }

    /// A product of bytes whose result is f32.
    fn real(&self, node: &Node) -> Option<Node> {
        let product = self.operands(node)?;
        let (x, w) = (&product.x, &product.w);
        let (op_type, inputs) = match node.op_type.as_str() {
            "MatMul" => {
                let inputs = [x.values, w.values, x.scale.0, w.scale.0, x.zero.0, w.zero.0];
                ("MatMulIntegerToFloat", inputs.map(Some).to_vec())
            }
            "Gemm" => {
                let inputs = [x.values, x.scale.0, x.zero.0, w.values, w.scale.0, w.zero.0];
                ("QGemm", inputs.into_iter().map(Some).chain([product.bias]).collect())
            }
            _ => return None,
        };
        Some(Node {
            name: node.name.clone(),
            op_type: op_type.to_owned(),
            domain: MICROSOFT.to_owned(),
            inputs,
            outputs: node.outputs.clone(),
            attributes: product.attributes,
            ..Node::default()
        })
    }

    /// An op that only moves numbers, between a DequantizeLinear and a QuantizeLinear of the same scale, applied to the
    /// bytes.
    fn moved(&self, last: &Node) -> Option<Node> {
        let y = self.quantized(last, "QuantizeLinear", |_| false)?;
        let inner = self.alone(y.values)?;
        let fits = inner.domain.is_empty() && MOVES.contains(&inner.op_type.as_str()) && inner.outputs.len() == 1;
        let x = self.quantized(
            self.maker(*inner.inputs.first().filter(|_| fits)?)?,
            "DequantizeLinear",
            |_| false,
        )?;
        let equal = |a: &Literal, b: &Literal| a.element() == b.element() && first(a) == first(b);
        if !(equal(x.scale.1, y.scale.1) && equal(x.zero.1, y.zero.1)) {
            return None;
        }
        let mut node = inner.clone();
        node.inputs[0] = Some(x.values);
        node.outputs.clone_from(&last.outputs);
        Some(node)
    }

    /// The operands of a product of dequantized values, if the right one is a constant.
    fn operands(&self, node: &Node) -> Option<Product<'a>> {
        if !node.domain.is_empty() {
            return None;
        }
        let turned = matches!(node.attribute("transB"), Some(Attribute::Int(1)));
        let axis: fn(i64) -> bool = match node.op_type.as_str() {
            "MatMul" => |axis| axis == 1 || axis == -1,
            "Gemm" if !plain_gemm(node) => return None,
            "Gemm" if !turned => |axis| axis == 1 || axis == -1,
            "Gemm" => |axis| axis == 0 || axis == -2,
            "Conv" => |axis| axis == 0,
            _ => return None,
        };
        let x = self.quantized(self.maker(*node.inputs.first()?)?, "DequantizeLinear", |_| false)?;
        let w = self.quantized(self.maker(*node.inputs.get(1)?)?, "DequantizeLinear", axis)?;
        let shape = *self.constants.get(&w.values)?.host().shape();
        let fits = match node.op_type.as_str() {
            "Conv" => shape.rank() >= 3,
            _ => shape.rank() == 2,
        };
        let bias = match node.inputs.get(2).copied().flatten() {
            _ if !fits => return None,
            None => None,
            Some(bias) => Some(self.bias(bias, &x, &w)?),
        };
        let attributes = node.attributes.iter();
        let attributes = attributes.filter(|(name, _)| node.op_type != "Gemm" || name == "transB");
        Some(Product {
            x,
            w,
            bias,
            attributes: attributes.cloned().collect(),
        })
    }

    fn maker(&self, id: Option<ValueId>) -> Option<&'a Node> {
        self.makers.get(&id?).copied()
    }

    /// The node that produces a value, if that value is used once.
    fn alone(&self, id: ValueId) -> Option<&'a Node> {
        (self.uses.get(&id) == Some(&1)).then(|| self.maker(Some(id)))?
    }

    /// The operands of a node of this kind whose scale and zero point are constants of 8 bits: single ones, or several
    /// along an axis that `along` accepts.
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
            && matches!(node.domain.as_str(), "" | MICROSOFT)
            && plain
            && matches!(zero.1.element(), ElementType::U8 | ElementType::I8)
            && scale.1.element() == ElementType::F32
            && zero.1.host().shape() == scale.1.host().shape()
            && (count == 1 || (scale.1.host().shape().rank() == 1 && along(axis)));
        fits.then_some(Quantized { values, scale, zero })
    }

    /// The bias in i32: what a DequantizeLinear converts with the scale of the products, or a constant in f32, which is
    /// rounded to that scale, as ONNX Runtime does.
    fn bias(&self, id: ValueId, x: &Quantized<'_>, w: &Quantized<'_>) -> Option<ValueId> {
        self.rounded_bias(id, x, w).or_else(|| self.whole_bias(id, x, w))
    }

    fn rounded_bias(&self, id: ValueId, x: &Quantized<'_>, w: &Quantized<'_>) -> Option<ValueId> {
        let bias = self
            .constants
            .get(&id)
            .filter(|bias| bias.element() == ElementType::F32)?
            .host();
        let scales = w.scale.1.host().to_f64_vec();
        let numbers = bias.to_f64_vec();
        let fits = bias.shape().rank() == 1 && (scales.len() == 1 || scales.len() == numbers.len());
        let all = scales.iter().cycle().zip(numbers.iter().filter(|_| fits));
        let whole = all.map(|(scale, number)| {
            let steps = *number as f32 / (first(x.scale.1) as f32 * *scale as f32);
            (steps.abs() < MOST_STEPS).then(|| steps.round_ties_even() as i32)
        });
        let whole: Vec<i32> = whole.collect::<Option<_>>()?;
        let literal = HostTensor::new(*bias.shape(), whole).ok().filter(|_| fits)?;
        let mut made = self.made.borrow_mut();
        let value = ValueId((self.count + made.len()) as u32);
        made.push((value, literal.into()));
        Some(value)
    }

    fn whole_bias(&self, id: ValueId, x: &Quantized<'_>, w: &Quantized<'_>) -> Option<ValueId> {
        let node = self
            .maker(Some(id))
            .filter(|node| node.op_type == "DequantizeLinear" && matches!(node.domain.as_str(), "" | MICROSOFT))?;
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

/// Whether a Gemm is a plain product of rows of its left operand plus a bias, without factors.
pub(crate) fn plain_gemm(node: &Node) -> bool {
    node.attributes
        .iter()
        .all(|(name, value)| match (name.as_str(), value) {
            ("transA", Attribute::Int(turned)) => *turned == 0,
            ("transB", Attribute::Int(_)) => true,
            ("alpha" | "beta", Attribute::Float(factor)) => *factor == 1.0,
            _ => false,
        })
}

/// The first number, NaN if there is none.
fn first(literal: &Literal) -> f64 {
    literal.host().to_f64_vec().first().copied().unwrap_or(f64::NAN)
}

fn lowest(literal: &Literal) -> Option<f64> {
    literal.element().range().map(|(low, _)| low as f64)
}
