//! Counted instructions per step as a file, and what a new count says about it.

use std::fmt::Write;

/// More than this share above the table is a regression; as much below it is a gain to record.
pub(super) const ALLOWED: f64 = 0.03;

const HEAD: &str = "\
# Instructions per step, written by `cargo xtask instructions --record`: docs/performance.md says how they are counted.
# A line has a case and its count; counts hold for the machine that the next line names.
";
/// Begins the line that says what the counts were made with.
const MADE_WITH: &str = "made with ";

/// Counts, and what they were made with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// Compiler, C library and instruction set, on which counts depend.
    pub(super) made_with: String,
    /// Cases with instructions per step.
    pub(super) counts: Vec<(String, f64)>,
}

/// What a count says about the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Within what is allowed, by this share above the table.
    Same(f64),
    /// Above it.
    Regression(f64),
    /// Below it.
    Gain(f64),
    /// The table has no such case.
    Unknown,
}

impl Table {
    /// Reads what [`text`](Self::text) wrote.
    ///
    /// # Errors
    /// The line that is neither a comment, the compiler nor a case with a count above 0.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
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

    /// As it is kept.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{HEAD}{MADE_WITH}{}\n", self.made_with);
        for (case, count) in &self.counts {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{case:<20} {count:>10.1}");
        }
        text
    }

    /// What a new count of a case says.
    pub(super) fn judge(&self, case: &str, count: f64) -> Verdict {
        let known = self.counts.iter().find(|(known, _)| known == case);
        match known.map(|(_, known)| count / known - 1.0) {
            None => Verdict::Unknown,
            Some(share) if share > ALLOWED => Verdict::Regression(share),
            Some(share) if share < -ALLOWED => Verdict::Gain(share),
            Some(share) => Verdict::Same(share),
        }
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
        let text = table().text();
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
}
