//! The official node cases of ONNX 1.23 as tests of a backend, one test for each case, and cases of ONNX Runtime's own
//! ops with its results.
//!
//! Expected failures are listed with their reasons in crates/onnx/tests/data/expected_failures.txt, and those of a
//! backend NAME in expected_failures_NAME.txt beside it. An unexpected pass fails, too. The tests of a backend's crate
//! register the backend, and call [`run`].

mod archive;
pub mod compare;
mod numbers;
mod replays;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

pub use archive::{Archive, Case, Item};
use libtest_mimic::{Arguments, Failed, Trial};
use polygrad_onnx::graph::{ElementType, Graph, ValueType};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};
use polygrad_tensor::{Device, Error, Result};

/// The fewest cases that must pass: of ordinary ops, and in all.
const BARS: (usize, usize) = (740, 1300);

/// A test of all cases together: its name and its function.
pub type Further = (&'static str, fn(&Archive, &Device) -> std::result::Result<(), String>);

/// Runs the cases and the `further` tests on a device of a registered backend, such as `cpu` or `torch:cuda:0`. The
/// number of test threads is `threads` or given by the program's arguments.
pub fn run(name: &str, threads: Option<usize>, further: Vec<Further>) -> Result<ExitCode> {
    let device = Device::new(name)?;
    let backend = name.split(':').next().unwrap_or(name).to_owned();
    let official = Archive::read("node_cases.bin.gz");
    let archive = Arc::new(official.and(Archive::read("onnxruntime_cases.bin.gz")));
    let expected = expected_failures(&backend);
    let mut tests: Vec<Trial> = (0..archive.cases.len())
        .map(|i| {
            let (archive, device) = (Arc::clone(&archive), device.clone());
            let case = &archive.cases[i];
            let reason = expected.get(&case.name).cloned();
            let title = case.name.clone();
            Trial::test(title, move || {
                judge(&archive, &archive.cases[i], &device, reason.as_deref())
            })
        })
        .collect();
    tests.extend(further.into_iter().map(|(title, test)| {
        let (cases, place) = (Arc::clone(&archive), device.clone());
        Trial::test(title, move || test(&cases, &place).map_err(Failed::from))
    }));
    let (cases, place) = (Arc::clone(&archive), device.clone());
    tests.push(Trial::test("no gradient is lost", move || {
        lost_gradients(&cases, &place)
    }));
    let (cases, place) = (Arc::clone(&archive), device.clone());
    tests.push(Trial::test("replays give what plans give", move || {
        replays::check(&cases, &place).map_err(Failed::from)
    }));
    if Engine::Rten.available().is_ok() {
        let (cases, place) = (Arc::clone(&archive), device.clone());
        tests.push(Trial::test("what RTen takes it computes right", move || {
            taken_by_rten(&cases, &place)
        }));
    }
    tests.push(Trial::test("large sums and doubles of the host", move || {
        numbers::check(&device).map_err(Failed::from)
    }));
    tests.push(Trial::test("the bars", move || bars(&archive, &expected)));
    let arguments = Arguments::from_args();
    let arguments = Arguments {
        test_threads: threads.or(arguments.test_threads),
        ..arguments
    };
    Ok(libtest_mimic::run(&arguments, tests).exit_code())
}

/// The folder of the cases and lists, independent of the crate that is tested.
fn data() -> PathBuf {
    // Read at run time, since checkouts may share a build folder.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let mut found = Path::new(&here)
        .ancestors()
        .map(|folder| folder.join("crates/onnx/tests/data"))
        .filter(|data| data.exists());
    found.next().unwrap_or_default()
}

/// Names of expected failures, and their reasons.
fn expected_failures(backend: &str) -> HashMap<String, String> {
    let data = data();
    let mut all = HashMap::new();
    for file in [
        "expected_failures.txt".to_owned(),
        format!("expected_failures_{backend}.txt"),
    ] {
        let Ok(text) = std::fs::read_to_string(data.join(file)) else {
            continue;
        };
        let mut reason = String::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix('#') {
                Some(heading) => reason = heading.trim().to_owned(),
                None => drop(all.insert(line.to_owned(), reason.clone())),
            }
        }
    }
    all
}

fn judge(archive: &Archive, case: &Case, device: &Device, reason: Option<&str>) -> std::result::Result<(), Failed> {
    match (try_case(archive, case, device), reason) {
        (Ok(()), None) | (Err(_), Some(_)) => Ok(()),
        (Ok(()), Some(reason)) => Err(format!("passes, but is listed as failing: {reason}").into()),
        (Err(error), None) => Err(format!("{error}").into()),
    }
}

/// Runs a case twice: with inputs on the host and constants folded, and with inputs on the device and nothing folded.
fn try_case(archive: &Archive, case: &Case, device: &Device) -> Result<()> {
    let graph = Graph::from_bytes(case.model.clone())?;
    // Also checks that writing and reading preserve the model.
    let graph = Graph::from_bytes(graph.to_bytes()?)?;
    for on_device in [false, true] {
        let options = Options {
            max_tensor_bytes: 1 << 28,
            max_steps: 1 << 24,
            fold_constants: !on_device,
            ..Options::default()
        };
        let model = OnnxModel::from_graph(&graph, device, options)?;
        run_model(archive, case, &model, on_device)?;
    }
    Ok(())
}

