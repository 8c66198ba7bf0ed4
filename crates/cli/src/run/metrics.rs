//! `metrics.csv`: one line per measurement, appended as the run goes.

use std::io::Read;
use std::path::Path;

use hmac_sha256::Hash;
use polygrad::nn::open_file;
use serde::{Deserialize, Serialize};

use super::log::Log;
use crate::failure::{Failure, Result, Shown};
use crate::progress::note;

const HEADER: &str = "step,epoch,split,loss,accuracy,learning_rate,seconds";

/// Which images a measurement was taken on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// Means over the training steps since the row before.
    Train,
    /// The whole test set, after an epoch.
    Test,
}

impl Split {
    /// The word for it in files and tags.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}

/// One line of `metrics.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    /// Optimizer steps taken so far.
    pub(crate) step: u64,
    /// Epochs done so far, with the part of the running one.
    pub(crate) epoch: f64,
    /// What was measured on.
    pub(crate) split: Split,
    /// Mean cross-entropy in nats.
    pub(crate) loss: f64,
    /// Share of right answers, 0 to 1.
    pub(crate) accuracy: f64,
    /// The learning rate of the last step.
    pub(crate) learning_rate: f64,
    /// Wall-clock seconds that the run has taken, over all its sessions.
    pub(crate) seconds: f64,
}

impl Row {
    fn to_line(self) -> String {
        format!(
            "{},{:.4},{},{:.6},{:.6},{:.6e},{:.2}\n",
            self.step,
            self.epoch,
            self.split.name(),
            self.loss,
            self.accuracy,
            self.learning_rate,
            self.seconds
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(',');
        let mut next = || fields.next();
        let row = Self {
            step: next()?.parse().ok()?,
            epoch: next()?.parse().ok()?,
            split: match next()? {
                "train" => Split::Train,
                "test" => Split::Test,
                _ => return None,
            },
            loss: next()?.parse().ok()?,
            accuracy: next()?.parse().ok()?,
            learning_rate: next()?.parse().ok()?,
            seconds: next()?.parse().ok()?,
        };
        next().is_none().then_some(row)
    }
}

/// What a checkpoint knows of the rows that were there with it, so that those of another run are told from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    rows: usize,
    sha256: String,
}

impl Mark {
    /// That of no rows.
    pub(crate) fn none() -> Self {
        Self::of(&[])
    }

    fn of(rows: &[Row]) -> Self {
        let mut hash = Hash::new();
        rows.iter().for_each(|row| hash.update(row.to_line()));
        Self {
            rows: rows.len(),
            sha256: hex(hash),
        }
    }
}

/// The open file, and all its rows.
pub(crate) struct Metrics {
    log: Log,
    rows: Vec<Row>,
    /// Of the rows' lines.
    hash: Hash,
}

impl Metrics {
    /// Starts a file at `path` that has the rows of `rows`.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn create(path: &Path, rows: Vec<Row>) -> Result<Self> {
        let lines: String = rows.iter().map(|row| row.to_line()).collect();
        let mut hash = Hash::new();
        hash.update(&lines);
        Ok(Self {
            log: Log::create(path, format!("{HEADER}\n{lines}").as_bytes())?,
            hash,
            rows,
        })
    }

    /// Goes on with the file at `path` as it was at a checkpoint after `step` steps, which knows its rows by `mark`: rows after that are
    /// dropped, as is a last line that a crash cut short. Without a file a new one is started, and standard error tells of the rows that
    /// are lost.
    ///
    /// # Errors
    /// A file that cannot be read or written, a line in it that is none of ours, or other rows than the checkpoint's.
    pub(crate) fn resume(path: &Path, step: u64, mark: Option<&Mark>) -> Result<Self> {
        let there = path.exists();
        let mut rows = if there { read(path)? } else { Vec::new() };
        rows.retain(|row| row.step <= step);
        let found = Mark::of(&rows);
        match mark.filter(|mark| **mark != found) {
            None => {}
            Some(mark) if !there => note(&format!(
                "{} is gone, and with it {} rows: a new one begins after step {step}",
                path.shown(),
                mark.rows
            )),
            Some(mark) => {
                return Err(Failure::new(format!(
                    "{} is not that of the checkpoint: it has {} rows up to step {step}, the checkpoint knows {}{}",
                    path.shown(),
                    rows.len(),
                    mark.rows,
                    if rows.len() == mark.rows { " others" } else { "" }
                ))
                .fix("bring back the file of this run, or move it away: the run goes on with a new one"));
            }
        }
        Self::create(path, rows)
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Whatever the file system says, and a file that was removed or replaced meanwhile.
    pub(crate) fn append(&mut self, row: Row) -> Result<()> {
        let line = row.to_line();
        self.log.append(line.as_bytes())?;
        self.hash.update(line);
        self.rows.push(row);
        Ok(())
    }

    /// Brings the rows to the disk, and tells what a checkpoint must know of them.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn mark(&self) -> Result<Mark> {
        self.log.sync()?;
        Ok(Mark {
            rows: self.rows.len(),
            sha256: hex(self.hash),
        })
    }

    /// Every row, oldest first.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }
}

