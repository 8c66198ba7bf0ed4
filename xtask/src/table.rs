//! Tables of counts in files, and their comparison with new counts.

use std::fmt::Write;
use std::fs;

use crate::cargo;

/// A count that exceeds the table by more than this share is a regression; one that is below it by as much is a gain to
/// record.
const ALLOWED: f64 = 0.03;

/// The prefix of the line that says what the counts were made with.
const MADE_WITH: &str = "made with ";

/// Counts, and what they were made with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// Compiler, C library and instruction set, on which counts depend.
    pub(crate) made_with: String,
    /// Cases with instructions per step.
    pub(crate) counts: Vec<(String, f64)>,
}

/// The verdict on a count.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Within the allowed range, above the table by this share.
    Same(f64),
    /// Above the allowed range.
    Regression(f64),
    /// Below the allowed range.
    Gain(f64),
    /// The table has no such case.
    Unknown,
}

impl Table {
    /// Parses the output of [`text`](Self::text).
    ///
    /// # Errors
    /// The line that is neither a comment, the compiler nor a case with a count above 0.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut made_with, mut counts) = (None, Vec::new());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(rest) = line.strip_prefix(MADE_WITH) {
                made_with = Some(rest.to_owned());
                continue;
            }
            let count = line.split_once(' ').and_then(|(case, count)| {
                let count: f64 = count.trim().parse().ok()?;
                (count.is_finite() && count > 0.0).then(|| (case.to_owned(), count))
            });
            counts.push(count.ok_or_else(|| format!("{line:?} is no case with its count"))?);
        }
        Ok(Self {
            made_with: made_with.ok_or_else(|| format!("no line begins with {MADE_WITH:?}"))?,
            counts,
        })
    }

    /// The table in its file format.
    fn text(&self, head: &str) -> String {
        let mut text = format!("{head}{MADE_WITH}{}\n", self.made_with);
        for (case, count) in &self.counts {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{case:<20} {count:>10.1}");
        }
        text
    }

    /// The verdict on a new count of a case.
    fn judge(&self, case: &str, count: f64) -> Verdict {
        let known = self.counts.iter().find(|(known, _)| known == case);
        match known.map(|(_, known)| count / known - 1.0) {
            None => Verdict::Unknown,
            Some(share) if share > ALLOWED => Verdict::Regression(share),
            Some(share) if share < -ALLOWED => Verdict::Gain(share),
            Some(share) => Verdict::Same(share),
        }
    }
}

/// The file of a table, and its description.
pub(crate) struct Kept {
    /// The path from the top of the checkout.
    pub(crate) path: &'static str,
    /// The comments at its beginning.
    pub(crate) head: &'static str,
    /// What is counted, in the plural.
    pub(crate) what: &'static str,
    /// The command that writes it.
    pub(crate) record: &'static str,
}

impl Kept {
    /// Writes the counts, or compares them with the recorded ones.
    ///
    /// # Errors
    /// If a count is more than 3 % above the table, or a case is not in it; also if the table is of another compiler or
    /// machine and the variable `CI` is `true`.
    pub(crate) fn settle(&self, counted: &Table, record: bool) -> Result<(), String> {
        let path = cargo::checkout().join(self.path);
        if record {
            fs::write(&path, counted.text(self.head)).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
            println!("written: {}", path.display());
            return Ok(());
        }
        let text = fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let known = Table::parse(&text).map_err(|reason| format!("{}: {reason}", path.display()))?;
        if known.made_with == counted.made_with {
            return self.compare(&known, counted);
        }
        println!(
            "skipped the comparison: the table was made with {}, and this is {}\n  fix: {}, from a commit that is known to be good",
            known.made_with, counted.made_with, self.record
        );
        match std::env::var_os("CI").is_some_and(|value| value == "true") {
            true => Err("under CI nothing may be skipped".to_owned()),
            false => Ok(()),
        }
    }

    /// Prints the changes.
    fn compare(&self, known: &Table, counted: &Table) -> Result<(), String> {
        let (what, record) = (self.what, self.record);
        let (mut worst, mut wrong, mut gains) = (0f64, Vec::new(), Vec::new());
        for (case, count) in &counted.counts {
            let line = |share: f64| format!("{case}: {:+.1} %", 100.0 * share);
            match known.judge(case, *count) {
                Verdict::Same(share) => worst = worst.max(share.abs()),
                Verdict::Regression(share) => wrong.push(line(share)),
                Verdict::Gain(share) => gains.push(line(share)),
                Verdict::Unknown => wrong.push(format!("{case}: not in the table")),
            }
        }
        if !gains.is_empty() {
            println!(
                "fewer {what} than before: {}\n  record it, so that it is kept: {record}",
                gains.join(", ")
            );
        }
        if !wrong.is_empty() {
            return Err(format!(
                "more than {:.0} % above {}: {}\n  fix: make it as it was, or say in the commit why there have to be more {what}, with {record}",
                100.0 * ALLOWED,
                self.path,
                wrong.join(", ")
            ));
        }
        println!("within {:.1} % of {}", 100.0 * worst, self.path);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            made_with: "rustc 1.95.0, glibc 2.36, x86_64 with AVX2".into(),
            counts: vec![("dispatch/add".into(), 412.5), ("mlp-rl/adam".into(), 98_304.0)],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = table().text("# a head\n");
        assert!(text.contains("\nmlp-rl/adam             98304.0\n"), "{text}");
        assert_eq!(Table::parse(&text), Ok(table()));
    }

    #[test]
    fn what_is_no_table_is_named() {
        for (text, words) in [
            ("dispatch/add 12\n", "made with"),
            ("made with rustc\ndispatch/add\n", "\"dispatch/add\""),
            ("made with rustc\ndispatch/add 0\n", "\"dispatch/add 0\""),
            ("made with rustc\ndispatch/add NaN\n", "NaN"),
        ] {
            let error = Table::parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn three_per_cent_either_way_are_the_same() {
        let judge = |share: f64| table().judge("mlp-rl/adam", 98_304.0 * (1.0 + share));
        assert!(matches!(judge(0.0), Verdict::Same(_)));
        assert!(matches!(judge(0.029), Verdict::Same(_)) && matches!(judge(-0.029), Verdict::Same(_)));
        assert!(matches!(judge(0.031), Verdict::Regression(share) if (share - 0.031).abs() < 1e-9));
        assert!(matches!(judge(-0.031), Verdict::Gain(_)));
        assert_eq!(table().judge("mlp-rl/sgd", 1.0), Verdict::Unknown);
    }

    #[test]
    fn a_regression_is_an_error_and_a_gain_is_none() {
        let kept = Kept {
            path: "a table",
            head: "",
            what: "instructions",
            record: "cargo xtask instructions --record",
        };
        let table = |counts: &[(&str, f64)]| Table {
            made_with: "a compiler".into(),
            counts: counts
                .iter()
                .map(|(case, count)| ((*case).to_owned(), *count))
                .collect(),
        };
        let known = table(&[("a", 100.0), ("b", 200.0)]);
        assert_eq!(kept.compare(&known, &table(&[("a", 102.0), ("b", 150.0)])), Ok(()));
        let error = kept.compare(&known, &table(&[("a", 104.0), ("b", 200.0)])).unwrap_err();
        assert!(error.contains("a: +4.0 %") && error.contains("--record"), "{error}");
        let error = kept.compare(&known, &table(&[("c", 1.0)])).unwrap_err();
        assert!(error.contains("c: not in the table"), "{error}");
    }
}
