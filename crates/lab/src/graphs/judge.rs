//! One graph run in several ways: node by node, fused and folded, after writing and reading it, and by ONNX Runtime.

use polygrad::DType;
use polygrad::backend::HostTensor;
use polygrad_onnx::graph::{Graph, Literal};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};

use super::Bench;
use crate::draw::Draw;

/// The relative size by which inputs are perturbed to see the effect of rounding on the outputs: one rounding of f32.
const NUDGE: f64 = 6e-8;
/// The number of perturbed runs.
const NUDGES: u64 = 4;
/// The tolerance as a multiple of the effect of perturbed inputs: each node rounds, but the inputs are only perturbed
/// once.
const TIMES: f64 = 64.0;
/// The tolerance if perturbed inputs have no effect, as a share of the largest element, or of 0.5: values of that size
/// are rounded before a node subtracts them.
const FLOOR: f64 = 4e-6;

/// A way to run a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Node by node.
    Plain,
    /// Fused and folded, the default for users.
    Fused,
    /// By ONNX Runtime.
    Ort,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "node by node",
            Self::Fused => "fused",
            Self::Ort => "ONNX Runtime",
        }
    }
}

/// Runs a graph.
///
/// # Errors
/// Errors of the engine.
pub(super) fn run(graph: &Graph, inputs: &[Literal], bench: Bench<'_>, way: Way) -> polygrad::Result<Vec<HostTensor>> {
    if way == Way::Ort {
        return bench.peers.run(Engine::Ort, Some(1), graph, inputs);
    }
    let options = Options {
        threads: Some(1),
        fuse: way == Way::Fused,
        fold_constants: way == Way::Fused,
        ..Options::default()
    };
    let model = OnnxModel::from_graph(graph, bench.device, options)?;
    let outputs = model.run_ordered(inputs.iter().cloned().map(Value::from))?;
    outputs.iter().map(|(_, value)| value.host()).collect()
}

/// A difference between two ways: the output, and a description.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) way: Way,
    /// The index of the output; `None` if the way rejects the graph.
    pub(super) output: Option<usize>,
    pub(super) what: String,
}

/// The tolerance for each output of a graph.
pub(super) struct Allowed {
    truth: Vec<HostTensor>,
    /// By output and element.
    by: Vec<Vec<f64>>,
}

impl Allowed {
    /// From runs with perturbed inputs, node by node.
    ///
    /// # Errors
    /// If the graph does not run.
    pub(super) fn of(graph: &Graph, inputs: &[Literal], bench: Bench<'_>) -> polygrad::Result<Self> {
        let truth = run(graph, inputs, bench, Way::Plain)?;
        let mut by: Vec<Vec<f64>> = truth.iter().map(|host| vec![0.0; host.shape().numel()]).collect();
        for seed in 0..NUDGES {
            let moved = nudged(graph, seed);
            let inputs: Vec<Literal> = inputs
                .iter()
                .map(|value| nudge(value, &mut Draw::new(seed, 1)))
                .collect();
            let found = run(&moved, &inputs, bench, Way::Plain)?;
            for ((bounds, found), truth) in by.iter_mut().zip(&found).zip(&truth) {
                if found.shape() != truth.shape() {
                    bounds.fill(f64::INFINITY);
                    continue;
                }
                for ((bound, a), b) in bounds.iter_mut().zip(found.to_f64_vec()).zip(truth.to_f64_vec()) {
                    *bound = bound.max((a - b).abs());
                }
            }
        }
        Ok(Self { truth, by })
    }

    /// The first output of a way that exceeds the tolerance.
    pub(super) fn fault(&self, way: Way, found: polygrad::Result<Vec<HostTensor>>) -> Option<Fault> {
        let fault = |output, what| Some(Fault { way, output, what });
        let found = match found {
            Ok(found) => found,
            Err(error) => return fault(None, error.to_string()),
        };
        for (i, (found, truth)) in found.iter().zip(&self.truth).enumerate() {
            let unsteady = self.by[i].iter().any(|bound| bound.is_infinite());
            if found.dtype() != truth.dtype() || (found.shape() != truth.shape() && !unsteady) {
                let [found, truth] = [found, truth].map(|host| format!("{}{}", host.dtype(), host.shape()));
                return fault(Some(i), format!("{found} instead of {truth}"));
            }
            let largest = truth
                .to_f64_vec()
                .iter()
                .fold(0.0f64, |largest, v| largest.max(v.abs()));
            // The largest tolerance of an output covers its other elements, since rounding may move a jump or change an
            // order.
            let most = self.by[i].iter().fold(0.0f64, |most, &bound| most.max(bound));
            let floor = if truth.dtype() == DType::F32 {
                FLOOR * largest.max(0.5)
            } else {
                0.0
            };
            let values = found.to_f64_vec().into_iter().zip(truth.to_f64_vec()).enumerate();
            for (j, (a, b)) in values {
                let same = a == b || (a.is_nan() && b.is_nan());
                let is_near = (a - b).abs() <= floor + TIMES * most;
                if !same && !is_near {
                    return fault(Some(i), format!("element {j} is {a:?} instead of {b:?}"));
                }
            }
        }
        None
    }
}

/// A graph whose real constants are perturbed.
fn nudged(graph: &Graph, seed: u64) -> Graph {
    let mut graph = graph.clone();
    let mut draw = Draw::new(seed, 2);
    for initializer in &mut graph.body.initializers {
        // Limits, scales and other single numbers are kept as they are.
        if initializer.tensor.host().shape().numel() > 1 {
            initializer.tensor = nudge(&initializer.tensor, &mut draw);
        }
    }
    graph
}

fn nudge(value: &Literal, draw: &mut Draw) -> Literal {
    let host = value.host();
    if !host.dtype().is_float() {
        return value.clone();
    }
    let moved: Vec<f64> = host
        .to_f64_vec()
        .into_iter()
        .map(|v| v * (1.0 + draw.real().signum() * NUDGE))
        .collect();
    let moved = HostTensor::new(*host.shape(), moved).expect("as many as before");
    Literal::new(value.element(), moved.cast(host.dtype())).expect("the element type stays")
}
