//! `metrics.csv`: one line per measurement, appended as the run goes.

use std::io::Read;
use std::path::Path;

use polygrad_core::{Error, ErrorKind, Result, open_file};
use serde::{Deserialize, Serialize};

use super::events::Crc;
use super::log::Log;
use super::shown;

/// The data that a measurement was taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The training batches since the row before.
    Train,
    /// All of the evaluation data.
    Validation,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Optimizer steps taken so far.
    pub step: u64,
    /// Completed epochs, with the fraction of the running one if known.
    pub epoch: f64,
    /// The data measured on.
    pub split: Split,
    /// The mean loss.
    pub loss: f64,
    /// The metrics, in the trainer's order.
    pub metrics: Vec<f64>,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// Total wall-clock seconds of the run, over all its sessions.
    pub seconds: f64,
}

/// Six decimals, or seven significant digits if six decimals would lose too much. A number that is read back is written
/// the same way again, since a checkpoint identifies the lines by their CRC.
fn figure(x: f64) -> String {
    let scientific = format!("{x:.6e}");
    let rounded: f64 = scientific.parse().unwrap_or(x);
    match x == 0.0 || !x.is_finite() || (1e-3..1e7).contains(&rounded.abs()) {
        true => format!("{x:.6}"),
        false => scientific,
    }
}

/// The names of a file's columns.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// Names of [`Row::metrics`].
    pub(crate) metrics: Vec<String>,
    /// Name of [`Split::Validation`].
    pub(crate) validation: String,
}

impl Columns {
    fn header(&self) -> String {
        let metrics: String = self.metrics.iter().map(|name| format!("{name},")).collect();
        format!("step,epoch,split,loss,{metrics}learning_rate,seconds")
    }

    pub(crate) fn split(&self, split: Split) -> &str {
        match split {
            Split::Train => "train",
            Split::Validation => &self.validation,
        }
    }

    fn line(&self, row: &Row) -> String {
        let figures: String = [row.loss]
            .iter()
            .chain(&row.metrics)
            .map(|&x| figure(x) + ",")
            .collect();
        format!(
            "{},{:.4},{},{figures}{:.6e},{:.2}\n",
            row.step,
            row.epoch,
            self.split(row.split),
            row.learning_rate,
            row.seconds
        )
    }

    fn parse(&self, line: &str) -> Option<Row> {
        let mut fields = line.split(',');
        let mut next = || fields.next();
        let row = Row {
            step: next()?.parse().ok()?,
            epoch: next()?.parse().ok()?,
            split: match next()? {
                "train" => Split::Train,
                name if name == self.validation => Split::Validation,
                _ => return None,
            },
            loss: next()?.parse().ok()?,
            metrics: self
                .metrics
                .iter()
                .map(|_| next()?.parse().ok())
                .collect::<Option<_>>()?,
            learning_rate: next()?.parse().ok()?,
            seconds: next()?.parse().ok()?,
        };
        next().is_none().then_some(row)
    }
}

/// Identifies, in a checkpoint, the rows written before it, to tell them from those of another run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    rows: usize,
    /// CRC of their lines.
    crc: u32,
}

impl Mark {
    fn of(columns: &Columns, rows: &[Row]) -> Self {
        let mut crc = Crc::default();
        rows.iter().for_each(|row| crc.update(columns.line(row).as_bytes()));
        Self {
            rows: rows.len(),
            crc: crc.value(),
        }
    }
}

/// The open file with all its rows.
pub(crate) struct Rows {
    log: Log,
    columns: Columns,
    rows: Vec<Row>,
    crc: Crc,
}