fn run_model(archive: &Archive, case: &Case, model: &OnnxModel, on_device: bool) -> Result<()> {
    let names: Vec<String> = model.inputs().map(|(name, _)| name.to_owned()).collect();
    let place = |value: Value| match value.shape() {
        Some(_) if on_device && value.texts().is_none() => value.tensor(model.device()).map(Value::from),
        _ => Ok(value),
    };
    for (inputs, outputs) in &case.sets {
        let values = inputs.iter().map(|item| place(archive.value(item)?));
        let values = values.collect::<Result<Vec<Value>>>()?;
        if values.len() != names.len() {
            return Err(Error::invalid(format!(
                "{} values for {} inputs",
                values.len(),
                names.len()
            )));
        }
        let found = model.run(names.iter().cloned().zip(values))?;
        let types: Vec<Option<ValueType>> = model.outputs().map(|(_, ty)| ty.cloned()).collect();
        for (i, (item, (name, value))) in outputs.iter().zip(found.iter()).enumerate() {
            let wanted = archive.value(item)?;
            let check = || {
                compare::close(value, &wanted, case.rtol, case.atol)?;
                compare::fits(value, types[i].as_ref())
            };
            let where_from = if on_device { "the device" } else { "the host" };
            check().map_err(|e| e.in_module(format!("output {name}, with inputs on {where_from}")))?;
        }
    }
    Ok(())
}

/// Cases without gradients: their real results do not depend on the real operands, or only in steps. The maximum of no
/// elements does not depend on anything.
const FLAT: [&str; 10] = [
    "ort_Binarizer",
    "ort_Cast_texts",
    "ort_OneHotEncoder",
    "ort_sklearn_Binarizer",
    "test_ai_onnx_ml_binarizer",
    "test_bernoulli",
    "test_castlike_",
    "test_hardmax_",
    "test_reduce_max_empty_set",
    "test_reduce_min_empty_set",
];

/// Checks that with inputs that require gradients, a real result either passes gradients on, or the run fails with an
/// error that says that it cannot.
fn lost_gradients(archive: &Archive, device: &Device) -> std::result::Result<(), Failed> {
    let mut lost = Vec::new();
    for case in &archive.cases {
        let Ok(graph) = Graph::from_bytes(case.model.clone()) else {
            continue;
        };
        let flat = FLAT.iter().any(|name| case.name.starts_with(name));
        let Ok(model) = OnnxModel::from_graph(&graph, device, Options::default()) else {
            continue;
        };
        let names: Vec<String> = model.inputs().map(|(name, _)| name.to_owned()).collect();
        let leaf = |item| -> Result<Value> {
            let value: Value = archive.value(item)?;
            match value.element() {
                Some(ElementType::F32 | ElementType::F64) => Ok(value.tensor(device)?.requires_grad()?.into()),
                _ => Ok(value),
            }
        };
        let Some((inputs, _)) = case.sets.first() else { continue };
        let Ok(values) = inputs.iter().map(leaf).collect::<Result<Vec<_>>>() else {
            continue;
        };
        let asked = values.iter().any(Value::is_tracked);
        let Ok(outputs) = model.run(names.into_iter().zip(values)) else {
            continue;
        };
        let is_real = |value: &Value| value.dtype().is_some_and(|dtype| dtype.is_float());
        if asked && !flat && outputs.iter().any(|(_, value)| is_real(value) && !value.is_tracked()) {
            lost.push(case.name.as_str());
        }
    }
    if lost.is_empty() {
        Ok(())
    } else {
        Err(format!("{}: {}", lost.len(), lost.join(" ")).into())
    }
}

/// Cases with a quotient midway between two integers. RTen multiplies by the reciprocal, which may round it
/// differently.
const MIDWAY: [&str; 2] = ["test_dynamicquantizelinear", "test_dynamicquantizelinear_expanded"];

/// Checks that RTen either refuses a case, or its results are correct, in f32 to a thousandth.
fn taken_by_rten(archive: &Archive, device: &Device) -> std::result::Result<(), Failed> {
    let options = Options {
        engine: Engine::Rten,
        threads: Some(1),
        ..Options::default()
    };
    let mut wrong = Vec::new();
    for case in archive.cases.iter().filter(|case| !MIDWAY.contains(&&*case.name)) {
        let Ok(graph) = Graph::from_bytes(case.model.clone()) else {
            continue;
        };
        let Ok(model) = OnnxModel::from_graph(&graph, device, options) else {
            continue;
        };
        let names: Vec<String> = model.inputs().map(|(name, _)| name.to_owned()).collect();
        for (inputs, outputs) in &case.sets {
            let values = inputs
                .iter()
                .map(|item| archive.value(item))
                .collect::<Result<Vec<_>>>()?;
            let Ok(found) = model.run(names.iter().cloned().zip(values)) else {
                continue;
            };
            for (item, (name, value)) in outputs.iter().zip(found.iter()) {
                if let Err(error) =
                    compare::close(value, &archive.value(item)?, case.rtol.max(1e-3), case.atol.max(1e-4))
                {
                    wrong.push(format!("{}, {name}: {error}", case.name));
                }
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{}:\n{}", wrong.len(), wrong.join("\n")).into()),
    }
}

fn bars(archive: &Archive, expected: &HashMap<String, String>) -> std::result::Result<(), Failed> {
    for name in expected.keys() {
        if !archive.cases.iter().any(|case| case.name == *name) {
            return Err(format!("{name} is listed as failing, but there is no such case").into());
        }
    }
    let passing = |case: &&Case| !expected.contains_key(&case.name);
    let all = archive.cases.iter().filter(passing).count();
    let ordinary = archive.cases.iter().filter(|case| case.ordinary);
    let (passed, of) = (ordinary.clone().filter(passing).count(), ordinary.count());
    println!(
        "{passed} of {of} ordinary cases, {all} of {} in all",
        archive.cases.len()
    );
    if passed < BARS.0 || all < BARS.1 {
        return Err(format!("{passed} of {of} ordinary cases and {all} in all; the bars are {BARS:?}").into());
    }
    Ok(())
}
