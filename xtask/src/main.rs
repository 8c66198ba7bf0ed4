//! Set-up and the long test runs: `cargo xtask test`, `cargo xtask ulp`, `cargo xtask cross`.

use std::path::Path;
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask test | ulp | cross

test   everything: the default members, and the backends that need more than a Rust toolchain. What cannot be set up here is
       skipped by name and counted; with CI=true it is a failure.
ulp    the vector maths of the CPU backend over all 2^32 values of f32 (minutes)
cross  weights go from Polygrad to PyTorch and back; needs a Python with torch, torchvision and transformers, named by the
       environment variable PYTHON (python3 without it)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => test(),
        ["ulp"] => ulp(),
        ["cross"] => cross(),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn test() -> Result<(), String> {
    cargo(&["test"])?;
    let mut skipped = Vec::new();
    match find_blas() {
        Ok(()) => cargo(&[
            "test",
            "-p",
            "polygrad-cpu",
            "-p",
            "polygrad",
            "-p",
            "polygrad-conformance",
            "--features",
            "polygrad/blas,polygrad-conformance/blas",
        ])?,
        Err(reason) => skipped.push(format!("blas: {reason}")),
    }
    for reason in &skipped {
        println!("skipped {reason}");
    }
    println!("{} of 1 further set-ups skipped", skipped.len());
    if !skipped.is_empty() && std::env::var_os("CI").is_some_and(|value| value == "true") {
        return Err("under CI nothing may be skipped".to_owned());
    }
    Ok(())
}

fn ulp() -> Result<(), String> {
    cargo(&[
        "test",
        "--release",
        "-p",
        "polygrad-cpu",
        "--lib",
        "--",
        "--ignored",
        "--nocapture",
        "every_number",
    ])
}

/// What each side writes the other reads.
fn cross() -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/crossing");
    for side in ["polygrad", "pytorch"] {
        std::fs::create_dir_all(folder.join(side)).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let folder = folder.to_str().ok_or("the checkout's path is no text")?;
    let here = |task: &str| {
        let example = [
            "run",
            "--quiet",
            "--release",
            "-p",
            "polygrad-nn",
            "--example",
            "crossing",
            "--",
        ];
        cargo(&[&example[..], &[task, folder]].concat())
    };
    here("write")?;
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/cross_pytorch.py");
    let status = Command::new(&python).args([script, folder]).status();
    match status.map_err(|e| format!("{}: {e}", python.display()))? {
        status if status.success() => here("check"),
        status => Err(format!("{} {script}: {status}", python.display())),
    }
}

/// The linker finds OpenBLAS through a link named after the library, which the development package installs.
fn find_blas() -> Result<(), String> {
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    let chosen = std::env::var_os("POLYGRAD_BLAS_DIR");
    let found = chosen.is_some()
        || folders
            .iter()
            .any(|folder| Path::new(folder).join("libopenblas.so").exists());
    if found {
        return Ok(());
    }
    Err("OpenBLAS is not installed: apt-get install libopenblas-dev".to_owned())
}

fn cargo(arguments: &[&str]) -> Result<(), String> {
    println!("cargo {}", arguments.join(" "));
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(program).args(arguments).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {} ended with {status}", arguments.join(" "))),
        Err(error) => Err(format!("cargo could not be started: {error}")),
    }
}
