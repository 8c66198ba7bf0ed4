//! All tests, in one build with every feature that can be set up: those of the README's command, those of the members
//! that are not default ones, and those that features change.

use crate::{blas, cargo, chromium, mpi, nvrtc, onnxruntime, torch, vulkan};

/// What is tested on every machine.
const FEATURES: &[&str] = &[
    "polygrad-cli/jpeg",
    "polygrad-cli/lab",
    "polygrad-cli/otel",
    "polygrad-cli/tls",
    "polygrad-cli/tui",
    "polygrad/ndarray",
    "polygrad/parquet",
    "polygrad/nccl",
    "polygrad/hub",
    "polygrad/rl",
    "polygrad/tar",
    "polygrad/text",
    "polygrad-cli/candle",
    "polygrad-cli/burn",
    "polygrad/burn-tensor",
    "polygrad-cli/luminal",
    "polygrad-cli/mpi",
    "polygrad-cli/rten",
];

/// What needs more than a Rust toolchain.
struct SetUp {
    name: &'static str,
    /// Members that are not tested without it.
    packages: &'static [&'static str],
    features: &'static [&'static str],
    /// Finds or fetches it, and says what cargo's environment needs.
    prepare: fn() -> Result<Environment, String>,
}

type Environment = Vec<(String, String)>;

const SET_UPS: [SetUp; 8] = [
    SetUp {
        name: "blas",
        packages: &[],
        features: &["polygrad/blas"],
        prepare: || blas::find().map(|()| Vec::new()),
    },
    SetUp {
        name: "torch",
        packages: &["polygrad-torch"],
        features: &["polygrad-cli/torch", "polygrad-cli/gloo"],
        prepare: torch::environment,
    },
    SetUp {
        name: "vulkan",
        packages: &["polygrad-wgpu"],
        features: &["polygrad-cli/burn-wgpu", "polygrad-cli/wgpu"],
        prepare: vulkan::environment,
    },
    SetUp {
        name: "nvrtc",
        packages: &["polygrad-cuda"],
        features: &[],
        prepare: nvrtc::environment,
    },
    SetUp {
        name: "onnxruntime",
        packages: &[],
        features: &["polygrad-cli/ort"],
        prepare: onnxruntime::environment,
    },
    SetUp {
        name: "mpi",
        packages: &["polygrad-mpi"],
        features: &[],
        prepare: mpi::environment,
    },
    SetUp {
        name: "mpi of the system",
        packages: &[],
        features: &[],
        prepare: mpi::of_system,
    },
    SetUp {
        name: "chromium",
        packages: &[],
        features: &[],
        prepare: chromium::environment,
    },
];

/// Variables that hold lists, as `PATH` does.
const LISTS: [&str; 2] = ["LD_LIBRARY_PATH", "POLYGRAD_MPI_LAUNCHERS"];

/// Adds a variable; what is in a list comes after what others have put there.
fn add(environment: &mut Environment, (name, value): (String, String)) {
    match environment.iter_mut().find(|(known, _)| *known == name) {
        Some((_, list)) if LISTS.contains(&name.as_str()) => *list = format!("{list}:{value}"),
        _ => environment.push((name, value)),
    }
}

/// Runs them.
///
/// # Errors
/// When a test fails; and when something is skipped, if the variable `CI` is `true`.
pub(crate) fn run() -> Result<(), String> {
    let mut features = FEATURES.to_vec();
    let mut excluded: Vec<&str> = Vec::new();
    let (mut environment, mut skipped) = (Environment::new(), Vec::new());
    for set_up in &SET_UPS {
        match (set_up.prepare)() {
            Ok(variables) => {
                features.extend(set_up.features);
                variables
                    .into_iter()
                    .for_each(|variable| add(&mut environment, variable));
            }
            Err(reason) => {
                excluded.extend(set_up.packages);
                skipped.push(format!("{}: {reason}", set_up.name));
            }
        }
    }
    let features = features.join(",");
    // One run tells of every failure: it may be an hour to the next. What judges has no tests.
    let mut line = vec![
        "test",
        "--workspace",
        "--exclude",
        "polygrad-judging",
        "--no-fail-fast",
        "--features",
        &features,
    ];
    line.extend(excluded.iter().flat_map(|package| ["--exclude", package]));
    cargo::run(&line, &environment)?;
    for reason in &skipped {
        println!("skipped {reason}");
    }
    println!("{} of {} further set-ups skipped", skipped.len(), SET_UPS.len());
    if !skipped.is_empty() && std::env::var_os("CI").is_some_and(|value| value == "true") {
        return Err("under CI nothing may be skipped".to_owned());
    }
    Ok(())
}
