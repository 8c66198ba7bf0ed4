//! The output of judges: a line for each file, with the model, the file, the judge, and the largest difference,
//! relative to the largest value; or `x` and the reason why there is none; or `-` and what the judge does not support.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Relative to the largest value of an output.
const TOLERANCE: f64 = 1e-5;

#[derive(Debug, PartialEq)]
enum Verdict {
    Difference(f64),
    Lacks(String),
    Fails(String),
}

#[derive(Debug)]
struct Line {
    model: String,
    file: String,
    judge: String,
    verdict: Verdict,
}

/// The verdicts of several judges on the same files.
pub(super) struct Verdicts {
    lines: Vec<Line>,
}

impl Verdicts {
    /// Runs the judges one after the other.
    ///
    /// # Errors
    /// If one cannot be started, fails without a reason, or has no output.
    pub(super) fn of<const N: usize>(judges: [Command; N]) -> Result<Self, String> {
        let mut lines = Vec::new();
        for mut judge in judges {
            let shown = format!("{judge:?}");
            eprintln!("{shown}");
            let output = judge.stderr(Stdio::inherit()).output();
            let output = output.map_err(|e| format!("{shown} cannot be started: {e}"))?;
            let text = String::from_utf8_lossy(&output.stdout);
            let said = text.lines().map(line).collect::<Result<Vec<_>, _>>()?;
            let blames = said.iter().any(|line| line.failure().is_some());
            if said.is_empty() || (!output.status.success() && !blames) {
                return Err(format!("{shown} ended with {}", output.status));
            }
            lines.extend(said);
        }
        Ok(Self { lines })
    }

    /// Prints a table of models and judges with the largest difference in all files of a model, and below it what
    /// judges do not support.
    pub(super) fn print(&self, title: &str, judges: &[&str]) {
        println!("\n{title}\n\n| model | {} |", judges.join(" | "));
        println!("|---|{}", "---|".repeat(judges.len()));
        let models: BTreeSet<&str> = self.lines.iter().map(|line| line.model.as_str()).collect();
        for model in models {
            let cells: Vec<String> = judges.iter().map(|judge| self.cell(model, judge)).collect();
            println!("| {model} | {} |", cells.join(" | "));
        }
        let mut remarks = String::new();
        for line in &self.lines {
            if let Verdict::Lacks(what) = &line.verdict {
                remarks += &format!("{} in {} by {}: {what}\n", line.model, line.file, line.judge);
            }
        }
        println!("\n{remarks}");
    }

    /// `✓` if nothing is measured, `—` if a judge does not support any of the files, and a star after the number if it
    /// does not support some.
    fn cell(&self, model: &str, judge: &str) -> String {
        let of = self
            .lines
            .iter()
            .filter(|line| line.model == model && line.judge == judge);
        let (mut worst, mut lacks, mut fails) = (None::<f64>, false, false);
        for line in of {
            match &line.verdict {
                Verdict::Difference(value) => worst = Some(worst.map_or(*value, |worst| worst.max(*value))),
                Verdict::Lacks(_) => lacks = true,
                Verdict::Fails(_) => fails = true,
            }
        }
        match worst {
            _ if fails => "fails".to_owned(),
            None => "—".to_owned(),
            Some(_) if judge == "checker" => "✓".to_owned(),
            Some(worst) => format!("{worst:.1e}{}", if lacks { "*" } else { "" }),
        }
    }

    /// The failures, one a line.
    pub(super) fn failures(&self) -> Vec<String> {
        self.lines.iter().filter_map(Line::failure).collect()
    }
}

impl Line {
    fn failure(&self) -> Option<String> {
        let what = match &self.verdict {
            Verdict::Difference(value) if *value <= TOLERANCE => return None,
            Verdict::Lacks(_) => return None,
            Verdict::Difference(value) => format!("differs by {value:.1e}"),
            Verdict::Fails(reason) => reason.clone(),
        };
        Some(format!("{} in {} by {}: {what}", self.model, self.file, self.judge))
    }
}

fn line(text: &str) -> Result<Line, String> {
    let fields: Vec<&str> = text.split('\t').collect();
    let (names, verdict) = match fields.as_slice() {
        [names @ .., "-", what] => (names, Verdict::Lacks((*what).to_owned())),
        [names @ .., "x", why] => (names, Verdict::Fails((*why).to_owned())),
        [names @ .., number] => match number.parse() {
            Ok(number) => (names, Verdict::Difference(number)),
            Err(_) => return Err(format!("no judge's line: {text}")),
        },
        [] => return Err("an empty line".to_owned()),
    };
    match names {
        [model, file, judge] => Ok(Line {
            model: (*model).to_owned(),
            file: (*file).to_owned(),
            judge: (*judge).to_owned(),
            verdict,
        }),
        _ => Err(format!("no judge's line: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Verdict, Verdicts, line};

    fn verdicts(text: &str) -> Verdicts {
        let lines = text.lines().map(line).collect::<Result<_, _>>();
        Verdicts { lines: lines.unwrap() }
    }

    #[test]
    fn the_worst_file_counts() {
        let all =
            verdicts("mlp\ta\ttract\t1e-7\nmlp\tb\ttract\t3e-7\nmlp\tc\ttract\t-\tno such op\nmlp\ta\tchecker\t0");
        assert_eq!(all.cell("mlp", "tract"), "3.0e-7*");
        assert_eq!(all.cell("mlp", "checker"), "✓");
        assert_eq!(all.cell("mlp", "RTen"), "—");
        assert!(all.failures().is_empty());
    }

    #[test]
    fn what_is_too_far_or_fails_is_told() {
        let all = verdicts("mlp\ta\ttract\t1e-4\ncnn\ta\ttract\tx\tno\ncnn\ta\tRTen\tNaN");
        assert_eq!(all.cell("cnn", "tract"), "fails");
        assert_eq!(all.failures().len(), 3);
    }

    #[test]
    fn other_lines_are_errors() {
        assert_eq!(line("a\tb\tc\tx\twhy").unwrap().verdict, Verdict::Fails("why".into()));
        for text in ["", "a\tb\t1", "a\tb\tc\tabout 3", "a\tb\tc\td\t1"] {
            assert!(line(text).is_err(), "{text}");
        }
    }
}
