//! `polygrad check --mode programs`: random whole programs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use polygrad::backend::{HostTensor, Shape};
use polygrad::nn::Sequential;
use polygrad::{Device, Tensor};
use polygrad_conformance::programs::{Dtypes, Engine, Kept, Live, Program, Programs, replay, search};
use polygrad_console::failure::{Failure, Result, Shown};
use polygrad_console::outcome::Outcome;
use polygrad_console::progress::{grouped, say};
use polygrad_onnx::graph::{Attribute, Dim, Graph, Literal, Node, ValueId};
use polygrad_onnx::{Export, ExportOnnx, Input, OnnxModel, Options};

use super::args::Check;
use crate::peers::Peers;

/// The number of programs between progress lines.
const STRIDE: u64 = 1000;

/// Runs the cases saved in the folder, and then the requested number of random programs.
///
/// # Errors
/// Cases that cannot be read or written; programs that fail.
pub(crate) fn command(device: &Device, args: &Check) -> Result<Outcome> {
    let peers = Peers::new()?;
    let programs = Programs {
        tested: args.dtype.unwrap_or(polygrad::DType::F32),
        seed: args.seed.unwrap_or(0),
        first: args.first.unwrap_or(0),
        count: args.count.unwrap_or(500),
        engines: engines(&peers),
        live: live(device),
        ..Programs::default()
    };
    let (mut wrong, mut crashed) = (0, 0);
    let kept = args.cases.as_deref().map_or(Ok(Vec::new()), read)?;
    for (name, case) in &kept {
        if let Some(failure) = replay(device, case, &programs) {
            wrong += 1;
            say(&format!("FAIL {name}: {}", failure.reason));
        }
    }
    let (start, mut failed) = (Instant::now(), Ok(()));
    let found = search(device, &programs, |number, case| {
        for crash in peers.crashes() {
            crashed += 1;
            say(&format!("program {number} of seed {}: {crash}", programs.seed));
        }
        let done = number - programs.first + 1;
        if done.is_multiple_of(STRIDE) {
            let rate = done as f64 / start.elapsed().as_secs_f64();
            say(&format!("{} programs, {rate:.0} a second", grouped(done)));
        }
        if let Some(case) = case {
            show(&args.backend, case);
            if let Some(folder) = args.cases.as_deref()
                && failed.is_ok()
            {
                failed = write(folder, case);
            }
        }
    });
    failed?;
    say(&found.to_string());
    if crashed > 0 {
        say(&format!("engines of others crashed {crashed} times"));
    }
    wrong += found.failures.len();
    match wrong {
        0 => Ok(Outcome::Done),
        _ => Err(
            Failure::new(format!("{wrong} programs fail on {}", args.backend)).fix(match &args.cases {
                Some(folder) => format!("{} has them, reduced, as Rust and as JSON", folder.shown()),
                None => "keep them with --cases DIR; --first N --count 1 runs one again".to_owned(),
            }),
        ),
    }
}

fn show(backend: &str, case: &Kept) {
    let (seed, number) = case.from;
    say(&format!(
        "FAIL program {number} of seed {seed} in {}: {}",
        case.tested, case.failure.reason
    ));
    say(&rust(backend, case));
}

fn rust(backend: &str, case: &Kept) -> String {
    case.to_rust(backend).unwrap_or_else(|error| format!("// {error}\n"))
}

/// Programs as ONNX files: read back, and run by the other engines of this build.
fn engines(peers: &Arc<Peers>) -> Vec<(String, Arc<Engine>)> {
    let there = polygrad_onnx::Engine::ALL
        .into_iter()
        .filter(|engine| engine.available().is_ok());
    let run = |engine: polygrad_onnx::Engine| -> Arc<Engine> {
        let peers = Arc::clone(peers);
        Arc::new(move |program, inputs, dtypes| as_onnx(program, inputs, dtypes, engine, &peers))
    };
    there
        .map(|engine| (format!("as ONNX by {engine}"), run(engine)))
        .collect()
}

