//! Tables from files, their training and test parts, and their encoding for a model.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use hmac_sha256::Hash;
use polygrad::backend::HostTensor;
use polygrad::data::{Column, CsvConfig, DataLoader, DataLoaderConfig, Dataset, Table, TableEncoder, random_split};
use polygrad::{Device, Error, Shape};

use super::settings::{Goal, Reading, Settings, whole};
use crate::failure::{Failure, Result, Shown};
use crate::task::Batch;

/// Rows in a batch of an evaluation.
pub(super) const EVALUATED: usize = 1024;

/// The most rows that are named.
const NAMED: usize = 5;

/// A table and its file.
pub(crate) struct Data {
    pub(super) table: Table,
    pub(super) place: String,
}

impl Data {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read or is no table.
    pub(super) fn load(path: &Path, reading: &Reading) -> Result<Self> {
        let csv = CsvConfig::new()
            .missing(reading.missing.iter().map(String::as_str))
            .decimal_comma(reading.decimal_comma);
        let table = csv.read(path).map_err(|error| match error.hint() {
            Some(_) => error.into(),
            None => Failure::from(error).fix("give a CSV file: a line with the columns' names, then one for each row"),
        })?;
        // A later file may lack the target; `Settings::fit` reports columns missing in a new run.
        let there = |name: &&str| table.column(name).is_ok();
        let words: Vec<&str> = reading.categorical.iter().map(String::as_str).filter(there).collect();
        let table = table.with_text(&words)?;
        let place = path.shown();
        Ok(Self { table, place })
    }

    /// Fails if a column has numbers except in some cells, and no option says what these are.
    ///
    /// # Errors
    /// The cells, and the options for them.
    pub(super) fn must_be_told(&self, name: &str) -> Result<()> {
        let column = self.table.column(name).map_err(|e| unfit(&self.place, &e))?;
        let (Column::Mixed { cells, odd }, Err(error)) = (column, self.table.numbers(name)) else {
            return Ok(());
        };
        let marks: BTreeSet<&str> = odd.iter().map(|&row| cells[row].trim()).collect();
        let is_decimal = |mark: &&str| mark.replacen(',', ".", 1).parse::<f64>().is_ok();
        // Marks are separated by commas.
        let plain: Vec<&str> = marks
            .iter()
            .copied()
            .filter(|mark| !mark.contains(','))
            .take(NAMED)
            .collect();
        let ways = match (marks.iter().all(is_decimal), plain.is_empty()) {
            (true, _) => "if these are decimal commas, give --decimal-comma; ".to_owned(),
            (_, true) => String::new(),
            _ => format!(
                "if these stand for no value, give --missing {}; ",
                for_shell(&plain.join(","))
            ),
        };
        let what = format!("{}: {}", self.place, error.message());
        Err(Failure::new(what).fix(format!(
            "{ways}if it holds words, --categorical {name:?}; else correct the cells, or leave it out: --ignore {name:?}"
        )))
    }
}

/// A word quoted for a shell.
fn for_shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ',' | '/' | '-' | '.');
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("{word:?}"),
    }
}

/// An error of the library about a table.
pub(crate) fn unfit(place: &str, error: &Error) -> Failure {
    let fix = error
        .hint()
        .filter(|hint| !hint.contains("::"))
        .unwrap_or("give a table with the columns that the model was trained on");
    Failure::new(format!("{place}: {}", error.message())).fix(fix)
}

/// Row numbers, counted from 1 without the header.
pub(super) fn rows_named(rows: &[usize]) -> String {
    let named: Vec<String> = rows.iter().take(NAMED).map(|row| (row + 1).to_string()).collect();
    let named = named.join(", ");
    let word = if rows.len() == 1 { "row" } else { "rows" };
    match rows.len().saturating_sub(NAMED) {
        0 => format!("{word} {named}"),
        more => format!("{word} {named} and {more} more"),
    }
}

