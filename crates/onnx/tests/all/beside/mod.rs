//! Single nodes compared with ONNX Runtime, over many extents and values. Where the two differ, a test asserts it and
//! docs/differences.md explains it.

mod elements;
mod pools;
mod resize;
mod sampling;

use polygrad_core::{Element, HostTensor, Result, Shape};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Node, ValueType};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};
use polygrad_tensor::Device;

type Attributes<'a> = &'a [(&'a str, Attribute)];

fn text(value: &str) -> Attribute {
    Attribute::String(value.into())
}

fn tensor<T: Element>(dims: &[usize], values: Vec<T>) -> Value {
    HostTensor::new(Shape::new(dims).unwrap(), values).unwrap().into()
}

fn list<T: Element>(values: &[T]) -> Value {
    tensor(&[values.len()], values.to_vec())
}

/// Irregular numbers between −2 and 2.
fn mixed(count: usize) -> Vec<f32> {
    (0..count as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 22) as f32 - 2.0)
        .collect()
}

/// The element type and the extents of an operand; an extent of 0 is known only in a run.
type Input = (ElementType, &'static [usize]);

fn input(element: ElementType, extents: &'static [usize]) -> Option<Input> {
    Some((element, extents))
}

/// One node in both engines.
struct Pair {
    models: [OnnxModel; 2],
    names: Vec<String>,
}

/// The result of an engine: extents and values.
type Found = (Vec<usize>, Vec<f64>);

impl Pair {
    /// A node with these operands; `None` if ONNX Runtime is not found, which other tests report.
    fn new(op: &str, opset: i64, inputs: &[Option<Input>], attributes: Attributes<'_>) -> Option<Self> {
        Engine::Ort.available().ok()?;
        let mut body = Body {
            name: "one".into(),
            ..Body::default()
        };
        let mut operands = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            operands.push(input.map(|(element, extents)| {
                let dim = |(axis, &extent): (usize, &usize)| match extent {
                    0 => Dim::Named(format!("d{i}_{axis}")),
                    extent => Dim::Fixed(extent),
                };
                let dims = extents.iter().enumerate().map(dim).collect();
                let id = body.add_value(format!("x{i}"), Some(ValueType::tensor(element, dims)));
                body.inputs.push(id);
                id
            }));
        }
        body.outputs = vec![body.add_value("y", None)];
        body.nodes = vec![Node {
            name: "the_node".into(),
            op_type: op.into(),
            inputs: operands,
            outputs: body.outputs.iter().copied().map(Some).collect(),
            attributes: attributes
                .iter()
                .map(|(name, value)| ((*name).into(), value.clone()))
                .collect(),
            ..Node::default()
        }];
        let names = body.inputs.iter().map(|&id| body.name_of(id).to_owned()).collect();
        let graph = Graph {
            opsets: [(String::new(), opset)].into(),
            body,
            ..Graph::default()
        };
        let models = [Engine::Native, Engine::Ort].map(|engine| {
            let options = Options {
                engine,
                threads: Some(1),
                ..Options::default()
            };
            OnnxModel::from_graph(&graph, &Device::<Cpu>::default().into_any(), options)
                .unwrap_or_else(|e| panic!("{op} {attributes:?} in {engine}: {e}"))
        });
        Some(Self { models, names })
    }

    fn outcome(&self, model: &OnnxModel, inputs: &[Value]) -> Result<Found> {
        let inputs = self.names.iter().cloned().zip(inputs.iter().cloned());
        let outputs = model.run(inputs)?;
        let (_, value) = outputs.iter().next().expect("there is an output");
        let host = value.host()?;
        Ok((host.shape().to_vec(), host.to_f64_vec()))
    }

    /// Polygrad's result.
    fn ours(&self, inputs: &[Value]) -> Result<Found> {
        self.outcome(&self.models[0], inputs)
    }

    /// Polygrad's result, and ONNX Runtime's.
    fn first(&self, inputs: &[Value]) -> [Found; 2] {
        [0, 1].map(|i| self.outcome(&self.models[i], inputs).unwrap())
    }
}

#[track_caller]
fn close(both: [Found; 2], what: impl Fn() -> String) {
    within(2e-6, both, what);
}

/// Asserts equal extents, and values that agree within a bound; both may be NaN.
#[track_caller]
fn within(bound: f64, [ours, theirs]: [Found; 2], what: impl Fn() -> String) {
    assert_eq!(ours.0, theirs.0, "{}", what());
    for (i, (&a, &b)) in ours.1.iter().zip(&theirs.1).enumerate() {
        // ONNX Runtime's maximum of an empty window is the smallest finite number.
        let lowest = a == f64::NEG_INFINITY && b == f64::from(f32::MIN);
        let same = a == b || lowest || (a.is_nan() && b.is_nan()) || (a - b).abs() <= bound * (1.0 + b.abs());
        assert!(same, "{}: value {i} is {a}, {b} there", what());
    }
}
