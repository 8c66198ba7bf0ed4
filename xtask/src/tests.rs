//! All tests, in one build with every feature that can be set up: those of the README's command, those of members that
//! are not default ones, and those that features change.

use crate::{blas, cargo, chromium, green, gymnasium, mpi, nvrtc, onnxruntime, torch, vulkan};

/// The features that are always tested.
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
    "polygrad/gym",
    "polygrad/tar",
    "polygrad/text",
    "polygrad-cli/mpi",
    "polygrad-gpu-report/cuda",
];

/// A part that is tested if it can be set up and, if it has a folder, if something changed since its suite passed.
struct Part {
    name: &'static str,
    /// Members that are only tested with it.
    packages: &'static [&'static str],
    features: &'static [&'static str],
    /// The folder of its code, if its suite may be skipped; empty if never.
    folder: &'static str,
    /// Finds or fetches what it needs besides a Rust toolchain, and returns the environment for cargo.
    prepare: fn() -> Result<Environment, String>,
}

type Environment = Vec<(String, String)>;

const PARTS: [Part; 13] = [
    Part {
        name: "blas",
        packages: &[],
        features: &["polygrad/blas"],
        folder: "",
        prepare: || blas::find().map(|()| Vec::new()),
    },
    Part {
        name: "candle",
        packages: &["polygrad-candle"],
        features: &["polygrad-cli/candle"],
        folder: "backends/candle",
        prepare: nothing,
    },
    Part {
        name: "burn",
        packages: &["polygrad-burn"],
        features: &["polygrad-cli/burn", "polygrad/burn-tensor"],
        folder: "backends/burn",
        prepare: nothing,
    },
    Part {
        name: "burn:wgpu",
        packages: &[],
        features: &["polygrad-cli/burn-wgpu"],
        folder: "backends/burn",
        prepare: vulkan::environment,
    },
    Part {
        name: "luminal",
        packages: &["polygrad-luminal"],
        features: &["polygrad-cli/luminal"],
        folder: "backends/luminal",
        prepare: nothing,
    },
    Part {
        name: "torch",
        packages: &["polygrad-torch"],
        features: &["polygrad-cli/torch", "polygrad-cli/gloo"],
        folder: "backends/torch",
        prepare: torch::environment,
    },
    Part {
        name: "wgpu",
        packages: &["polygrad-wgpu"],
        features: &["polygrad-cli/wgpu", "polygrad-gpu-report/wgpu"],
        folder: "backends/wgpu",
        prepare: vulkan::environment,
    },
    Part {
        name: "nvrtc",
        packages: &["polygrad-cuda"],
        features: &[],
        folder: "",
        prepare: nvrtc::environment,
    },
    Part {
        name: "engines of ONNX files",
        packages: &[],
        features: &["polygrad-cli/ort", "polygrad-cli/rten"],
        folder: "",
        prepare: onnxruntime::environment,
    },
    Part {
        name: "mpi",
        packages: &["polygrad-mpi"],
        features: &[],
        folder: "",
        prepare: mpi::environment,
    },
    Part {
        name: "mpi of the system",
        packages: &[],
        features: &[],
        folder: "",
        prepare: mpi::of_system,
    },
    Part {
        name: "gymnasium",
        packages: &[],
        features: &[],
        folder: "",
        prepare: gymnasium::environment,
    },
    Part {
        name: "chromium",
        packages: &[],
        features: &[],
        folder: "",
        prepare: chromium::environment,
    },
];

fn nothing() -> Result<Environment, String> {
    Ok(Environment::new())
}

/// Variables that hold lists, as `PATH` does.
const LISTS: [&str; 2] = ["LD_LIBRARY_PATH", "POLYGRAD_MPI_LAUNCHERS"];

/// Adds a variable. If it is a list, the value is appended to those of other parts.
fn add(environment: &mut Environment, (name, value): (String, String)) {
    match environment.iter_mut().find(|(known, _)| *known == name) {
        Some((_, list)) if LISTS.contains(&name.as_str()) => *list = format!("{list}:{value}"),
        Some((_, old)) => *old = value,
        None => environment.push((name, value)),
    }
}

