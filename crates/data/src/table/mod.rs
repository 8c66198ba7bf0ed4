//! Tables, and encoding their columns as numbers for a model.

mod csv;
mod encoder;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use polygrad_core::{Error, Result, nearest};

pub use csv::CsvConfig;
pub use encoder::TableEncoder;

/// A table with named columns, in memory.
///
/// ```
/// use polygrad_data::{Table, TableEncoder};
/// # use polygrad_core::Result;
/// # fn main() -> Result<()> {
/// let table = Table::from_csv("area,town,price\n80,Bern,410\n65,Thun,290\n100,Bern,505\n")?;
/// assert_eq!(table.numbers("price")?, [410.0, 290.0, 505.0]);
/// // Numbers are standardized, and each word of a column of text becomes a column of zeros and ones.
/// let encoder = TableEncoder::fit(&table, &["area", "town"])?;
/// let features = encoder.encode(&table)?;
/// assert_eq!(features.shape().dims(), [3, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    names: Arc<Names>,
    columns: Vec<Column>,
    /// For columns of numbers, their text in the CSV file, if it differs from `Display`.
    written: Vec<Option<Vec<String>>>,
    rows: usize,
    /// For each row, its line in the CSV file, counted from 1; empty for other files.
    lines: Vec<usize>,
    decimal_comma: bool,
}

/// The columns' names with their positions.
#[derive(Debug, PartialEq)]
struct Names {
    list: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    fn new(list: Vec<String>) -> Self {
        let places = list.iter().cloned().zip(0..).collect();
        Self { list, places }
    }
}

/// The cells of a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Column {
    /// Every cell is a number or empty, which is NaN here.
    Numbers(Vec<f64>),
    /// Any other column.
    Text(Vec<String>),
    /// In a CSV file, a column in which most cells are numbers or nearly so, such as `1,5`, or are numbers except for
    /// marks such as `NA`. It cannot be used until [`CsvConfig`] says which cells are missing values, or
    /// [`Table::with_text`] that it is text.
    Mixed {
        /// All cells, as written.
        cells: Vec<String>,
        /// The rows whose cells are not numbers.
        odd: Vec<usize>,
    },
}

impl Table {
    /// Builds a table from columns of CSV cells; `lines` are the lines of the rows.
    ///
    /// # Errors
    /// A text: no rows, or two columns of the same name.
    fn of_cells(
        names: Vec<String>,
        columns: Vec<Vec<String>>,
        lines: Vec<usize>,
        decimal_comma: bool,
    ) -> std::result::Result<Self, String> {
        let names = Names::new(names);
        if names.places.len() < names.list.len() {
            let twice = (0..).zip(&names.list).find(|&(at, name)| names.places[name] != at);
            return Err(match twice {
                Some((_, name)) if !name.is_empty() => format!("has two columns {name:?} in its first line"),
                _ => "has two columns without a name in its first line".to_owned(),
            });
        }
        if lines.is_empty() {
            return Err("has no rows".to_owned());
        }
        let (columns, written) = columns
            .into_iter()
            .map(|cells| Column::of(cells, decimal_comma))
            .unzip();
        Ok(Self {
            names: Arc::new(names),
            columns,
            written,
            rows: lines.len(),
            lines,
            decimal_comma,
        })
    }

