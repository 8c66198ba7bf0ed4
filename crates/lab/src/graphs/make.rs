//! Random graphs, valid by construction: each node is run when it is added, so that the shapes and magnitudes of all
//! values are known.

use polygrad::backend::HostTensor;
use polygrad::{DType, Device, Shape};
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Literal, Node, ValueId, ValueType};
use polygrad_onnx::{OnnxModel, Options, Value};

use super::nodes;
use crate::draw::Draw;

/// The opset.
pub(super) const OPSET: i64 = 21;

/// Ops with discontinuous results: numbers that two engines round differently may give arbitrarily different results.
const JUMPS: [&str; 16] = [
    "ArgMax",
    "ArgMin",
    "Cast",
    "Ceil",
    "DynamicQuantizeLinear",
    "Equal",
    "Floor",
    "Greater",
    "GreaterOrEqual",
    "Hardmax",
    "Less",
    "LessOrEqual",
    "QuantizeLinear",
    "Round",
    "Sign",
    "TopK",
];

/// Ops that do not round real numbers: they move or select them, or return integers.
const KEEPS: [&str; 37] = [
    "Abs",
    "Cast",
    "Ceil",
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "GlobalMaxPool",
    "Hardmax",
    "Identity",
    "Max",
    "MaxPool",
    "Min",
    "Neg",
    "OneHot",
    "Pad",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Reshape",
    "Round",
    "ScatterND",
    "Shape",
    "Sign",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "TopK",
    "Transpose",
    "Unsqueeze",
    "Where",
];

/// A value that later nodes may use.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) id: ValueId,
    pub(super) value: Literal,
    /// Whether it is a constant in the file, independent of the inputs.
    pub(super) fixed: bool,
    /// Whether it has the same bits in every engine: inputs, constants, and values that are moved, compared or counted
    /// from them.
    pub(super) exact: bool,
}

impl Made {
    pub(super) fn dims(&self) -> &[usize] {
        self.value.host().shape().dims()
    }

    pub(super) fn rank(&self) -> usize {
        self.dims().len()
    }
}

/// A graph under construction.
pub(super) struct Maker<'a> {
    pub(super) draw: Draw,
    device: &'a Device,
    body: Body,
    pub(super) all: Vec<Made>,
    /// Nodes that Polygrad rejects: their graphs are only run in ONNX Runtime.
    pub(super) refused: Vec<(Graph, Vec<Literal>, String)>,
}

/// A graph, its inputs, and nodes that Polygrad rejects although they were meant to be valid.
pub(super) struct Drawn {
    pub(super) graph: Graph,
    pub(super) inputs: Vec<Literal>,
    pub(super) refused: Vec<(Graph, Vec<Literal>, String)>,
}

/// The graph of a seed and an index.
pub(super) fn graph(seed: u64, index: u64, device: &Device) -> Drawn {
    let mut maker = Maker {
        draw: Draw::new(seed, index),
        device,
        body: Body {
            name: format!("{seed}/{index}"),
            ..Body::default()
        },
        all: Vec::new(),
        refused: Vec::new(),
    };
    let inputs = maker.draw.between(1, 3) as usize;
    for _ in 0..inputs {
        let rank = maker.draw.between(1, 4) as usize;
        let dims: Vec<usize> = (0..rank).map(|_| maker.draw.between(1, 5) as usize).collect();
        let value = maker.reals(&dims, 2.0);
        maker.input(value);
    }
    let nodes = maker.draw.between(5, 60);
    let mut tries = 0;
    while (maker.body.nodes.len() as i64) < nodes && tries < 4 * nodes {
        tries += 1;
        nodes::add(&mut maker);
    }
    maker.finish()
}

