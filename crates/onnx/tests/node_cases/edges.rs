//! Nodes that differ from ONNX Runtime for NaN, infinities, and tensors without elements. docs/differences.md lists
//! each.

use std::collections::HashMap;
use std::path::Path;

use polygrad_conformance::differences::{self, Difference};
use polygrad_onnx::graph::{Dim, Graph, Literal, TensorType, ValueType};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};
use polygrad_tensor::{Device, HostTensor, Result, Shape};
use polygrad_testing::node_cases::Archive;

/// The page's words for an operand without elements.
const EMPTY: &str = "no elements";

/// The number of cases of an op that are changed: some ops have several modes.
const CASES: usize = 3;

/// The newest opsets that the pinned ONNX Runtime supports, for cases with newer ones.
const OPSETS: [i64; 3] = [24, 22, 17];

/// Compares the page with the results.
pub(crate) fn check(archive: &Archive, device: &Device) -> std::result::Result<(), String> {
    let mut taken: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for case in archive.cases.iter().filter(|case| case.name.starts_with("test_")) {
        let Ok(graph) = Graph::from_bytes(case.model.clone()) else {
            continue;
        };
        let [node] = &graph.body.nodes[..] else { continue };
        let op = node.op_type.clone();
        if taken.get(&op).is_some_and(|&count| count == CASES) || RANDOM.contains(&op.as_str()) {
            continue;
        }
        let Some((inputs, _)) = case.sets.first() else { continue };
        let values = inputs.iter().map(|item| archive.value(item)?.literal());
        let Ok(values) = values.collect::<Result<Vec<Literal>>>() else {
            continue;
        };
        let Some(pair) = Pair::open(&graph, device, (case.rtol, case.atol)) else {
            continue;
        };
        // Unchanged cases that differ or fail are judged elsewhere.
        if !matches!(pair.verdict(&values), Verdict::Same) {
            continue;
        }
        *taken.entry(op.clone()).or_default() += 1;
        let kinds = changes(&values)
            .into_iter()
            .filter(|(given, _)| *given != EMPTY || !NEVER_EMPTY.contains(&op.as_str()));
        for (given, changed) in kinds {
            if let Verdict::Differs(ours, theirs) = pair.verdict(&changed) {
                let (given, op) = (given.to_owned(), op.clone());
                found.push(Difference {
                    given,
                    ours,
                    theirs,
                    op,
                });
            }
        }
    }
    println!("{} ops beside ONNX Runtime", taken.len());
    found.sort();
    found.dedup();
    // Read at run time, since checkouts may share a build folder.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let page = Path::new(&here).join("../../docs/differences.md");
    differences::hold(&page, "ONNX nodes at the edges", &found)
}

/// Ops with random results.
const RANDOM: [&str; 6] = [
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormalLike",
    "RandomUniformLike",
    "RandomNormal",
];

/// Ops that are not run in ONNX Runtime on tensors without elements: its kernels divide by extents or read out of
/// bounds.
const NEVER_EMPTY: [&str; 27] = [
    "Attention",
    "AveragePool",
    "Col2Im",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "DeformConv",
    "GRU",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "GridSample",
    "InstanceNormalization",
    "LRN",
    "LSTM",
    "LpPool",
    "MaxPool",
    "MaxRoiPool",
    "MaxUnpool",
    "NonMaxSuppression",
    "QLinearConv",
    "RNN",
    "Resize",
    "RoiAlign",
    "STFT",
    "DFT",
    "Upsample",
];

/// One node in both engines.
struct Pair {
    ours: OnnxModel,
    theirs: OnnxModel,
    names: Vec<String>,
    /// Relative, absolute.
    near: (f64, f64),
}

enum Verdict {
    Same,
    Differs(String, String),
    BothRefuse,
}

impl Pair {
    /// The node without the extents that its file declares, if ONNX Runtime supports it.
    fn open(graph: &Graph, device: &Device, near: (f64, f64)) -> Option<Self> {
        let mut graph = graph.clone();
        for value in &mut graph.body.values {
            if let Some(ValueType::Tensor(TensorType { shape: Some(shape), .. })) = &mut value.ty {
                shape.fill(Dim::Unknown);
            }
        }
        let outputs = graph.body.outputs.clone();
        for id in outputs {
            if let Some(ValueType::Tensor(ty)) = &mut graph.body.values[id.index()].ty {
                ty.shape = None;
            }
        }
        let open = |graph: &Graph, engine| {
            let options = Options {
                engine,
                threads: Some(1),
                ..Options::default()
            };
            OnnxModel::from_graph(graph, device, options)
        };
        let ours = open(&graph, Engine::Native).ok()?;
        let version = *graph.opsets.get("").unwrap_or(&1);
        graph.header.ir_version = graph.header.ir_version.min(10);
        let versions = std::iter::once(version).chain(OPSETS.into_iter().filter(|&older| older < version));
        let theirs = versions.into_iter().find_map(|version| {
            graph.opsets.insert(String::new(), version);
            open(&graph, Engine::Ort).ok()
        })?;
        let names = ours.inputs().map(|(name, _)| name.to_owned()).collect();
        Some(Self {
            ours,
            theirs,
            names,
            near,
        })
    }

