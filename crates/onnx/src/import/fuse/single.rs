//! Preparation of single nodes whose weights are constants. Their attributes are read once.

use polygrad_core::{ConvParams, DType, PoolParams, Prepack, Result};
use polygrad_tensor::{Tensor, inference};

use super::Draft;
use super::action::{Cell, Direction, Fused, Recurrent};
use super::foreign::attached;
use crate::graph::{Attribute, Node};
use crate::import::ops::{CLASSICAL, MICROSOFT};
use crate::import::plan::Action;

impl Draft<'_> {
    /// Prepares a step, if its op supports that.
    pub(super) fn single(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i) else { return Ok(()) };
        match (step.node.domain.as_str(), step.node.op_type.as_str()) {
            ("", "Gemm") | (MICROSOFT, "FusedGemm") => self.gemm(i),
            ("", "MatMul") | (MICROSOFT, "FusedMatMul") => self.matmul(i),
            ("", "Conv") | (MICROSOFT, "FusedConv") => self.conv(i),
            ("", "MaxPool") => {
                self.max_pool(i);
                Ok(())
            }
            ("", "LSTM" | "GRU") => self.recurrent(i),
            (MICROSOFT, "DynamicQuantizeLSTM") => self.byte_lstm(i),
            ("", "MatMulInteger" | "ConvInteger") => self.bytes(i, 1, 3),
            ("", "QLinearMatMul" | "QLinearConv") | (MICROSOFT, "QGemm") => self.bytes(i, 3, 5),
            (MICROSOFT, "MatMulIntegerToFloat") => self.bytes(i, 1, 5),
            (MICROSOFT, "MatMulNBits") => self.blocks(i),
            (MICROSOFT, "MatMulBnb4") => self.looked_up(i),
            (CLASSICAL, "TreeEnsemble" | "TreeEnsembleClassifier" | "TreeEnsembleRegressor") => {
                self.trees(i);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A float weight of this rank.
    fn weight(&self, i: usize, operand: usize, rank: usize) -> Result<Option<Tensor>> {
        let weight = self.tensor(i, operand)?;
        Ok(weight.filter(|weight| weight.rank() == rank && weight.dtype().is_float()))
    }

    fn gemm(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i) else { return Ok(()) };
        let node = &step.node;
        let plain = flag(node, "transA") == Some(0) && one(node, "alpha") && one(node, "beta");
        let (Some(transposed), true) = (flag(node, "transB"), plain) else {
            return Ok(());
        };
        let Some(activation) = attached(node) else {
            return Ok(());
        };
        let (x, bias) = (self.slot(i, 0), self.slot(i, 2));
        let Some(weight) = self.weight(i, 1, 2)? else {
            return Ok(());
        };
        let weight = if transposed == 0 { weight.t()? } else { weight };
        let bias = match bias {
            None => None,
            Some(_) => match self.bias(i, 2, (weight.shape()[0], weight.dtype()))? {
                None => return Ok(()),
                bias => bias,
            },
        };
        let fused = Fused::Linear {
            matrix: true,
            packed: None,
            activation,
        };
        self.linear(i, x, weight, bias, fused);
        Ok(())
    }

    fn matmul(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i) else { return Ok(()) };
        let node = &step.node;
        let others = ["transA", "transBatchA", "transBatchB"];
        let plain = others.into_iter().all(|name| flag(node, name) == Some(0)) && one(node, "alpha");
        let (Some(transposed), true) = (flag(node, "transB"), plain) else {
            return Ok(());
        };
        let x = self.slot(i, 0);
        match self.weight(i, 1, 2)? {
            Some(weight) if self.constant(i, 0).is_none() => {
                let weight = if transposed == 0 { weight.t()? } else { weight };
                let fused = Fused::Linear {
                    matrix: false,
                    packed: None,
                    activation: None,
                };
                self.linear(i, x, weight, None, fused);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A bias for `count` outputs, of this dtype. The operand must have `count` numbers along its last axis, and no
    /// others.
    pub(super) fn bias(&self, i: usize, operand: usize, (count, dtype): (usize, DType)) -> Result<Option<Tensor>> {
        let Some(bias) = self.tensor(i, operand)? else {
            return Ok(None);
        };
        let shape = bias.shape();
        let fits = shape.rank() == 1 || (shape.rank() == 2 && shape[0] == 1);
        if !fits || shape.numel() != count || shape[shape.rank() - 1] != count || bias.dtype() != dtype {
            return Ok(None);
        }
        bias.reshape([count]).map(Some)
    }

    pub(super) fn linear(&mut self, i: usize, x: Option<usize>, weight: Tensor, bias: Option<Tensor>, fused: Fused) {
        let weight = self.add(weight);
        let bias = bias.map(|bias| self.add(bias));
        self.replace(i, &[], fused, &[x, Some(weight), bias]);
    }

    fn conv(&mut self, i: usize) -> Result<()> {
        let x = self.slot(i, 0);
        let Some(weight) = self.tensor(i, 1)? else {
            return Ok(());
        };
        let spatial = weight.rank().saturating_sub(2);
        let Some(step) = self.step(i) else { return Ok(()) };
        let Some(params) = conv_params(&step.node, &weight.dims()[2.min(weight.rank())..]) else {
            return Ok(());
        };
        let Some(activation) = attached(&step.node) else {
            return Ok(());
        };
        if !(1..=3).contains(&spatial) || !weight.dtype().is_float() {
            return Ok(());
        }
        let bias = match self.slot(i, 2) {
            None => Tensor::full([weight.shape()[0]], 0.0, (self.device, weight.dtype()))?,
            Some(_) => match self.tensor(i, 2)? {
                Some(bias) if bias.shape().dims() == [weight.shape()[0]] && bias.dtype() == weight.dtype() => bias,
                _ => return Ok(()),
            },
        };
        let (weight, bias, rest) = (self.add(weight), self.add(bias), self.slot(i, 3));
        let fused = Fused::Conv { params, activation };
        let inputs = [x, Some(weight), Some(bias), rest];
        self.replace(i, &[], fused, &inputs[..3 + usize::from(rest.is_some())]);
        Ok(())
    }

    fn max_pool(&mut self, i: usize) {
        let x = self.slot(i, 0);
        let Some(step) = self.step(i) else { return };
        if step.outputs.iter().skip(1).any(Option::is_some) {
            return;
        }
        let Action::Op(general) = step.action else { return };
        if let Some(params) = pool_params(&step.node) {
            self.replace(i, &[], Fused::MaxPool { params, general }, &[x]);
        }
    }

    fn recurrent(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i) else { return Ok(()) };
        let Action::Op(row) = step.action else { return Ok(()) };
        let (node, general) = (&step.node, row);
        let cell = match (node.op_type.as_str(), flag(node, "linear_before_reset")) {
            ("LSTM", _) => Cell::Lstm,
            (_, Some(after)) => Cell::Gru {
                reset_after: after != 0,
            },
            (_, None) => return Ok(()),
        };
        let gates = cell.gates();
        let batch_first = flag(node, "layout") == Some(1);
        let plain = is_plain(node, cell) && self.slot(i, 4).is_none() && self.slot(i, 7).is_none();
        let Some(reverse) = directions(node) else {
            return Ok(());
        };
        let (Some(w), Some(r)) = (self.weight(i, 1, 3)?, self.weight(i, 2, 3)?) else {
            return Ok(());
        };
        let (count, size) = (reverse.len(), r.shape()[2]);
        let rows = gates.len() * size;
        let fits = w.shape()[..2] == [count, rows] && r.shape()[..2] == [count, rows] && w.dtype() == r.dtype();
        let b = match self.slot(i, 3) {
            None => Tensor::full([count, 2 * rows], 0.0, (self.device, w.dtype()))?,
            Some(_) => match self.tensor(i, 3)? {
                Some(b) if b.shape().dims() == [count, 2 * rows] && b.dtype() == w.dtype() => b,
                _ => return Ok(()),
            },
        };
        if !plain || !fits || size == 0 {
            return Ok(());
        }
        let ordered = |x: &Tensor| {
            let parts = gates.iter().map(|gate| x.narrow(0, gate * size, size));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)
        };
        let ready = |x: Tensor| inference::prepacked(&ordered(&x)?, Prepack::Linear);
        // The bias is used in two parts if the reset gate is applied before the product.
        let own = |x: Tensor| match cell {
            Cell::Gru { reset_after: false } => ordered(&x),
            _ => ready(x),
        };
        let mut directions = Vec::with_capacity(count);
        for (at, &reverse) in reverse.iter().enumerate() {
            let of = |x: &Tensor| x.select(0, at as isize);
            let bias = of(&b)?;
            directions.push(Direction {
                weights: [ready(of(&w)?)?, own(of(&r)?)?],
                biases: [
                    ordered(&bias.narrow(0, 0, rows)?)?,
                    ordered(&bias.narrow(0, rows, rows)?)?,
                ],
                reverse,
            });
        }
        let layer = Recurrent {
            general,
            cell,
            directions,
            size,
            batch_first,
        };
        if let Some(step) = &mut self.steps[i] {
            step.action = Action::Fused(Box::new(Fused::Recurrent(layer)));
        }
        Ok(())
    }
}

