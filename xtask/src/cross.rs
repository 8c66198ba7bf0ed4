//! Checks that Polygrad and PyTorch read each other's files.

use std::process::Command;

use crate::cargo;

/// Writes files, lets PyTorch check them and write its own, and checks those.
pub(crate) fn run() -> Result<(), String> {
    let checkout = cargo::checkout();
    let folder = checkout.join("target/crossing");
    for side in ["polygrad", "pytorch"] {
        std::fs::create_dir_all(folder.join(side)).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let folder = folder.to_str().ok_or("the checkout's path is no text")?;
    let crossing = |task: &str| {
        let line = "run --quiet --release -p polygrad-judging --bin crossing --";
        let line: Vec<&str> = line.split(' ').chain([task, folder]).collect();
        cargo::run(&line, &[])
    };
    crossing("write")?;
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let script = checkout.join("scripts/cross_pytorch.py").display().to_string();
    let status = Command::new(&python).args([&script, folder]).status();
    match status.map_err(|e| format!("{}: {e}", python.display()))? {
        status if status.success() => crossing("check"),
        status => Err(format!("{} {script}: {status}", python.display())),
    }
}
