//! The peers of `benches/peers`, each as one executable file in the cache folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::pytorch::Python;
use crate::torch::quoted;
use crate::{cache, packages, torch};

/// Pinned in `benches/peers/jax.txt`.
const JAX: &str = "jax-0.10.2";

const NAMES: [&str; 7] = ["torch", "torch-compile", "jax", "candle", "burn", "tch", "floor"];

/// Sets up the named peers, or all if no names are given, and returns the names of the available ones. A peer that
/// cannot be set up is reported, and left out unless it was named.
///
/// # Errors
/// An unknown name, or a named peer that cannot be set up.
pub(crate) fn setup(names: &[&str]) -> Result<Vec<&'static str>, String> {
    let known: Vec<&str> = NAMES.into_iter().chain(JOINED).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!(
            "no peer is called {unknown:?}\n  fix: choose among {}",
            known.join(", ")
        ));
    }
    let folder = cache::folder()?.join("peers");
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    let mut there = Vec::new();
    let asked = |name: &&str| names.contains(name);
    let usual = NAMES.into_iter().filter(|name| names.is_empty() || asked(name));
    for name in usual.chain(JOINED.into_iter().filter(asked)) {
        match start(name).and_then(|line| write(&folder.join(name), &line)) {
            Ok(()) => there.push(name),
            Err(reason) if names.is_empty() => eprintln!("{name} is left out: {reason}"),
            Err(reason) => return Err(reason),
        }
    }
    println!("peers in {}: {}", folder.display(), there.join(", "));
    Ok(there)
}

/// Peers that consist of several processes, which take cores from the others, so they are only used if named.
const JOINED: [&str; 2] = ["torch-ddp", "polygrad-gloo"];

/// Installs or builds a peer, and returns the shell line that starts it.
fn start(name: &str) -> Result<String, String> {
    let python = |python: String, line: &str| {
        let (script, options) = line.split_once(' ').unwrap_or((line, ""));
        let script = copied(script)?;
        Ok(format!("{python} {} {options}", quoted(&script.display().to_string())))
    };
    match name {
        "torch" => python(Python::find()?.shell(), "peer_torch.py"),
        "torch-ddp" => python(
            format!(
                "{} -m torch.distributed.run --nproc-per-node 2",
                Python::find()?.shell()
            ),
            "peer_torch.py --ddp",
        ),
        "polygrad-gloo" => together(),
        "torch-compile" => python(Python::find()?.shell(), "peer_torch.py --compile"),
        "jax" => python(jax()?, "peer_jax.py"),
        "tch" => {
            let environment = torch::environment()?;
            let program = built(name, &environment)?;
            let variables = environment.iter().filter(|(variable, _)| variable == "LD_LIBRARY_PATH");
            let variables: String = variables
                .map(|(name, value)| format!("{name}={} ", quoted(value)))
                .collect();
            Ok(format!("{variables}exec {}", quoted(&program.display().to_string())))
        }
        _ => Ok(format!("exec {}", quoted(&built(name, &[])?.display().to_string()))),
    }
}

/// Two processes of Polygrad, joined by Gloo.
fn together() -> Result<String, String> {
    let environment = torch::environment()?;
    let from = cargo::program(
        "build --release --package polygrad-cli --features gloo,lab",
        "polygrad",
        &environment,
    )?;
    let program = files()?.join("polygrad-gloo");
    fs::copy(&from, &program).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
    let variables = environment.iter().filter(|(variable, _)| variable == "LD_LIBRARY_PATH");
    let variables: String = variables
        .map(|(name, value)| format!("{name}={} ", quoted(value)))
        .collect();
    let (launcher, program) = (Python::find()?.shell(), quoted(&program.display().to_string()));
    Ok(format!(
        "{variables}{launcher} -m torch.distributed.run --no-python --nproc-per-node 2 {program} bench --serve --captured --parallel gloo"
    ))
}

/// A shell script of one line.
fn write(file: &Path, line: &str) -> Result<(), String> {
    let write = || {
        fs::write(file, format!("#!/bin/sh\n{} \"$@\"\n", line.trim_end()))?;
        #[cfg(unix)]
        fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok::<(), std::io::Error>(())
    };
    write().map_err(|e| format!("cannot write {}: {e}", file.display()))
}

/// The folder of the files that the scripts start.
fn files() -> Result<PathBuf, String> {
    let folder = cache::folder()?.join("peers.files");
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    Ok(folder)
}

/// Copies a Python script with its shared module to the cache, so that the checkout may be removed.
fn copied(script: &str) -> Result<PathBuf, String> {
    let (from, to) = (cargo::checkout().join("benches/peers"), files()?);
    for name in ["protocol.py", script] {
        fs::copy(from.join(name), to.join(name)).map_err(|e| format!("cannot copy {name} to {}: {e}", to.display()))?;
    }
    Ok(to.join(script))
}

/// A Rust program in the cache, built from its folder with its own lock file.
///
/// # Errors
/// If it cannot be built or copied.
pub(crate) fn built(name: &str, environment: &[(String, String)]) -> Result<PathBuf, String> {
    let folder = cargo::checkout().join("benches/peers").join(name);
    let target = cargo::checkout().join("target/peers");
    eprintln!("building {}", folder.display());
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--quiet", "--target-dir"])
        .arg(&target)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        // Cargo searches for its configuration from here.
        .current_dir(&folder)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(format!("cargo build in {} ended with {status}", folder.display())),
        Err(error) => return Err(format!("cargo could not be started: {error}")),
    }
    let (from, to) = (
        target.join(format!("release/polygrad-peer-{name}")),
        files()?.join(name),
    );
    // A running program cannot be overwritten, but it can be replaced.
    let part = to.with_extension("part");
    fs::copy(&from, &part)
        .and_then(|_| fs::rename(&part, &to))
        .map_err(|e| format!("cannot copy {} to {}: {e}", from.display(), to.display()))?;
    Ok(to)
}

/// The shell command for a Python with JAX.
fn jax() -> Result<String, String> {
    let folder = packages::listed("benches/peers/jax.txt", JAX)?;
    Ok(format!(
        "PYTHONPATH={} exec python3 -s",
        quoted(&folder.display().to_string())
    ))
}