/// Whether the cell of a recurrent node has the activation functions that it has by default, and nothing beyond them.
pub(super) fn is_plain(node: &Node, cell: Cell) -> bool {
    let defaults: &[&str] = match cell {
        Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        Cell::Gru { .. } => &["Sigmoid", "Tanh"],
    };
    let functions = match node.attribute("activations") {
        None => true,
        Some(Attribute::Strings(names)) => names.iter().eq(defaults.iter().cycle().take(names.len())),
        Some(_) => false,
    };
    let others = ["activation_alpha", "activation_beta", "clip"];
    functions && others.iter().all(|name| node.attribute(name).is_none()) && flag(node, "input_forget") == Some(0)
}

/// For each direction of a recurrent node, whether it begins with the last step.
pub(super) fn directions(node: &Node) -> Option<&'static [bool]> {
    match node.attribute("direction") {
        None => Some(&[false]),
        Some(Attribute::String(text)) => match text.as_str() {
            "forward" => Some(&[false]),
            "reverse" => Some(&[true]),
            "bidirectional" => Some(&[false, true]),
            _ => None,
        },
        Some(_) => None,
    }
}

/// An integer attribute, 0 by default; `None` if it has another type.
pub(super) fn flag(node: &Node, name: &str) -> Option<i64> {
    match node.attribute(name) {
        None => Some(0),
        Some(Attribute::Int(value)) => Some(*value),
        Some(_) => None,
    }
}

