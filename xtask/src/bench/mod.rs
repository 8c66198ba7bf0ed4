//! `cargo xtask bench`: Polygrad beside the libraries that others use, and the page about it.

mod build;
mod page;
mod peers;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::cargo;

pub(crate) use peers::setup;

/// The workload that is the time of a build, which `polygrad bench` cannot measure.
const BUILD: &str = "build";

/// Sets up the peers, times what was chosen (everything without a choice), and writes the page. A peer that cannot be set up is left out.
///
/// # Errors
/// When Polygrad cannot be built, a workload is unknown, or a file cannot be written.
pub(crate) fn run(chosen: &[&str]) -> Result<(), String> {
    let peers = setup(&[])?;
    let workloads: Vec<&str> = chosen.iter().copied().filter(|name| *name != BUILD).collect();
    let target = cargo::checkout().join("target");
    fs::create_dir_all(&target).map_err(|e| format!("cannot create {}: {e}", target.display()))?;
    let page = match chosen.is_empty() {
        true => cargo::checkout().join("docs/benchmarks.md"),
        false => target.join("benchmarks.md"),
    };
    let mut reports = Vec::new();
    if chosen.is_empty() || !workloads.is_empty() {
        for threads in ["1", "2"] {
            let json = target.join(format!("bench-{threads}.json"));
            let plot = page.with_file_name(format!("benchmarks-{threads}.png"));
            reports.push(measure(&workloads, threads, &peers, &json, &plot)?);
        }
    }
    let builds = match chosen.is_empty() || chosen.contains(&BUILD) {
        true => build::measure()?,
        false => Vec::new(),
    };
    let text = page::page(&reports, &builds);
    fs::write(&page, text).map_err(|e| format!("cannot write {}: {e}", page.display()))?;
    println!("written: {}", page.display());
    Ok(())
}

/// How many seconds a peer may take for an answer: PyTorch's compiler takes minutes for its first model.
const PATIENCE: &str = "1200";

/// One run of `polygrad bench`, and what it wrote.
fn measure(workloads: &[&str], threads: &str, peers: &[&str], json: &Path, plot: &Path) -> Result<Value, String> {
    let mut line = "run --release --quiet -p polygrad-cli -- bench --captured --threads"
        .split(' ')
        .collect::<Vec<_>>();
    line.push(threads);
    line.extend(workloads);
    let against = peers.join(",");
    if !against.is_empty() {
        line.extend(["--against", &against, "--patience", PATIENCE]);
    }
    let (json_path, plot_path) = (json.display().to_string(), plot.display().to_string());
    line.extend(["--json", &json_path, "--plot", &plot_path]);
    cargo::run(&line, &[])?;
    let text = fs::read_to_string(json).map_err(|e| format!("cannot read {json_path}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{json_path} is no JSON: {e}"))
}