impl Maker<'_> {
    fn name(&self) -> String {
        format!("v{}", self.body.values.len())
    }

    fn input(&mut self, value: Literal) -> Made {
        let dims = value.host().shape().iter().map(|&extent| Dim::Fixed(extent)).collect();
        let id = self
            .body
            .add_value(self.name(), Some(ValueType::tensor(value.element(), dims)));
        self.body.inputs.push(id);
        self.all.push(Made {
            id,
            value,
            fixed: false,
            exact: true,
        });
        self.all[self.all.len() - 1].clone()
    }

    /// A new constant in the file. Other nodes may use it too.
    pub(super) fn fixed(&mut self, value: Literal) -> Made {
        let id = self.body.add_initializer(self.name(), value.clone());
        Made {
            id,
            value,
            fixed: true,
            exact: true,
        }
    }

    /// Real numbers up to an absolute value of `size`.
    pub(super) fn reals(&mut self, dims: &[usize], size: f64) -> Literal {
        let shape = Shape::new(dims).expect("of rank 8 at most");
        let values: Vec<f32> = (0..shape.numel()).map(|_| (self.draw.real() * size) as f32).collect();
        HostTensor::new(shape, values)
            .expect("as many as the shape says")
            .into()
    }

    pub(super) fn reals_fixed(&mut self, dims: &[usize], size: f64) -> Made {
        let value = self.reals(dims, size);
        self.fixed(value)
    }

    pub(super) fn integers(&mut self, values: &[i64]) -> Made {
        let host = HostTensor::new(Shape::from([values.len()]), values.to_vec());
        self.fixed(host.expect("as many as the shape says").into())
    }

    /// A random value that fulfils `fits`.
    pub(super) fn pick(&mut self, fits: impl Fn(&Made) -> bool) -> Option<Made> {
        let fitting: Vec<usize> = (0..self.all.len()).filter(|&i| fits(&self.all[i])).collect();
        // Later ones are likelier, so that graphs become deep.
        let i = fitting.len().checked_sub(1)?;
        let at = if self.draw.one_in(2) {
            self.draw.below(i + 1)
        } else {
            i - self.draw.below((i + 1).min(4))
        };
        Some(self.all[fitting[at]].clone())
    }

    pub(super) fn real(&mut self) -> Option<Made> {
        self.pick(|made| made.value.element() == ElementType::F32)
    }

    pub(super) fn real_of_rank(&mut self, ranks: std::ops::RangeInclusive<usize>) -> Option<Made> {
        self.pick(|made| made.value.element() == ElementType::F32 && ranks.contains(&made.rank()))
    }

    /// Adds a node and returns its results, unless they are unsuitable for others: too large, too many, or not numbers;
    /// or discontinuous although the operands have been rounded.
    pub(super) fn node(
        &mut self,
        op: &str,
        inputs: &[Option<&Made>],
        outputs: usize,
        attributes: Vec<(&str, Attribute)>,
    ) -> Option<Vec<Made>> {
        let is_exact = inputs.iter().flatten().all(|made| made.exact);
        if JUMPS.contains(&op) && !is_exact {
            return None;
        }
        let attributes: Vec<(String, Attribute)> = attributes
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let graph = alone(op, inputs, outputs, &attributes);
        let given: Vec<Literal> = inputs.iter().flatten().map(|made| made.value.clone()).collect();
        let values = match run(&graph, &given, self.device) {
            Ok(values) => values,
            Err(error) => {
                self.refused.push((graph, given, error.to_string()));
                return None;
            }
        };
        if !values.iter().all(fit) {
            return None;
        }
        let fixed = inputs.iter().flatten().all(|made| made.fixed);
        let made: Vec<Made> = values
            .into_iter()
            .map(|value| Made {
                id: self.body.add_value(format!("v{}", self.body.values.len()), None),
                exact: is_exact && (value.element() != ElementType::F32 || KEEPS.contains(&op)),
                value,
                fixed,
            })
            .collect();
        self.body.nodes.push(Node {
            name: format!("n{}", self.body.nodes.len()),
            op_type: op.to_owned(),
            inputs: inputs.iter().map(|made| made.map(|made| made.id)).collect(),
            outputs: made.iter().map(|made| Some(made.id)).collect(),
            attributes,
            ..Node::default()
        });
        self.all.extend(made.iter().cloned());
        Some(made)
    }

    /// Unused values become outputs, and so do some of the others.
    fn finish(mut self) -> Drawn {
        let taken: Vec<ValueId> = self
            .body
            .nodes
            .iter()
            .flat_map(|node| node.inputs.iter().flatten().copied())
            .collect();
        let made: Vec<Made> = self
            .all
            .iter()
            .filter(|made| !self.body.inputs.contains(&made.id))
            .cloned()
            .collect();
        for value in &made {
            if !taken.contains(&value.id) || self.draw.one_in(8) {
                self.body.outputs.push(value.id);
            }
        }
        for value in &made {
            if self.body.outputs.contains(&value.id) {
                self.body.values[value.id.index()].ty = Some(unknown(&value.value));
            }
        }
        let inputs = self.body.inputs.iter();
        let inputs = inputs.map(|id| {
            self.all
                .iter()
                .find(|made| made.id == *id)
                .expect("an input was made")
                .value
                .clone()
        });
        let inputs = inputs.collect();
        Drawn {
            graph: whole(self.body),
            inputs,
            refused: self.refused,
        }
    }
}

/// A tensor's type with unknown extents, since those of outputs are optional.
pub(super) fn unknown(value: &Literal) -> ValueType {
    ValueType::tensor(value.element(), vec![Dim::Unknown; value.host().shape().rank()])
}

/// A body as a complete graph.
pub(super) fn whole(body: Body) -> Graph {
    Graph {
        opsets: [(String::new(), OPSET)].into(),
        body,
        ..Graph::default()
    }
}

/// A graph of only this node, whose operands are all inputs.
fn alone(op: &str, inputs: &[Option<&Made>], outputs: usize, attributes: &[(String, Attribute)]) -> Graph {
    let mut body = Body {
        name: "one".to_owned(),
        ..Body::default()
    };
    let mut operands = Vec::new();
    for (i, made) in inputs.iter().enumerate() {
        operands.push(made.map(|made| {
            let dims = made.dims().iter().map(|&extent| Dim::Fixed(extent)).collect();
            let id = body.add_value(format!("x{i}"), Some(ValueType::tensor(made.value.element(), dims)));
            body.inputs.push(id);
            id
        }));
    }
    let results: Vec<ValueId> = (0..outputs).map(|i| body.add_value(format!("y{i}"), None)).collect();
    body.nodes = vec![Node {
        op_type: op.to_owned(),
        inputs: operands,
        outputs: results.iter().copied().map(Some).collect(),
        attributes: attributes.to_vec(),
        ..Node::default()
    }];
    body.outputs = results;
    whole(body)
}

/// The outputs as literals.
pub(super) fn run(graph: &Graph, inputs: &[Literal], device: &Device) -> polygrad::Result<Vec<Literal>> {
    let options = Options {
        fuse: false,
        fold_constants: false,
        ..Options::default()
    };
    let model = OnnxModel::from_graph(graph, device, options)?;
    let outputs = model.run_ordered(inputs.iter().cloned().map(Value::from))?;
    outputs.iter().map(|(_, value)| value.literal()).collect()
}

/// Whether other nodes may use it: it has few elements, none of them large, and no NaN.
fn fit(value: &Literal) -> bool {
    let host = value.host();
    let count = host.shape().numel();
    if count == 0 || count > 2000 || host.shape().rank() > 5 {
        return false;
    }
    host.dtype() == DType::Bool || host.to_f64_vec().into_iter().all(|v| v.abs() < 1e4)
}
