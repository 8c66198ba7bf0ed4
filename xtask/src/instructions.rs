//! `cargo xtask instructions`: instructions per step of small cases, and a table to compare them with. Unlike times,
//! they are the same in every run. Valgrind counts those of `polygrad bench --serve`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo;
use crate::table::{Kept, Table};

/// The cases, and the number of steps of the shorter of two runs: enough for some million instructions.
const CASES: [(&str, usize); 9] = [
    ("dispatch/add", 4000),
    ("dispatch/tracked", 2000),
    ("dispatch/backward", 1000),
    ("mlp-act", 500),
    ("mlp-rl/sgd", 50),
    ("mlp-rl/adam", 50),
    ("gemm/64x64x64", 50),
    ("gemm/32x10x128", 200),
    ("gemm/64x128x784", 10),
];

/// Steps before the counted ones, since the first ones find no freed memory to reuse.
const WARM_UP: usize = 20;

const KEPT: Kept = Kept {
    path: "benches/workloads/instructions.txt",
    head: "\
# Instructions per step, written by `cargo xtask instructions --record`: docs/performance.md says how they are counted.
# A line has a case and its count; counts hold for the machine that the next line names.
",
    what: "instructions",
    record: "cargo xtask instructions --record",
};

/// Counts the instructions, and compares them with the table or writes it.
///
/// # Errors
/// If a case takes more than 3 % more instructions than in the table, or cannot be counted; also if the table is of
/// another compiler or machine and the variable `CI` is `true`.
pub(crate) fn run(record: bool) -> Result<(), String> {
    let made_with = made_with()?;
    let program = cargo::program("build --release --bin polygrad --features lab", "polygrad", &[])?;
    let mut counts = Vec::new();
    for (case, steps) in CASES {
        let per_step = per_step(&program, case, steps)?;
        println!("{case:<20} {per_step:>10.1}");
        counts.push((case.to_owned(), per_step));
    }
    KEPT.settle(&Table { made_with, counts }, record)
}

/// The parts of the system that the counts depend on besides the code.
fn made_with() -> Result<String, String> {
    let said = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        let output = output.map_err(|e| format!("{program} cannot be started: {e}"))?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let rustc = said(&std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()), "-V")?;
    // The C library's functions to copy, allocate and compare are counted, too.
    let libc = said("getconf", "GNU_LIBC_VERSION")?;
    #[cfg(target_arch = "x86_64")]
    let vectors = match std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        true => " with AVX2",
        false => " without AVX2",
    };
    #[cfg(not(target_arch = "x86_64"))]
    let vectors = "";
    Ok(format!("{rustc}, {libc}, {}{vectors}", std::env::consts::ARCH))
}

/// The difference between a run and one with twice as many steps, in which the start and the end of the program cancel
/// out.
fn per_step(program: &Path, case: &str, steps: usize) -> Result<f64, String> {
    let (once, twice) = (
        instructions(program, case, steps)?,
        instructions(program, case, 2 * steps)?,
    );
    match twice > once {
        true => Ok((twice - once) as f64 / steps as f64),
        false => Err(format!(
            "{case}: {twice} instructions for {} steps, {once} for {steps}",
            2 * steps
        )),
    }
}

/// All instructions of the program when it runs this many steps of a case.
fn instructions(program: &Path, case: &str, steps: usize) -> Result<u64, String> {
    let failed = |what: String| format!("{case} cannot be counted: {what}");
    let mut command = Command::new("valgrind");
    command
        .args("--tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null".split(' '))
        .arg(program)
        .args("bench --serve --backend cpu:threads=1".split(' '));
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|e| {
        failed(format!(
            "valgrind cannot be started: {e}\n  fix: apt-get install valgrind"
        ))
    })?;
    let questions = format!("case {case}\nrun 1 {WARM_UP}\nrun 1 {steps}\n");
    // Dropped at once, since the program ends with its input.
    if let Some(mut input) = child.stdin.take() {
        input
            .write_all(questions.as_bytes())
            .map_err(|e| failed(e.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    let (answers, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if !output.status.success() || answers.lines().filter(|line| line.starts_with("ok")).count() != 3 {
        return Err(failed(format!("{answers}{said}")));
    }
    total(&said).ok_or_else(|| failed(said.into_owned()))
}

/// The number in valgrind's line `==1234== I   refs:      1,234,567`.
fn total(said: &str) -> Option<u64> {
    let line = said
        .lines()
        .find(|line| line.contains("refs:") && line.contains(" I "))?;
    let digits: String = line.rsplit(':').next()?.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        let said = "==12== Cachegrind, a cache\n==12== \n==12== I   refs:      1,234,567\n";
        assert_eq!(total(said), Some(1_234_567));
        assert_eq!(total("==12== D   refs:  12\n"), None);
    }

    #[test]
    fn the_kept_table_has_every_case() {
        let table = Table::parse(&std::fs::read_to_string(cargo::checkout().join(KEPT.path)).unwrap()).unwrap();
        let (known, cases): (Vec<_>, Vec<_>) = (
            table.counts.iter().map(|(case, _)| case.as_str()).collect(),
            CASES.iter().map(|(case, _)| *case).collect(),
        );
        assert_eq!(known, cases);
    }
}