    fn run(&self, model: &OnnxModel, values: &[Literal]) -> Result<Vec<HostTensor>> {
        let values = values.iter().cloned().map(Value::from);
        let outputs = model.run(self.names.iter().cloned().zip(values))?;
        outputs.iter().map(|(_, value)| value.host()).collect()
    }

    fn verdict(&self, values: &[Literal]) -> Verdict {
        let error = "an error".to_owned();
        match (self.run(&self.ours, values), self.run(&self.theirs, values)) {
            (Err(_), Err(_)) => Verdict::BothRefuse,
            (Ok(ours), Err(_)) => Verdict::Differs(all(&ours), error),
            (Err(_), Ok(theirs)) => Verdict::Differs(error, all(&theirs)),
            (Ok(ours), Ok(theirs)) => {
                let pairs = ours.iter().zip(&theirs);
                match pairs.into_iter().find_map(|(a, b)| self.difference(a, b)) {
                    Some((ours, theirs)) => Verdict::Differs(ours, theirs),
                    None => Verdict::Same,
                }
            }
        }
    }

    /// The first element that differs.
    fn difference(&self, ours: &HostTensor, theirs: &HostTensor) -> Option<(String, String)> {
        if ours.shape() != theirs.shape() {
            return Some((format!("shape {}", ours.shape()), format!("shape {}", theirs.shape())));
        }
        let (relative, absolute) = self.near;
        let near =
            |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= absolute + relative * b.abs();
        let pairs = ours.to_f64_vec().into_iter().zip(theirs.to_f64_vec());
        let mut far = pairs
            .filter(|&(a, b)| !near(a, b))
            .map(|(a, b)| (differences::word(a), differences::word(b)));
        let first = far.next()?;
        let named = far.find(|(a, b)| a != b);
        let (ours, theirs) = if first.0 == first.1 {
            named.unwrap_or(("a number", "another number"))
        } else {
            first
        };
        Some((ours.to_owned(), theirs.to_owned()))
    }
}

fn all(outputs: &[HostTensor]) -> String {
    outputs.first().map_or_else(String::new, differences::kind)
}

/// Operands with one of them changed, with a description of the change.
fn changes(values: &[Literal]) -> Vec<(&'static str, Vec<Literal>)> {
    let mut all = Vec::new();
    for (i, value) in values.iter().enumerate() {
        let with = |host: HostTensor| {
            let mut changed = values.to_vec();
            changed[i] = Literal::new(value.element(), host).ok()?;
            Some(changed)
        };
        let host = value.host();
        if host.dtype().is_float() && host.shape().numel() > 0 {
            for (given, special) in [("NaN", f64::NAN), ("∞", f64::INFINITY), ("−∞", f64::NEG_INFINITY)] {
                let mut numbers = host.to_f64_vec();
                let place = numbers.len() / 3;
                numbers[place] = special;
                let host = HostTensor::new(*host.shape(), numbers).map(|host| host.cast(value.host().dtype()));
                all.extend(host.ok().and_then(with).map(|changed| (given, changed)));
            }
        }
    }
    // An axis without elements, in one operand, or in all that have the same extent there.
    let Some(first) = values.iter().position(|value| value.host().shape().rank() > 0) else {
        return all;
    };
    for axis in 0..values[first].host().shape().rank() {
        let extent = values[first].host().shape()[axis];
        for together in [false, true] {
            let cut = |(i, value): (usize, &Literal)| {
                let shape = value.host().shape();
                let here = i == first || (together && axis < shape.rank() && shape[axis] == extent);
                if here {
                    without(value, axis)
                } else {
                    Some(value.clone())
                }
            };
            all.extend(
                values
                    .iter()
                    .enumerate()
                    .map(cut)
                    .collect::<Option<Vec<_>>>()
                    .map(|changed| (EMPTY, changed)),
            );
        }
    }
    all
}

/// The same tensor without elements along an axis.
fn without(value: &Literal, axis: usize) -> Option<Literal> {
    let mut dims = value.host().shape().dims().to_vec();
    dims[axis] = 0;
    let host = HostTensor::new(Shape::new(&dims).ok()?, Vec::<f64>::new()).ok()?;
    Literal::new(value.element(), host.cast(value.host().dtype())).ok()
}