    /// Builds a table from columns of equal length; `None` if there are no rows.
    #[cfg(feature = "parquet")]
    pub(crate) fn new(names: Vec<String>, columns: Vec<Column>) -> Option<Self> {
        let rows = match columns.first()? {
            Column::Numbers(numbers) => numbers.len(),
            Column::Text(cells) | Column::Mixed { cells, .. } => cells.len(),
        };
        let written = vec![None; columns.len()];
        (rows > 0).then(|| Self {
            names: Arc::new(Names::new(names)),
            columns,
            written,
            rows,
            lines: Vec::new(),
            decimal_comma: false,
        })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns' names, in order.
    pub fn names(&self) -> &[String] {
        &self.names.list
    }

    /// A column by its name.
    ///
    /// # Errors
    /// When there is none; the error suggests similar names.
    pub fn column(&self, name: &str) -> Result<&Column> {
        Ok(&self.columns[self.place(name)?])
    }

    fn place(&self, name: &str) -> Result<usize> {
        self.names.places.get(name).copied().ok_or_else(|| {
            let names = &self.names.list;
            let hint = match nearest(name, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("the columns are {names:?}"),
            };
            Error::invalid(format!("there is no column {name:?}")).with_hint(hint)
        })
    }

    /// A column of numbers by its name.
    ///
    /// # Errors
    /// When there is none, or one of its cells is not a number; the error names such cells and their places.
    pub fn numbers(&self, name: &str) -> Result<&[f64]> {
        match self.column(name)? {
            Column::Numbers(numbers) => Ok(numbers),
            Column::Text(cells) => {
                let is_number = |cell: &String| csv::number(cell, self.decimal_comma).is_some();
                let row = cells.iter().position(|cell| !is_number(cell)).unwrap_or(0);
                Err(Error::dtype(format!(
                    "the column {name:?} is no column of numbers: it has {:?} in {}",
                    cells[row],
                    self.rows_named(&[row])
                )))
            }
            Column::Mixed { cells, odd } => Err(self.mixed(name, cells, odd)),
        }
    }

    /// The error for a column of numbers with other cells.
    fn mixed(&self, name: &str, cells: &[String], odd: &[usize]) -> Error {
        /// The most cells that are named, each once.
        const NAMED: usize = 5;
        let mut places: Vec<(&str, Vec<usize>)> = Vec::new();
        for &row in odd {
            let cell = cells[row].trim();
            match places.iter().position(|(known, _)| *known == cell) {
                Some(at) => places[at].1.push(row),
                None if places.len() < NAMED => places.push((cell, vec![row])),
                None => {}
            }
        }
        let named: usize = places.iter().map(|(_, rows)| rows.len()).sum();
        let mut listed: Vec<String> = places
            .iter()
            .map(|(cell, rows)| format!("{cell:?} in {}", self.rows_named(rows)))
            .collect();
        if named < odd.len() {
            listed.push(format!("{} others", odd.len() - named));
        }
        let filled = cells.iter().filter(|cell| !cell.trim().is_empty()).count();
        let count = match odd.len() {
            1 => format!("one of its {filled} cells is none"),
            many => format!("{many} of its {filled} cells are none"),
        };
        Error::dtype(format!(
            "the column {name:?} looks like numbers, but {count}: {}",
            listed.join(", ")
        ))
        .with_hint(
            "name what stands for no value with CsvConfig::missing, say that it is text with Table::with_text, \
             or correct the cells",
        )
    }

    /// Names rows by the lines of their file, as in `lines 2, 3 and 5`; counted from 1 if there are no lines.
    fn rows_named(&self, rows: &[usize]) -> String {
        const NAMED: usize = 5;
        let (word, number): (_, &dyn Fn(usize) -> usize) = match self.lines.is_empty() {
            true => ("row", &|row| row + 1),
            false => ("line", &|row| self.lines[row]),
        };
        let mut parts: Vec<String> = rows.iter().take(NAMED).map(|&row| number(row).to_string()).collect();
        if rows.len() > NAMED {
            parts.push(format!("{} more", rows.len() - NAMED));
        }
        match parts.pop() {
            Some(last) if parts.is_empty() => format!("{word} {last}"),
            last => format!("{word}s {} and {}", parts.join(", "), last.unwrap_or_default()),
        }
    }

    /// Marks columns as text, whatever their cells look like: house numbers, codes, postal codes.
    ///
    /// # Errors
    /// When a column does not exist.
    pub fn with_text(mut self, columns: &[&str]) -> Result<Self> {
        for name in columns {
            let at = self.place(name)?;
            let cells = self.texts(name)?.into_iter().map(Cow::into_owned).collect();
            (self.columns[at], self.written[at]) = (Column::Text(cells), None);
        }
        Ok(self)
    }

    /// The cells of a column as text, as written in a CSV file, such as `007`; numbers of a Parquet file as by
    /// `Display`.
    ///
    /// # Errors
    /// When there is no such column.
    pub fn texts(&self, name: &str) -> Result<Vec<Cow<'_, str>>> {
        let at = self.place(name)?;
        Ok(match (&self.columns[at], &self.written[at]) {
            (Column::Text(cells) | Column::Mixed { cells, .. }, _) | (_, Some(cells)) => {
                cells.iter().map(Cow::from).collect()
            }
            (Column::Numbers(numbers), None) => numbers.iter().map(|x| Cow::from(x.to_string())).collect(),
        })
    }

    /// The rows at some indices.
    ///
    /// # Errors
    /// An index that is not below [`Table::rows`].
    pub fn select(&self, rows: &[usize]) -> Result<Self> {
        if let Some(row) = rows.iter().find(|&&row| row >= self.rows) {
            return Err(Error::out_of_range(format!("row {row}, but there are {}", self.rows)));
        }
        let texts = |cells: &Vec<String>| -> Vec<String> { rows.iter().map(|&row| cells[row].clone()).collect() };
        let parts = self
            .columns
            .iter()
            .zip(&self.written)
            .map(|(column, written)| match column {
                Column::Numbers(numbers) => (
                    Column::Numbers(rows.iter().map(|&row| numbers[row]).collect()),
                    written.as_ref().map(texts),
                ),
                Column::Text(cells) => (Column::Text(texts(cells)), None),
                // The cells that are not numbers may be in other rows.
                Column::Mixed { cells, .. } => Column::of(texts(cells), self.decimal_comma),
            });
        let (columns, written) = parts.unzip();
        Ok(Self {
            names: Arc::clone(&self.names),
            columns,
            written,
            rows: rows.len(),
            lines: rows.iter().filter_map(|&row| self.lines.get(row).copied()).collect(),
            decimal_comma: self.decimal_comma,
        })
    }
}