impl Rows {
    /// Starts a file at `path` with the rows `rows`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn create(path: &Path, columns: Columns, rows: Vec<Row>) -> Result<Self> {
        let lines: String = rows.iter().map(|row| columns.line(row)).collect();
        let mut crc = Crc::default();
        crc.update(lines.as_bytes());
        Ok(Self {
            log: Log::create(path, format!("{}\n{lines}", columns.header()).as_bytes())?,
            columns,
            crc,
            rows,
        })
    }

    /// Continues the file at `path` from a checkpoint after `step` steps, which identifies its rows by `mark`. Later
    /// rows are dropped, as is a last line that a crash cut short. If there is no file, a new one is started, and a
    /// notice tells which rows are lost.
    ///
    /// # Errors
    /// A file that cannot be read or written, an invalid line in it, or other rows than the checkpoint's.
    pub(crate) fn resume(path: &Path, columns: Columns, step: u64, mark: &Mark) -> Result<(Self, Option<String>)> {
        let there = path.exists();
        let mut rows = if there { read(path, &columns)? } else { Vec::new() };
        rows.retain(|row| row.step <= step);
        // Further rows of the same step may have been written after the checkpoint, such as those at
        // the end of its epoch.
        rows.truncate(mark.rows);
        let (found, count) = (Mark::of(&columns, &rows), rows.len());
        if found != *mark && there {
            return Err(bad(format!(
                "{} is not that of the checkpoint: it has {count} rows up to step {step}, the checkpoint knows {}{}",
                shown(path),
                mark.rows,
                if count == mark.rows { " others" } else { "" }
            ))
            .with_hint("bring back the file of this run, or move it away: the run goes on with a new one"));
        }
        let notice = (found != *mark).then(|| {
            let rows = mark.rows;
            format!(
                "{} is gone, and with it {rows} rows: a new one begins after step {step}",
                shown(path)
            )
        });
        Ok((Self::create(path, columns, rows)?, notice))
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Errors of the file system, and a file that was removed or replaced meanwhile.
    pub(crate) fn append(&mut self, row: Row) -> Result<()> {
        let line = self.columns.line(&row);
        self.log.append(line.as_bytes())?;
        self.crc.update(line.as_bytes());
        self.rows.push(row);
        Ok(())
    }

    /// Flushes the rows to the disk, and returns what a checkpoint must store about them.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn mark(&self) -> Result<Mark> {
        self.log.sync()?;
        Ok(Mark {
            rows: self.rows.len(),
            crc: self.crc.value(),
        })
    }

    /// Every row, oldest first.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }
}

/// The rows of a process that writes no file: those since its start.
#[derive(Default)]
pub(crate) struct Unwritten {
    rows: Vec<Row>,
    /// Number of rows that the run had before this process started.
    earlier: usize,
}

impl Unwritten {
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Goes back to a checkpoint, or to the start: rows after it will be measured again.
    pub(crate) fn go_back(&mut self, mark: &Mark) {
        if self.rows.is_empty() {
            self.earlier = mark.rows;
        }
        self.rows.truncate(mark.rows.saturating_sub(self.earlier));
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }
}

fn bad(message: String) -> Error {
    Error::new(ErrorKind::Format, message)
}

