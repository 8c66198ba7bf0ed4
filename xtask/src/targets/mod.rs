//! Checks for other targets: Apple's, which are type-checked, and WebAssembly, which is built and run.

mod toolchain;

use std::path::PathBuf;
use std::process::Command;

use crate::cargo;
use toolchain::Toolchain;

/// The packages that are checked for WebAssembly.
const WASM: [&str; 13] = [
    "polygrad-core",
    "polygrad-tensor",
    "polygrad-nn",
    "polygrad-onnx",
    "polygrad-formats",
    "polygrad-data",
    "polygrad-train",
    "polygrad-plot",
    "polygrad-rl",
    "polygrad-cpu",
    "polygrad-cpu-kernels",
    "polygrad-compute",
    "polygrad-wgpu",
];

/// The packages that are checked for Apple's machines beside [`WASM`]: together all except external engines.
const APPLE: [&str; 4] = ["polygrad-conformance", "polygrad", "polygrad-console", "polygrad-cli"];

/// `cargo xtask check-apple`: type-checks for aarch64-apple-darwin.
///
/// # Errors
/// If there is no compiler for it, or a check fails.
pub(crate) fn check_apple() -> Result<(), String> {
    Toolchain::find("aarch64-apple-darwin")?.cargo("check", &packages(&[&WASM[..], &APPLE].concat()))
}

/// `cargo xtask check-wasm`: type-checks for wasm32-unknown-unknown, and trains an MLP under Node.
///
/// # Errors
/// If there is no compiler for it or no Node, a check fails, or the MLP does not learn.
pub(crate) fn check_wasm() -> Result<(), String> {
    let toolchain = Toolchain::find("wasm32-unknown-unknown")?;
    toolchain.cargo("check", &packages(&WASM))?;
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    toolchain.cargo("build", &["--release", "-p", "polygrad-wasm"])?;
    let module = folder.join("wasm32-unknown-unknown/release/polygrad_wasm.wasm");
    println!("node examples/wasm/run.mjs {}", module.display());
    match Command::new("node").arg("examples/wasm/run.mjs").arg(&module).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("node ended with {status}")),
        Err(error) => Err(format!(
            "node could not be started: {error}\n  fix: install Node (Debian: nodejs)"
        )),
    }
}

fn packages(names: &[&'static str]) -> Vec<&'static str> {
    names.iter().flat_map(|name| ["-p", name]).collect()
}

impl Toolchain {
    fn cargo(&self, command: &str, arguments: &[&str]) -> Result<(), String> {
        let mut line = vec![command, "--target", self.target];
        line.extend(self.arguments.iter().chain(arguments));
        cargo::run(&line, &self.environment)
    }
}
