//! `report`: runs part after part, and updates the report after each. A failing part does not stop the others.

mod machine;
mod page;
mod plan;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use machine::Fact;
use plan::Part;

/// With less time left, no part is started.
const LEAST: Duration = Duration::from_secs(5);
/// The time for a part to end after an interrupt, in seconds.
const GRACE: &str = "20";

/// How a part ended.
#[derive(Clone, Debug, PartialEq)]
enum Ending {
    /// It has not run yet.
    Waiting,
    Passed,
    /// The status.
    Failed(String),
    /// It was interrupted at its time limit.
    Late,
    /// The reason why it was not run.
    Left(String),
}

/// A part and its result.
struct Run {
    part: Part,
    ending: Ending,
    took: Duration,
    /// Its output.
    output: String,
    /// The measurements of `polygrad bench`.
    figures: Option<Value>,
}

struct Report {
    date: String,
    commit: String,
    minutes: f64,
    facts: Vec<Fact>,
    runs: Vec<Run>,
}

/// Runs as many parts as fit into this number of minutes, or the parts whose names start with the chosen words; writes
/// `report.md`, `report.json` and the logs to `work`.
///
/// # Errors
/// If the report cannot be written, no part is chosen, or, at the end, if a part failed.
pub(crate) fn command(bundle: &Path, work: &Path, minutes: &str, chosen: &[&str]) -> Result<(), String> {
    let parsed = minutes
        .parse()
        .ok()
        .filter(|minutes: &f64| (0.0..=10_000.0).contains(minutes));
    let minutes = parsed.ok_or_else(|| format!("{minutes:?} is no number of minutes"))?;
    let (start, time) = (Instant::now(), Duration::from_secs_f64(60.0 * minutes));
    let logs = work.join("logs");
    fs::create_dir_all(&logs).map_err(|error| format!("cannot create {}: {error}", logs.display()))?;
    println!("looking at the machine");
    let facts = machine::facts();
    for (name, answer) in &facts {
        println!("  {name}: {answer}");
    }
    let mut parts = plan::plan(&facts, work);
    let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
    let meant = |part: &Part| chosen.is_empty() || chosen.iter().any(|start| part.name.starts_with(start));
    parts.retain(meant);
    if parts.is_empty() {
        return Err(format!(
            "no part is called {}; there are {}",
            chosen.join(", "),
            names.join(", ")
        ));
    }
    let commit = fs::read_to_string(bundle.join("commit")).unwrap_or_else(|_| "unknown".to_owned());
    let mut report = Report {
        date: date(),
        commit: commit.trim().to_owned(),
        minutes,
        facts,
        runs: parts.into_iter().map(Run::waiting).collect(),
    };
    report.write(work)?;
    for i in 0..report.runs.len() {
        let run = &mut report.runs[i];
        run.go(&logs, time.saturating_sub(start.elapsed()));
        println!(
            "{:<24} {:>7.1} s  {}",
            run.part.name,
            run.took.as_secs_f64(),
            page::ending(&run.ending)
        );
        report.write(work)?;
    }
    println!("written: {}", work.join("report.md").display());
    let failed: Vec<&str> = report
        .runs
        .iter()
        .filter(|run| matches!(run.ending, Ending::Failed(_)))
        .map(|run| &*run.part.name)
        .collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

impl Run {
    fn waiting(part: Part) -> Self {
        Self {
            part,
            ending: Ending::Waiting,
            took: Duration::ZERO,
            output: String::new(),
            figures: None,
        }
    }

    /// Runs the part, if it can run and there is time.
    fn go(&mut self, logs: &Path, left: Duration) {
        if let Some(reason) = &self.part.lacks {
            self.ending = Ending::Left(reason.clone());
            return;
        }
        if left < LEAST {
            self.ending = Ending::Left("the time was up".to_owned());
            return;
        }
        let start = Instant::now();
        let log = logs.join(format!("{}.log", self.part.name));
        let json = logs.join(format!("{}.json", self.part.name));
        let limit = left.min(Duration::from_secs_f64(60.0 * self.part.minutes));
        self.ending = self.execute(&log, &json, limit).unwrap_or_else(Ending::Failed);
        self.took = start.elapsed();
        let bytes = fs::read(log).unwrap_or_default();
        self.output = String::from_utf8_lossy(&bytes).into_owned();
        self.figures = fs::read(json)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    }

    /// Uses `timeout`, which also ends child processes, with the signal of Ctrl-C, so that they end cleanly.
    fn execute(&self, log: &Path, json: &Path, limit: Duration) -> Result<Ending, String> {
        let failed = |error: std::io::Error| error.to_string();
        let output = File::create(log).map_err(failed)?;
        let own: PathBuf = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new("timeout");
        command.args([
            "--signal=INT",
            "--kill-after",
            GRACE,
            &format!("{}s", limit.as_secs_f64()),
        ]);
        for word in &self.part.words {
            match word.as_str() {
                "" => command.arg(&own),
                word => command.arg(word),
            };
        }
        if self.part.figures {
            command.arg("--json").arg(json);
        }
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output);
        let status = command.status().map_err(failed)?;
        Ok(match status.code() {
            Some(0) => Ending::Passed,
            Some(124 | 137) => Ending::Late,
            Some(code) => Ending::Failed(format!("exit status {code}")),
            None => Ending::Failed(status.to_string()),
        })
    }
}

