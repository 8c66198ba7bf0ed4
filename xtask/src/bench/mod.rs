//! `cargo xtask bench`: times Polygrad beside other libraries, and writes the page about it.

mod build;
mod page;
mod peers;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::cargo;

pub(crate) use peers::{built, setup};

/// The workload for build times, which `polygrad bench` cannot measure.
const BUILD: &str = "build";

/// The arguments of `cargo xtask bench`.
#[derive(Debug, Default, PartialEq)]
struct Arguments<'a> {
    /// All workloads if empty.
    workloads: Vec<&'a str>,
    /// All peers that can be set up if empty.
    peers: Vec<&'a str>,
    /// `None` for the default of `polygrad bench`.
    seconds: Option<&'a str>,
}

impl<'a> Arguments<'a> {
    fn read(arguments: &[&'a str]) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut rest = arguments.iter().copied();
        while let Some(word) = rest.next() {
            let mut value = || {
                rest.next()
                    .ok_or_else(|| format!("{word} wants a value\n  fix: give --against torch,jax or --seconds 0.5"))
            };
            match word {
                "--against" => asked.peers = value()?.split(',').collect(),
                "--seconds" => asked.seconds = Some(value()?),
                _ if word.starts_with('-') => {
                    return Err(format!(
                        "there is no option {word}\n  fix: give --against PEERS or --seconds S"
                    ));
                }
                _ => asked.workloads.push(word),
            }
        }
        Ok(asked)
    }
}

/// Sets up the peers, times the chosen workloads (by default all), and writes the page. A peer that cannot be set up is
/// left out unless it was named.
///
/// # Errors
/// If Polygrad or a named peer cannot be built, a workload is unknown, or a file cannot be written.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let asked = Arguments::read(arguments)?;
    let chosen = &asked.workloads;
    let workloads: Vec<&str> = chosen.iter().copied().filter(|name| *name != BUILD).collect();
    let times = chosen.is_empty() || !workloads.is_empty();
    let peers = if times { setup(&asked.peers)? } else { Vec::new() };
    let target = cargo::checkout().join("target");
    fs::create_dir_all(&target).map_err(|e| format!("cannot create {}: {e}", target.display()))?;
    let page = match chosen.is_empty() {
        true => cargo::checkout().join("docs/benchmarks.md"),
        false => target.join("benchmarks.md"),
    };
    let mut reports = Vec::new();
    if times {
        for threads in ["1", "2"] {
            let json = target.join(format!("bench-{threads}.json"));
            let plot = page.with_file_name(format!("benchmarks-{threads}.png"));
            reports.push(measure(&workloads, threads, &peers, asked.seconds, &json, &plot)?);
        }
    }
    let builds = match chosen.is_empty() || chosen.contains(&BUILD) {
        true => build::measure()?,
        false => Vec::new(),
    };
    let command = ["cargo xtask bench"]
        .iter()
        .chain(arguments)
        .copied()
        .collect::<Vec<_>>();
    let text = page::page(&command.join(" "), &reports, &builds);
    fs::write(&page, text).map_err(|e| format!("cannot write {}: {e}", page.display()))?;
    println!("written: {}", page.display());
    Ok(())
}

/// The most seconds for a peer's answer: PyTorch's compiler takes minutes for its first model.
const PATIENCE: &str = "1200";

/// Runs `polygrad bench` once, and returns its report.
fn measure(
    workloads: &[&str],
    threads: &str,
    peers: &[&str],
    seconds: Option<&str>,
    json: &Path,
    plot: &Path,
) -> Result<Value, String> {
    let mut line = "run --release --quiet -p polygrad-cli --features lab -- bench --captured --threads"
        .split(' ')
        .collect::<Vec<_>>();
    line.push(threads);
    line.extend(workloads);
    let against = peers.join(",");
    if !against.is_empty() {
        line.extend(["--against", &against, "--patience", PATIENCE]);
    }
    if let Some(seconds) = seconds {
        line.extend(["--seconds", seconds]);
    }
    let (json_path, plot_path) = (json.display().to_string(), plot.display().to_string());
    line.extend(["--json", &json_path, "--plot", &plot_path]);
    cargo::run(&line, &[])?;
    let text = fs::read_to_string(json).map_err(|e| format!("cannot read {json_path}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{json_path} is no JSON: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_workloads_peers_and_seconds() {
        let asked = Arguments::read(&["mlp-rl", "--against", "torch,jax", "--seconds", "0.5", "cnn"]).unwrap();
        let expected = Arguments {
            workloads: vec!["mlp-rl", "cnn"],
            peers: vec!["torch", "jax"],
            seconds: Some("0.5"),
        };
        assert_eq!(asked, expected);
        assert!(
            Arguments::read(&["--seconds"])
                .unwrap_err()
                .contains("--seconds wants a value")
        );
        assert!(Arguments::read(&["--fast"]).unwrap_err().contains("no option --fast"));
    }
}
