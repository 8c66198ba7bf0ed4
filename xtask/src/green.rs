//! Records which parts passed their suites with their current inputs: the part's folder, the seam (`crates/core`), the
//! suite (`conformance`), and the packages of the lock file that it is built from. Such a part need not be built and
//! tested again.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cargo;

const PATH: &str = "xtask/green.txt";

const HEAD: &str = "\
# Parts whose suites passed, written by `cargo xtask test --record`: part, hash of its inputs, day, compiler.
";

/// Inputs common to all parts.
const SHARED: [&str; 3] = ["crates/core", "conformance", "xtask/src/tests.rs"];

/// Part, hash, date and compiler.
type Row = [String; 4];

/// The table of passed parts.
pub(crate) struct Passed(Vec<Row>);

impl Passed {
    /// Reads the table.
    ///
    /// # Errors
    /// If it exists but cannot be read, or has an invalid line.
    pub(crate) fn read() -> Result<Self, String> {
        let path = path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{PATH}: {error}")),
        };
        Ok(Self(rows(&text)?))
    }

    /// When the part passed, if none of its inputs have changed since.
    pub(crate) fn unchanged(&self, name: &str, folder: &str) -> Option<String> {
        let [_, hash, day, compiler] = self.0.iter().find(|row| row[0] == name)?;
        let same = !folder.is_empty() && inputs(folder).is_ok_and(|now| now == *hash);
        same.then(|| format!("passed on {day} with rustc {compiler}"))
    }
}

/// Replaces the rows of these parts and folders.
///
/// # Errors
/// If inputs have uncommitted changes, or the file cannot be written.
pub(crate) fn record(parts: &[(&str, &str)]) -> Result<(), String> {
    let Passed(mut rows) = Passed::read()?;
    let day = said(Command::new("date").arg("+%F"), "")?;
    let compiler = said(Command::new("rustc").arg("--version"), "")?;
    let compiler = compiler.split(' ').nth(1).unwrap_or_default().to_owned();
    for (name, folder) in parts {
        rows.retain(|row| row[0] != *name);
        rows.push([(*name).to_owned(), inputs(folder)?, day.clone(), compiler.clone()]);
    }
    rows.sort();
    let lines: String = rows.iter().map(|row| row.join("  ") + "\n").collect();
    fs::write(path(), HEAD.to_owned() + &lines).map_err(|error| format!("{PATH}: {error}"))
}

fn path() -> PathBuf {
    cargo::checkout().join(PATH)
}

fn rows(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<String> = line.split("  ").map(str::to_owned).collect();
            Row::try_from(words)
                .map_err(|_| format!("{PATH}: no row of four: {line:?}\n  fix: cargo xtask test --record"))
        })
        .collect()
}

/// A hash of the committed state of a part's inputs, and of the packages that it is built from.
///
/// # Errors
/// Without git or cargo, or if some inputs have uncommitted changes.
fn inputs(folder: &str) -> Result<String, String> {
    let paths = [&[folder], &SHARED[..]].concat();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(cargo::checkout()).args(arguments);
        command
    };
    let open = said(git(&["status", "--porcelain", "--"]).args(&paths), "")?;
    if !open.is_empty() {
        return Err(format!("not committed:\n{open}"));
    }
    let files = said(git(&["ls-files", "--stage", "--"]).args(&paths), "")?;
    let packages = cargo::packages(folder, &["--all-features"])?.join("\n");
    said(&mut git(&["hash-object", "--stdin"]), &format!("{files}\n{packages}"))
}

/// Runs a program with this text as its input, and returns its output.
fn said(command: &mut Command, text: &str) -> Result<String, String> {
    let line = format!("{command:?}");
    let failed = |error: std::io::Error| format!("{line} cannot be run: {error}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // Dropped, so that the program sees the end of its input.
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
        false => Err(format!("{line} ended with {}", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_unchanged_only_with_the_inputs_that_passed() {
        let Ok(hash) = inputs("backends/null") else {
            return;
        };
        let row = |hash: &str| ["null", hash, "2026-11-28", "1.95.0"].map(str::to_owned);
        assert!(Passed(vec![row(&hash)]).unchanged("null", "backends/null").is_some());
        assert_eq!(Passed(vec![row(&hash)]).unchanged("null", "backends/cpu"), None);
        assert_eq!(Passed(vec![row(&hash)]).unchanged("null", ""), None);
        assert_eq!(Passed(vec![row("0")]).unchanged("null", "backends/null"), None);
        assert_eq!(Passed(Vec::new()).unchanged("null", "backends/null"), None);
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        assert_eq!(rows("# head\na  b  c  d\n").unwrap().len(), 1);
        assert!(rows("a  b\n").unwrap_err().contains("\"a  b\""));
    }
}