/// What is tested on this machine, and what is not.
struct Plan {
    features: String,
    excluded: Vec<&'static str>,
    environment: Environment,
    /// Parts that cannot be set up, and why.
    skipped: Vec<String>,
    /// Parts that have not changed since their suites passed, and when that was.
    unchanged: Vec<String>,
    /// Parts whose suites may be skipped next time, if they pass now.
    tested: Vec<(&'static str, &'static str)>,
}

/// Sets up the parts; unchanged parts only if `all` is set.
fn plan(all: bool) -> Result<Plan, String> {
    let passed = green::Passed::read()?;
    let mut features = FEATURES.to_vec();
    let mut plan = Plan {
        features: String::new(),
        excluded: Vec::new(),
        environment: Environment::new(),
        skipped: Vec::new(),
        unchanged: Vec::new(),
        tested: Vec::new(),
    };
    for part in &PARTS {
        if let Some(when) = passed.unchanged(part.name, part.folder).filter(|_| !all) {
            plan.excluded.extend(part.packages);
            plan.unchanged.push(format!("{}: {when}", part.name));
            continue;
        }
        match (part.prepare)() {
            Ok(variables) => {
                features.extend(part.features);
                let environment = &mut plan.environment;
                variables.into_iter().for_each(|variable| add(environment, variable));
                if !part.folder.is_empty() {
                    plan.tested.push((part.name, part.folder));
                }
            }
            Err(reason) => {
                plan.excluded.extend(part.packages);
                plan.skipped.push(format!("{}: {reason}", part.name));
            }
        }
    }
    plan.features = features.join(",");
    Ok(plan)
}

/// `cargo xtask environment`: the same for a shell, so that other cargo commands build nothing twice.
///
/// # Errors
/// If the table of passed parts cannot be read.
pub(crate) fn environment(all: bool) -> Result<(), String> {
    let plan = plan(all)?;
    for (name, value) in &plan.environment {
        if !LISTS.contains(&name.as_str()) {
            println!("export {name}='{value}'");
            continue;
        }
        // Existing entries of the list, such as those that cargo adds to run this program, are left to the shell.
        let there = std::env::var(name).unwrap_or_default();
        let new = value
            .split(':')
            .filter(|entry| there.split(':').all(|known| known != *entry));
        let new = new.collect::<Vec<_>>().join(":");
        println!("export {name}='{new}'\"${{{name}:+:${name}}}\"");
    }
    let excluded = plan.excluded.iter().map(|package| format!("--exclude {package}"));
    println!("features='{}'", plan.features);
    println!("excluded='{}'", excluded.collect::<Vec<_>>().join(" "));
    Ok(())
}

/// Runs the tests; with `record`, all of them, and records which parts passed.
///
/// # Errors
/// If a test fails; also if something cannot be set up and the variable `CI` is `true`.
pub(crate) fn run(all: bool, record: bool) -> Result<(), String> {
    let plan = plan(all || record)?;
    // One run reports every failure, since the next may take an hour. The judges have no tests, and the Python package
    // has Python tests.
    let mut line = vec![
        "test",
        "--workspace",
        "--exclude",
        "polygrad-judging",
        "--exclude",
        "polygrad-python",
        "--no-fail-fast",
        "--features",
        &plan.features,
    ];
    line.extend(plan.excluded.iter().flat_map(|package| ["--exclude", package]));
    cargo::run(&line, &plan.environment)?;
    for reason in &plan.skipped {
        println!("skipped {reason}");
    }
    println!(
        "{} of {} parts skipped, since they cannot be set up",
        plan.skipped.len(),
        PARTS.len()
    );
    for when in &plan.unchanged {
        println!("unchanged {when}");
    }
    println!(
        "{} of {} parts unchanged since they passed",
        plan.unchanged.len(),
        PARTS.len()
    );
    if record {
        green::record(&plan.tested)?;
    }
    if !plan.skipped.is_empty() && std::env::var_os("CI").is_some_and(|value| value == "true") {
        return Err("under CI nothing may be skipped".to_owned());
    }
    Ok(())
}