fn read(path: &Path, columns: &Columns) -> Result<Vec<Row>> {
    let mut bytes = Vec::new();
    open_file(path)?
        .0
        .read_to_end(&mut bytes)
        .map_err(|e| Error::io("read", path, e))?;
    // A damaged byte is reported with its line.
    let text = String::from_utf8_lossy(&bytes);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines().enumerate();
    let unknown = |number: usize, line: &str| {
        bad(format!(
            "{}, line {}: `{line}` is no row of metrics",
            shown(path),
            number + 1
        ))
        .with_hint("mend the line, or move the file away: the run goes on with a new one")
    };
    match lines.next() {
        None => {}
        Some((_, header)) if header == columns.header() => {}
        Some((number, line)) => return Err(unknown(number, line)),
    }
    lines
        .map(|(number, line)| columns.parse(line).ok_or_else(|| unknown(number, line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Columns {
        Columns {
            metrics: vec!["accuracy".to_owned()],
            validation: "test".to_owned(),
        }
    }

    fn row(step: u64) -> Row {
        Row {
            step,
            epoch: step as f64 / 4.0,
            split: match step.is_multiple_of(4) {
                true => Split::Validation,
                false => Split::Train,
            },
            loss: 0.5,
            metrics: vec![0.75],
            learning_rate: 1e-3,
            seconds: 1.5,
        }
    }

    fn resumed(path: &Path, step: u64, rows: &[Row]) -> Result<(Rows, Option<String>)> {
        Rows::resume(path, columns(), step, &Mark::of(&columns(), rows))
    }

    fn all(steps: impl Iterator<Item = u64>) -> Vec<Row> {
        steps.map(row).collect()
    }

    #[test]
    fn rows_come_back_and_a_torn_line_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut rows = Rows::create(&path, columns(), Vec::new()).unwrap();
        for step in 1..=8 {
            rows.append(row(step)).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("step,epoch,split,loss,accuracy,learning_rate,seconds\n"));
        assert!(
            text.contains("\n4,1.0000,test,0.500000,0.750000,1.000000e-3,1.50\n"),
            "{text}"
        );

        let torn = &text[..text.len() - 4];
        std::fs::write(&path, torn).unwrap();
        assert_eq!(resumed(&path, 100, &all(1..=7)).unwrap().0.rows().len(), 7);

        // The row of step 6 came after the checkpoint of that step.
        assert_eq!(resumed(&path, 6, &all(1..=5)).unwrap().0.rows().len(), 5);
        std::fs::write(&path, torn).unwrap();
        let (mut rows, notice) = resumed(&path, 5, &all(1..=5)).unwrap();
        assert_eq!((rows.rows(), notice), (&all(1..=5)[..], None));
        rows.append(row(6)).unwrap();
        assert_eq!(rows.mark().unwrap(), Mark::of(&columns(), &all(1..=6)));
        let again = std::fs::read_to_string(&path).unwrap();
        assert_eq!(again.lines().count(), 7);
        assert!(text.starts_with(&again));
    }

    #[test]
    fn the_rows_of_another_run_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut rows = Rows::create(&path, columns(), Vec::new()).unwrap();
        assert_eq!(rows.mark().unwrap(), Mark::default());
        (1..=6).for_each(|step| rows.append(row(step)).unwrap());
        resumed(&path, 4, &all(1..=4)).unwrap();

        let text = std::fs::read_to_string(&path).unwrap();
        let refused = |text: &str, words: &str| {
            std::fs::write(&path, text).unwrap();
            let error = resumed(&path, 4, &all(1..=4)).err().unwrap().to_string();
            assert!(error.contains(words) && error.contains("move it away"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        };
        refused(
            &text.replace("0.500000", "0.400000"),
            "it has 4 rows up to step 4, the checkpoint knows 4 others",
        );
        refused(
            &format!("{}\n", columns().header()),
            "it has 0 rows up to step 4, the checkpoint knows 4",
        );
        std::fs::remove_file(&path).unwrap();
        let (rows, notice) = resumed(&path, 4, &all(1..=4)).unwrap();
        assert!(rows.rows().is_empty() && notice.unwrap().contains("is gone, and with it 4 rows"));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_was_replaced_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut rows = Rows::create(&path, columns(), Vec::new()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let refused = |rows: &mut Rows| rows.append(row(1)).unwrap_err().to_string();
        assert!(refused(&mut rows).contains("was removed or replaced"));
        std::fs::write(&path, "mine").unwrap();
        assert!(refused(&mut rows).contains("was removed or replaced"));
    }

    #[test]
    fn figures_of_every_size_survive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut rows = Rows::create(&path, columns(), Vec::new()).unwrap();
        for loss in [
            f64::NAN,
            f64::INFINITY,
            1.25e-9,
            -3e20,
            0.000_999_999_96,
            -9_999_999.999_99,
        ] {
            rows.append(Row { loss, ..row(1) }).unwrap();
        }
        let read = read(&path, &columns()).unwrap();
        let losses: Vec<f64> = read.iter().map(|row| row.loss).collect();
        assert!(losses[0].is_nan());
        assert_eq!(losses[1..], [f64::INFINITY, 1.25e-9, -3e20, 0.001, -1e7]);
        assert_eq!(rows.mark().unwrap(), Mark::of(&columns(), &read));
    }

    #[test]
    fn a_foreign_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        std::fs::write(&path, format!("{}\n1,0.1,dev,1,1,1,1\n", columns().header())).unwrap();
        let text = resumed(&path, 1, &[]).err().unwrap().to_string();
        assert!(text.contains("metrics.csv, line 2: `1,0.1,dev,1,1,1,1`"), "{text}");
        std::fs::write(&path, [columns().header().as_bytes(), b"\n1,\xff,dev\n"].concat()).unwrap();
        let text = resumed(&path, 1, &[]).err().unwrap().to_string();
        assert!(
            text.contains("line 2: `1,\u{fffd},dev`") && text.contains("move the file away"),
            "{text}"
        );
        std::fs::write(&path, "a,b\n1,2\n").unwrap();
        let text = resumed(&path, 1, &[]).err().unwrap().to_string();
        assert!(text.contains("metrics.csv, line 1: `a,b`"), "{text}");
    }
}
