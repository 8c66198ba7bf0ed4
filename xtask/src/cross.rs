//! What each of Polygrad and PyTorch writes the other reads.

use std::path::Path;
use std::process::Command;

use crate::cargo;

/// Writes, lets PyTorch check and write, and checks.
pub(crate) fn run() -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/crossing");
    for side in ["polygrad", "pytorch"] {
        std::fs::create_dir_all(folder.join(side)).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let folder = folder.to_str().ok_or("the checkout's path is no text")?;
    let here = |task: &str| {
        let example = "run --quiet --release -p polygrad-nn --example crossing --";
        let line: Vec<&str> = example.split(' ').chain([task, folder]).collect();
        cargo::run(&line, &[])
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