fn as_onnx(
    program: &Program,
    inputs: &[Tensor],
    dtypes: Dtypes,
    engine: polygrad_onnx::Engine,
    peers: &Peers,
) -> polygrad::Result<Vec<Tensor>> {
    let given = inputs.iter().enumerate();
    let given = given.map(|(i, x)| {
        let dims: Vec<Dim> = x.dims().into_iter().map(Dim::Fixed).collect();
        Input::new(&format!("v{i}"), x.dtype(), dims)
    });
    let export = Export::new(given).check(false);
    let graph = Sequential::new().record_onnx(&export, |inputs| program.forward(inputs, dtypes))?;
    let device = inputs.first().map_or_else(|| Device::new("cpu"), |x| Ok(x.device()))?;
    // ONNX Runtime computes positions of elements from rounded quotients of extents: docs/differences.md.
    let is_sized = |node: &Node| node.op_type == "Resize" && node.inputs.get(3).is_some_and(Option::is_some);
    if engine == polygrad_onnx::Engine::Ort && graph.body.nodes.iter().any(is_sized) {
        return Err(polygrad::Error::unsupported("Resize to extents"));
    }
    let graph = match engine {
        polygrad_onnx::Engine::Ort => without_sigmoid(graph)?,
        _ => graph,
    };
    if engine == polygrad_onnx::Engine::Native {
        let outputs = OnnxModel::from_graph(&graph, &device, Options::default())?.forward(inputs)?;
        return (0..outputs.len()).map(|i| outputs.tensor(i)).collect();
    }
    let inputs = inputs.iter().map(|x| Ok(x.to_host()?.into()));
    let inputs = inputs.collect::<polygrad::Result<Vec<Literal>>>()?;
    // Errors of ONNX Runtime about a missing kernel, or its integer remainder by 0, which is 0 here.
    let lacks = |error: &polygrad::Error| {
        let text = error.to_string();
        ["modulo by zero", "is not supported"]
            .iter()
            .any(|words| text.contains(words))
    };
    let outputs = peers
        .run(engine, None, &graph, &inputs)
        .map_err(|error| match lacks(&error) {
            true => polygrad::Error::unsupported(error.to_string()),
            false => error,
        })?;
    outputs
        .into_iter()
        .map(|host| Tensor::from_host(host, &device))
        .collect()
}

/// Sigmoid as 1 / (1 + exp(-x)), since ONNX Runtime's own has an absolute error of 7.5e-8 even for tiny results:
/// docs/differences.md.
///
/// # Errors
/// If the 1 cannot be made a tensor.
fn without_sigmoid(mut graph: Graph) -> polygrad::Result<Graph> {
    let body = &mut graph.body;
    for node in std::mem::take(&mut body.nodes) {
        let (&[Some(x)], &[Some(y)], "Sigmoid") = (&node.inputs[..], &node.outputs[..], node.op_type.as_str()) else {
            body.nodes.push(node);
            continue;
        };
        let mut value = |what: &str| {
            let name = format!("{}/{what}", body.name_of(y));
            body.add_value(name, None)
        };
        let [number, one, negative, power, sum] = ["number", "one", "negative", "power", "sum"].map(&mut value);
        let part = |op: &str, inputs: &[ValueId], output| Node {
            op_type: op.into(),
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![Some(output)],
            ..Node::default()
        };
        let mut constant = part("Constant", &[], number);
        let scalar = HostTensor::new(Shape::SCALAR, vec![1f32])?;
        constant
            .attributes
            .push(("value".into(), Attribute::Tensor(scalar.into())));
        body.nodes.extend([
            constant,
            part("CastLike", &[number, x], one),
            part("Neg", &[x], negative),
            part("Exp", &[negative], power),
            part("Add", &[one, power], sum),
            part("Div", &[one, sum], y),
        ]);
    }
    Ok(graph)
}

/// The bytes in use on a device, if it reports them.
fn live(device: &Device) -> Option<Arc<Live>> {
    #[cfg(feature = "cpu")]
    if device.backend_name() == "cpu" {
        return Some(Arc::new(|| polygrad::cpu::memory::stats().live_bytes as u64));
    }
    #[cfg(all(feature = "cpu", feature = "compute"))]
    if let Some(device) = device.downcast::<polygrad::compute::Compute<polygrad::cpu::CpuDriver>>() {
        return Some(Arc::new(move || device.inner().stats().memory.live_bytes));
    }
    let _ = device;
    None
}

/// The cases of a folder, by name; none if the folder does not exist yet.
fn read(folder: &Path) -> Result<Vec<(String, Kept)>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(|error| Failure::io("read", folder, &error))?;
    let mut cases = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Failure::io("read", folder, &error))?.path();
        if path.extension().is_some_and(|end| end == "json") {
            let text = fs::read_to_string(&path).map_err(|error| Failure::io("read", &path, &error))?;
            let case = Kept::from_json(&text).map_err(|error| Failure::new(format!("{}: {error}", path.shown())))?;
            cases.push((path.shown(), case));
        }
    }
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(cases)
}

/// Saves a case in a folder: as JSON, which is run again, and as Rust.
fn write(folder: &Path, case: &Kept) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Failure::io("create", folder, &error))?;
    let (seed, number) = case.from;
    let stem = format!("{}-{seed}-{number}", case.tested);
    for (end, text) in [("json", case.to_json()), ("rs", rust("cpu", case))] {
        let path = folder.join(format!("{stem}.{end}"));
        fs::write(&path, text).map_err(|error| Failure::io("write", &path, &error))?;
    }
    Ok(())
}