/// Whether a factor is 1, which is also its default.
fn one(node: &Node, name: &str) -> bool {
    match node.attribute(name) {
        None => true,
        Some(Attribute::Float(value)) => *value == 1.0,
        Some(_) => false,
    }
}

/// A list of `count` extents, or the default if it is left out; `None` if it is invalid.
fn extents(node: &Node, name: &str, default: usize, count: usize) -> Option<Vec<usize>> {
    match node.attribute(name) {
        None => Some(vec![default; count]),
        Some(Attribute::Ints(list)) if list.len() == count => list
            .iter()
            .map(|&v| usize::try_from(v).ok().filter(|&v| v < 1 << 16))
            .collect(),
        Some(_) => None,
    }
}

/// The attributes common to both kinds of windows: kernel, stride, padding and dilation, if the border is the same on
/// both sides.
fn window(node: &Node, kernel: &[usize]) -> Option<[[usize; 3]; 3]> {
    let count = kernel.len();
    let auto = match node.attribute("auto_pad") {
        None => false,
        Some(Attribute::String(text)) => text != "NOTSET",
        Some(_) => true,
    };
    let (stride, dilation) = (
        extents(node, "strides", 1, count)?,
        extents(node, "dilations", 1, count)?,
    );
    let pads = extents(node, "pads", 0, 2 * count)?;
    let all = kernel.iter().chain(&stride).chain(&dilation);
    if auto || pads[..count] != pads[count..] || all.into_iter().any(|&extent| extent == 0) {
        return None;
    }
    let three = |list: &[usize], rest: usize| std::array::from_fn(|i| list.get(i).copied().unwrap_or(rest));
    Some([three(&stride, 1), three(&pads[..count], 0), three(&dilation, 1)])
}

fn conv_params(node: &Node, kernel: &[usize]) -> Option<ConvParams> {
    let [stride, padding, dilation] = window(node, kernel)?;
    if extents(node, "kernel_shape", 1, kernel.len())? != kernel && node.attribute("kernel_shape").is_some() {
        return None;
    }
    let groups = match node.attribute("group") {
        None => 1,
        Some(Attribute::Int(groups)) => usize::try_from(*groups).ok().filter(|&groups| groups > 0)?,
        Some(_) => return None,
    };
    Some(ConvParams {
        stride,
        padding,
        dilation,
        groups,
    })
}

fn pool_params(node: &Node) -> Option<PoolParams> {
    let Some(Attribute::Ints(kernel)) = node.attribute("kernel_shape") else {
        return None;
    };
    let kernel = extents(node, "kernel_shape", 1, kernel.len())?;
    if !(1..=3).contains(&kernel.len()) || flag(node, "ceil_mode") != Some(0) {
        return None;
    }
    let [stride, padding, dilation] = window(node, &kernel)?;
    // The general op handles borders in which a whole window may lie.
    if kernel
        .iter()
        .zip(padding.into_iter().zip(dilation))
        .any(|(&kernel, (padding, dilation))| 2 * padding > kernel || (padding > 0 && dilation > 1))
    {
        return None;
    }
    let mut params = PoolParams::new(std::array::from_fn(|i| kernel.get(i).copied().unwrap_or(1)));
    params.stride = stride;
    params.padding = padding;
    params.dilation = dilation;
    Some(params)
}
