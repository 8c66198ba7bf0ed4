//! The report, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Ending, Report, Run};

/// The numbers of output lines shown: lines with counts and failures, and the last lines.
const TELLING: usize = 30;
const LAST: usize = 40;

/// The ending in words.
pub(super) fn ending(ending: &Ending) -> String {
    match ending {
        Ending::Waiting => "not begun".to_owned(),
        Ending::Passed => "passed".to_owned(),
        Ending::Failed(how) => format!("FAILED: {how}"),
        Ending::Late => "ended for want of time".to_owned(),
        Ending::Left(why) => format!("not run: {why}"),
    }
}

impl Report {
    pub(super) fn page(&self) -> String {
        let mut page = format!(
            "# Polygrad on a graphics card\n\n{} UTC, commit {}, {} minutes\n\n| | |\n|---|---|\n",
            self.date, self.commit, self.minutes
        );
        for (name, answer) in &self.facts {
            let _ = writeln!(page, "| {name} | {} |", cell(answer));
        }
        page += "\n| part | what | seconds | result |\n|---|---|---|---|\n";
        for Run { part, ending, took, .. } in &self.runs {
            // Only the part of a reason before its remedy.
            let result = self::ending(ending);
            let result = cell(result.split(": install ").next().unwrap_or(&result));
            let _ = writeln!(
                page,
                "| {} | {} | {:.1} | {result} |",
                part.name,
                part.title,
                took.as_secs_f64()
            );
        }
        for run in &self.runs {
            if matches!(run.ending, Ending::Waiting | Ending::Left(_)) {
                continue;
            }
            let _ = write!(
                page,
                "\n## {}\n\n`{}`: {}\n",
                run.part.title,
                run.line(),
                ending(&run.ending)
            );
            match &run.figures {
                Some(figures) => page += &table(figures),
                None => page += &excerpt(&run.output),
            }
        }
        page
    }

    pub(super) fn json(&self) -> Value {
        let parts = self.runs.iter().map(|run| {
            let (ending, reason) = match &run.ending {
                Ending::Waiting => ("waiting", None),
                Ending::Passed => ("passed", None),
                Ending::Failed(how) => ("failed", Some(how)),
                Ending::Late => ("late", None),
                Ending::Left(why) => ("left", Some(why)),
            };
            json!({
                "name": run.part.name,
                "title": run.part.title,
                "command": run.line(),
                "ending": ending,
                "reason": reason,
                "seconds": run.took.as_secs_f64(),
                "figures": run.figures,
                "output": shown(&run.output),
            })
        });
        let facts: serde_json::Map<String, Value> = self
            .facts
            .iter()
            .map(|(name, answer)| ((*name).to_owned(), json!(answer)))
            .collect();
        json!({
            "date": self.date,
            "commit": self.commit,
            "minutes": self.minutes,
            "machine": facts,
            "parts": parts.collect::<Vec<_>>(),
        })
    }
}

impl Run {
    /// The command as typed.
    fn line(&self) -> String {
        let words = self.part.words.iter().map(|word| match word.as_str() {
            "" => "polygrad-gpu",
            word => word,
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Escapes bars and newlines, which a table cell cannot have.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The most informative lines of an output.
fn shown(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let (head, last) = lines.split_at(lines.len().saturating_sub(LAST));
    let tells = |line: &&str| line.contains("FAIL") || line.contains(" passed, ") || line.starts_with("total");
    let telling: Vec<&str> = head.iter().copied().filter(tells).collect();
    let mut shown: Vec<&str> = telling.iter().copied().take(TELLING).collect();
    let more = format!("… and {} more that fail", telling.len().saturating_sub(TELLING));
    if telling.len() > TELLING {
        shown.push(&more);
    }
    if !shown.is_empty() {
        shown.push("…");
    }
    shown.extend(last);
    shown.join("\n")
}

fn excerpt(output: &str) -> String {
    // Four backticks, since the quoted text may contain three.
    format!("\n````text\n{}\n````\n", shown(output).trim_end())
}

/// The measurements of `polygrad bench`: a row for each case and contestant.
fn table(figures: &Value) -> String {
    let mut table =
        "\n| case | who | median | throughput | loss of step 5 | times Polygrad's |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for case in figures["cases"].as_array().into_iter().flatten() {
        for result in case["results"].as_array().into_iter().flatten() {
            let (case, name) = (text(&case["case"]), text(&result["name"]));
            if let Some(reason) = result["failed"].as_str() {
                let _ = writeln!(table, "| {case} | {name} | failed: {} | | | |", cell(reason));
                continue;
            }
            let units = result["throughput"].as_array().into_iter().flatten();
            let units: Vec<String> = units
                .map(|unit| {
                    format!(
                        "{:.4} {}",
                        unit["value"].as_f64().unwrap_or(f64::NAN),
                        text(&unit["unit"])
                    )
                })
                .collect();
            let number = |value: &Value, digits: usize| {
                value
                    .as_f64()
                    .map(|value| format!("{value:.digits$}"))
                    .unwrap_or_default()
            };
            let _ = writeln!(
                table,
                "| {case} | {name} | {:.1} µs | {} | {} | {} |",
                result["median"].as_f64().unwrap_or(f64::NAN) * 1e6,
                units.join(", "),
                number(&result["loss"], 6),
                number(&result["ratio"], 2),
            );
        }
    }
    table
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_shown_wherever_they_stand() {
        let mut lines: Vec<String> = (0..500).map(|i| format!("line {i}")).collect();
        lines[7] = "FAIL matmul".to_owned();
        lines[9] = "total 12 0 1".to_owned();
        let shown = shown(&lines.join("\n"));
        assert!(
            shown.starts_with("FAIL matmul\ntotal 12 0 1\n…\nline 460") && shown.ends_with("line 499"),
            "{shown}"
        );
    }

    #[test]
    fn figures_are_a_table() {
        let figures = json!({"cases": [{"case": "gemm 8x8x8", "results": [
            {"name": "polygrad", "median": 2e-6, "throughput": [{"value": 3.5, "unit": "GFLOP/s"}], "loss": null, "ratio": 1.0},
            {"name": "torch", "failed": "no | card"},
        ]}]});
        let table = table(&figures);
        assert!(
            table.contains("| gemm 8x8x8 | polygrad | 2.0 µs | 3.5000 GFLOP/s |  | 1.00 |"),
            "{table}"
        );
        assert!(table.contains("failed: no \\| card"), "{table}");
    }
}