/// A SHA-256 in lower-case hexadecimal.
pub(crate) fn hex(hash: Hash) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Result<Vec<Row>> {
    let mut text = String::new();
    open_file(path)?
        .0
        .read_to_string(&mut text)
        .map_err(|e| Failure::io("read", path, &e))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines().enumerate();
    let bad = |number: usize, line: &str| {
        Failure::new(format!(
            "{}, line {}: `{line}` is no row of metrics",
            path.shown(),
            number + 1
        ))
        .fix("mend the line, or move the file away: the run goes on with a new one")
    };
    match lines.next() {
        None | Some((_, HEADER)) => {}
        Some((number, line)) => return Err(bad(number, line)),
    }
    lines
        .map(|(number, line)| Row::parse(line).ok_or_else(|| bad(number, line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: u64) -> Row {
        Row {
            step,
            epoch: step as f64 / 4.0,
            split: if step.is_multiple_of(4) {
                Split::Test
            } else {
                Split::Train
            },
            loss: 0.5,
            accuracy: 0.75,
            learning_rate: 1e-3,
            seconds: 1.5,
        }
    }

    #[test]
    fn rows_come_back_and_a_torn_line_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut metrics = Metrics::create(&path, Vec::new()).unwrap();
        for step in 1..=8 {
            metrics.append(row(step)).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("step,epoch,split,"));
        assert!(
            text.contains("\n4,1.0000,test,0.500000,0.750000,1.000000e-3,1.50\n"),
            "{text}"
        );

        let torn = &text[..text.len() - 4];
        std::fs::write(&path, torn).unwrap();
        assert_eq!(Metrics::resume(&path, 100, None).unwrap().rows().len(), 7);

        let mut metrics = Metrics::resume(&path, 5, None).unwrap();
        assert_eq!(metrics.rows(), (1..=5).map(row).collect::<Vec<_>>());
        metrics.append(row(6)).unwrap();
        let again = std::fs::read_to_string(&path).unwrap();
        assert_eq!(again.lines().count(), 7);
        assert!(text.starts_with(&again));
    }

    #[test]
    fn the_rows_of_another_run_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut metrics = Metrics::create(&path, Vec::new()).unwrap();
        assert_eq!(metrics.mark().unwrap(), Mark::none());
        (1..=4).for_each(|step| metrics.append(row(step)).unwrap());
        let mark = metrics.mark().unwrap();
        assert_eq!(mark, Mark::of(metrics.rows()));
        (5..=6).for_each(|step| metrics.append(row(step)).unwrap());
        let metrics = Metrics::resume(&path, 4, Some(&mark)).unwrap();
        assert_eq!(metrics.mark().unwrap(), mark);

        let text = std::fs::read_to_string(&path).unwrap();
        let refused = |text: String, words: &str| {
            std::fs::write(&path, text).unwrap();
            let error = Metrics::resume(&path, 4, Some(&mark)).err().unwrap().to_string();
            assert!(error.contains(words) && error.contains("move it away"), "{error}");
        };
        refused(
            text.replace("0.500000", "0.400000"),
            "it has 4 rows up to step 4, the checkpoint knows 4 others",
        );
        refused(
            format!("{HEADER}\n"),
            "it has 0 rows up to step 4, the checkpoint knows 4",
        );
        std::fs::remove_file(&path).unwrap();
        assert!(Metrics::resume(&path, 4, Some(&mark)).unwrap().rows().is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_was_replaced_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut metrics = Metrics::create(&path, Vec::new()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let refused = |metrics: &mut Metrics| metrics.append(row(1)).unwrap_err().to_string();
        assert!(refused(&mut metrics).contains("was removed or replaced"));
        std::fs::write(&path, "mine").unwrap();
        assert!(refused(&mut metrics).contains("was removed or replaced"));
    }

    #[test]
    fn losses_that_are_no_numbers_survive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut metrics = Metrics::create(&path, Vec::new()).unwrap();
        metrics
            .append(Row {
                loss: f64::NAN,
                ..row(1)
            })
            .unwrap();
        metrics
            .append(Row {
                loss: f64::INFINITY,
                ..row(2)
            })
            .unwrap();
        let rows = read(&path).unwrap();
        assert!(rows[0].loss.is_nan() && rows[1].loss.is_infinite());
    }

    #[test]
    fn a_foreign_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        std::fs::write(&path, format!("{HEADER}\n1,0.1,dev,1,1,1,1\n")).unwrap();
        let text = Metrics::resume(&path, 1, None).err().unwrap().to_string();
        assert!(text.contains("metrics.csv, line 2: `1,0.1,dev,1,1,1,1`"), "{text}");
        std::fs::write(&path, "a,b\n1,2\n").unwrap();
        let text = Metrics::resume(&path, 1, None).err().unwrap().to_string();
        assert!(text.contains("metrics.csv, line 1: `a,b`"), "{text}");
    }
}