impl Report {
    /// Writes whole files, so that they are valid whenever the program is stopped.
    fn write(&self, work: &Path) -> Result<(), String> {
        let files = [
            ("report.md", self.page()),
            ("report.json", format!("{:#}\n", self.json())),
        ];
        for (name, text) in files {
            let (path, part) = (work.join(name), work.join(format!("{name}.part")));
            let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// The system clock's date and time, in UTC.
fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, words: &[&str], lacks: Option<&str>) -> Part {
        Part {
            name: name.to_owned(),
            title: format!("The part {name}"),
            words: words.iter().map(|&word| word.to_owned()).collect(),
            minutes: 0.02,
            lacks: lacks.map(str::to_owned),
            figures: false,
        }
    }

    #[test]
    fn a_report_is_whole_whatever_becomes_of_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        let minute = Duration::from_secs(60);
        let mut runs: Vec<Run> = [
            part("good", &["echo", "all is well"], None),
            part("bad", &["sh", "-c", "echo 'FAIL add'; exit 3"], None),
            part("absent", &["/there/is/no/such/program"], None),
            part("slow", &["sleep", "60"], None),
            part("lacking", &["echo"], Some("no card")),
            part("late", &["echo"], None),
            part("waiting", &["echo"], None),
        ]
        .map(Run::waiting)
        .into();
        for (i, run) in runs.iter_mut().enumerate().take(6) {
            run.go(folder.path(), if i < 5 { minute } else { Duration::ZERO });
        }
        let endings: Vec<&Ending> = runs.iter().map(|run| &run.ending).collect();
        assert_eq!(endings[0], &Ending::Passed);
        assert_eq!(endings[1], &Ending::Failed("exit status 3".to_owned()));
        assert!(matches!(endings[2], Ending::Failed(_)));
        assert_eq!(endings[3], &Ending::Late);
        assert_eq!(endings[4], &Ending::Left("no card".to_owned()));
        assert_eq!(endings[5], &Ending::Left("the time was up".to_owned()));
        assert_eq!(endings[6], &Ending::Waiting);
        let report = Report {
            date: "2026-11-23 12:00".to_owned(),
            commit: "abc".to_owned(),
            minutes: 1.0,
            facts: vec![("card", "none".to_owned())],
            runs,
        };
        report.write(folder.path()).unwrap();
        let page = fs::read_to_string(folder.path().join("report.md")).unwrap();
        for words in [
            "all is well",
            "FAIL add",
            "exit status 3",
            "no card",
            "the time was up",
            "The part waiting",
            "abc",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        let json: Value = serde_json::from_slice(&fs::read(folder.path().join("report.json")).unwrap()).unwrap();
        assert_eq!(json["parts"].as_array().unwrap().len(), 7);
        assert_eq!(json["parts"][1]["ending"], "failed");
    }
}
