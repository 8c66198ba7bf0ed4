//! `cargo xtask budget`: the amount of code that the compiler processes for the default command, in lines of
//! unoptimized LLVM IR, and a table to compare it with. Unlike seconds, the lines are the same in every run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::table::{Kept, Table};

const KEPT: Kept = Kept {
    path: "benches/workloads/budget.txt",
    head: "\
# What the default command makes the compiler work on, written by `cargo xtask budget --record`: lines of LLVM's code
# before optimization for each of Polygrad's crates and for all others together, and how many packages there are.
",
    what: "lines",
    record: "cargo xtask budget --record",
};

/// Counts the lines, and compares them with the table or writes it.
///
/// # Errors
/// If something cannot be built; errors of [`Kept::settle`].
pub(crate) fn run(record: bool) -> Result<(), String> {
    let rustc = said("rustc", &["-vV"])?;
    let line = |begin: &str| {
        rustc
            .lines()
            .find_map(|line| line.strip_prefix(begin))
            .unwrap_or_default()
    };
    let host = line("host: ").to_owned();
    let packages = cargo::packages("crates/cli", &["--edges", "normal,build"])?.len() as f64;
    let counts = [vec![("packages".to_owned(), packages)], lines(&host)?].concat();
    for (what, count) in &counts {
        println!("{what:<20} {count:>10.1}");
    }
    let made_with = format!("rustc {}, {host}", line("release: "));
    KEPT.settle(&Table { made_with, counts }, record)
}

fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|e| format!("{program} cannot be started: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Lines of LLVM IR of each of Polygrad's crates, and of all others together.
fn lines(host: &str) -> Result<Vec<(String, f64)>, String> {
    let target = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let target = cargo::checkout().join(target).join("budget");
    let deps = target.join(host).join("budget/deps");
    // Crates that are up to date would not emit code.
    if target.exists() {
        fs::remove_dir_all(&target).map_err(|e| format!("cannot delete {}: {e}", target.display()))?;
    }
    let shown = target.display().to_string();
    let build = ["build", "-p", "polygrad-cli", "--profile", "budget"];
    let to = ["--target", host, "--target-dir", &shown];
    // If a target is named, flags do not apply to build scripts and macros.
    let flags = "--emit=llvm-ir -Cno-prepopulate-passes".to_owned();
    cargo::run(&[&build[..], &to].concat(), &[("RUSTFLAGS".to_owned(), flags)])?;
    let mut counts = BTreeMap::new();
    for file in code(&deps)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.split('-').next().unwrap_or_default();
        let of = if name.starts_with("polygrad") { name } else { "others" };
        *counts.entry(of.to_owned()).or_insert(0.0) += of_file(&file)?;
    }
    match counts.len() > 1 {
        true => Ok(counts.into_iter().collect()),
        false => Err(format!("{} has no code", deps.display())),
    }
}

/// The files with LLVM IR in a folder.
fn code(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(files
        .filter(|path| path.extension().is_some_and(|is| is == "ll"))
        .collect())
}

/// The number of lines within functions.
fn of_file(path: &Path) -> Result<f64, String> {
    let unreadable = |e| format!("cannot read {}: {e}", path.display());
    let (mut count, mut inside) = (0u64, false);
    for line in BufReader::new(fs::File::open(path).map_err(unreadable)?).split(b'\n') {
        let line = line.map_err(unreadable)?;
        inside = match inside {
            true => line != b"}",
            false => line.starts_with(b"define "),
        };
        count += u64::from(inside && line.starts_with(b"  "));
    }
    Ok(count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_within_functions_are_counted() {
        let file = std::env::temp_dir().join(format!("polygrad-budget-{}.ll", std::process::id()));
        let text = "; a comment\n@data = 1\ndefine void @f() {\nstart:\n  ret void\n}\n  no code\ndefine i32 @g() {\n  %1 = add\n  ret i32 1\n}\n";
        fs::write(&file, text).unwrap();
        let count = of_file(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!(count, Ok(3.0));
    }
}