/// SHA-256 of names and cells, each after a byte for its kind and its length as a little-endian u64.
///
/// # Errors
/// Never: each name is that of a column.
pub(super) fn checksum(table: &Table) -> Result<String> {
    let mut hash = Hash::new();
    let mut add = |tag: u8, text: &str| {
        hash.update([tag]);
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    for name in table.names() {
        add(0, name);
        table.texts(name)?.iter().for_each(|cell| add(1, cell));
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Settings {
    /// The encoder of a run whose table has been read.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn encoder(&self) -> Result<&TableEncoder> {
        let missing = || Failure::new("the settings of this run have no encoder").fix("train anew");
        self.encoder.as_ref().ok_or_else(missing)
    }

    /// How many of `rows` rows are held out for validation.
    pub(super) fn held_out(&self, rows: usize) -> usize {
        let share = (rows as f64 * self.validation_split).round() as usize;
        share.clamp(1, rows.max(2) - 1)
    }

    /// The rows for training and for validation.
    ///
    /// # Errors
    /// Errors of the library.
    pub(super) fn parts(&self, data: &Data) -> Result<(Table, Table)> {
        let count = data.table.rows();
        let held_out = self.held_out(count);
        let rows: Vec<usize> = (0..count).collect();
        let [train, rest] = random_split(rows, [count.saturating_sub(held_out), held_out], self.training.seed)?;
        Ok((data.table.select(train.indices())?, data.table.select(rest.indices())?))
    }

    /// The rows of a table with their targets; in a random order by the seed if they are for training.
    ///
    /// # Errors
    /// A table that lacks a column, or has one of another type.
    pub(super) fn loader(
        &self,
        table: &Table,
        place: &str,
        training: bool,
        device: &Device,
    ) -> Result<DataLoader<Batch>> {
        let about = |error: Error| unfit(place, &error);
        let features = self.encoder()?.encode(table).map_err(about)?;
        let targets: Vec<Option<f64>> = match &self.goal {
            Goal::Classify { classes } => {
                let labels = classes.iter().map(String::as_str).zip(0_u32..);
                let labels: HashMap<&str, f64> = labels.map(|(class, label)| (class, label.into())).collect();
                // The classes of a text column are not all numbers.
                let of_numbers = classes.iter().all(|class| class.parse::<i64>().is_ok());
                let label = |cell: &str| match of_numbers {
                    true => labels.get(whole(cell.trim().parse().ok()?)?.as_str()).copied(),
                    false => labels.get(cell).copied(),
                };
                let cells = table.texts(&self.target).map_err(about)?;
                cells.iter().map(|cell| label(cell)).collect()
            }
            Goal::Regress { mean, std } => {
                let scaled = table
                    .numbers(&self.target)
                    .map_err(about)?
                    .iter()
                    .map(|x| (x - mean) / std);
                scaled.map(|x| Some(x).filter(|x| x.is_finite())).collect()
            }
            Goal::Either => Vec::new(),
        };
        let bad: Vec<usize> = (0..targets.len()).filter(|&row| targets[row].is_none()).collect();
        if !bad.is_empty() {
            let what = match self.goal {
                Goal::Classify { .. } => "none of the classes that the model knows",
                _ => "no number",
            };
            let rows = rows_named(&bad);
            return Err(
                Failure::new(format!("the target {:?} is {what} in {rows}", self.target))
                    .fix("correct these cells, or take these rows out"),
            );
        }
        let targets = targets.into_iter().flatten();
        // With a tensor it is known whether other processes have the same one.
        let targets = match self.goal {
            Goal::Classify { .. } => {
                let labels: Vec<i64> = targets.map(|label| label as i64).collect();
                HostTensor::new(Shape::from([labels.len()]), labels)?
            }
            _ => {
                let numbers: Vec<f32> = targets.map(|x| x as f32).collect();
                HostTensor::new(Shape::from([numbers.len(), 1]), numbers)?
            }
        };
        let loader = DataLoaderConfig::new(features.zip(targets)?);
        let loader = match training {
            true => loader.batch_size(self.training.batch_size).shuffle(self.training.seed),
            false => loader.batch_size(EVALUATED),
        };
        Ok(loader.build(device)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_of_names_and_cells() {
        let checksum = |text: &str| checksum(&Table::from_csv(text).unwrap()).unwrap();
        let known = checksum("a,b\n1,x\n");
        // From Python's hashlib.
        assert_eq!(
            known,
            "9b040402a83e9d4f6d5051075446b4b11ac1787ca479a56b9bbd3ff60e868238"
        );
        assert_eq!(known, checksum("\"a\";b\r\n1;\"x\"\r\n"));
        for other in [
            "a,b\n1,y\n",
            "a,b\n01,x\n",
            "a,c\n1,x\n",
            "b,a\nx,1\n",
            "a,b\n1,x\n1,x\n",
        ] {
            assert_ne!(known, checksum(other), "{other}");
        }
    }
}
