//! Tables from CSV files, and their columns as numbers that a model takes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use polygrad_core::{Error, ErrorKind, HostTensor, Result, Shape, nearest, open_file};
use serde::{Deserialize, Serialize};

use crate::image::bad;

/// A table with a name for each column, in memory.
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
    names: Vec<String>,
    columns: Vec<Column>,
    /// Of each column of numbers, how a CSV file writes them, where that is not as `Display` does.
    written: Vec<Option<Vec<String>>>,
    rows: usize,
}

/// The cells of a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Column {
    /// Every cell is a number or empty, which is NaN here.
    Numbers(Vec<f64>),
    /// Any other.
    Text(Vec<String>),
}

impl Table {
    /// Reads a CSV file (RFC 4180): a line with the columns' names, then one for each row; cells are parted by commas, semicolons or tabs,
    /// whichever the first line has most of, and a cell in double quotes may hold these, line breaks, and quotes as `""`.
    ///
    /// # Errors
    /// A file that cannot be read, is not UTF-8, has no rows, has a row with more or fewer cells than the first line, two columns of one
    /// name, or a quote that is not closed; the error names the line.
    pub fn read_csv(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut text = String::new();
        open_file(path)?
            .0
            .read_to_string(&mut text)
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::InvalidData => bad(path, "is not UTF-8"),
                _ => Error::io("read", path, e),
            })?;
        Self::parse(&text).map_err(|what| bad(path, &what))
    }

    /// As [`Table::read_csv`], from the text itself.
    ///
    /// # Errors
    /// As there.
    pub fn from_csv(text: &str) -> Result<Self> {
        Self::parse(text).map_err(|what| Error::new(ErrorKind::Format, format!("the table {what}")))
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let first = text.lines().next().unwrap_or_default();
        let count = |&delimiter: &char| first.matches(delimiter).count();
        // The first of those that are equally frequent.
        let delimiter = [',', ';', '\t'].into_iter().rev().max_by_key(count).unwrap_or(',');
        let mut cells = Cells {
            text: text.chars(),
            delimiter,
            line: 1,
        };
        let names = cells.row()?.unwrap_or_default();
        let mut distinct = BTreeSet::new();
        if let Some(twice) = names.iter().find(|&name| !distinct.insert(name)) {
            return Err(match twice.as_str() {
                "" => "has two columns without a name in its first line".to_owned(),
                _ => format!("has two columns {twice:?} in its first line"),
            });
        }
        let mut columns = vec![Vec::new(); names.len()];
        loop {
            let line = cells.line;
            let Some(row) = cells.row()? else { break };
            if row.len() != names.len() {
                // A blank line is none of a table with several columns.
                if row == [""] {
                    continue;
                }
                return Err(format!(
                    "has {} cells in line {line}, and {} in its first one",
                    row.len(),
                    names.len()
                ));
            }
            for (column, cell) in columns.iter_mut().zip(row) {
                column.push(cell);
            }
        }
        let rows = columns.first().map_or(0, Vec::len);
        if rows == 0 {
            return Err("has no rows".to_owned());
        }
        let (columns, written) = columns.into_iter().map(Column::of).unzip();
        Ok(Self {
            names,
            columns,
            written,
            rows,
        })
    }

    /// Columns of one length with their names; nothing if there are no rows.
    #[cfg(feature = "parquet")]
    pub(crate) fn new(names: Vec<String>, columns: Vec<Column>) -> Option<Self> {
        let rows = match columns.first()? {
            Column::Numbers(numbers) => numbers.len(),
            Column::Text(cells) => cells.len(),
        };
        let written = vec![None; columns.len()];
        (rows > 0).then_some(Self {
            names,
            columns,
            written,
            rows,
        })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns' names, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A column by its name.
    ///
    /// # Errors
    /// When there is none; the error says which names come near.
    pub fn column(&self, name: &str) -> Result<&Column> {
        Ok(&self.columns[self.place(name)?])
    }

    fn place(&self, name: &str) -> Result<usize> {
        match self.names.iter().position(|own| own == name) {
            Some(at) => Ok(at),
            None => {
                let hint = match nearest(name, self.names.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("the columns are {:?}", self.names),
                };
                Err(Error::invalid(format!("there is no column {name:?}")).with_hint(hint))
            }
        }
    }

    /// A column of numbers by its name.
    ///
    /// # Errors
    /// When there is none, or a cell of it is no number.
    pub fn numbers(&self, name: &str) -> Result<&[f64]> {
        match self.column(name)? {
            Column::Numbers(numbers) => Ok(numbers),
            Column::Text(cells) => {
                let row = cells.iter().position(|cell| number(cell).is_none()).unwrap_or(0);
                Err(Error::dtype(format!(
                    "the column {name:?} is no column of numbers: it has {:?} in row {}",
                    cells[row],
                    row + 1
                )))
            }
        }
    }

    /// The cells of a column as text, whatever the other cells are: as a CSV file writes them, such as `007`; numbers of a Parquet file as
    /// `Display` writes them.
    ///
    /// # Errors
    /// When there is no such column.
    pub fn texts(&self, name: &str) -> Result<Vec<Cow<'_, str>>> {
        let at = self.place(name)?;
        Ok(match (&self.columns[at], &self.written[at]) {
            (Column::Text(cells), _) | (_, Some(cells)) => cells.iter().map(Cow::from).collect(),
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
        let texts = |cells: &Vec<String>| rows.iter().map(|&row| cells[row].clone()).collect();
        let columns = self.columns.iter().map(|column| match column {
            Column::Numbers(numbers) => Column::Numbers(rows.iter().map(|&row| numbers[row]).collect()),
            Column::Text(cells) => Column::Text(texts(cells)),
        });
        Ok(Self {
            names: self.names.clone(),
            columns: columns.collect(),
            written: self.written.iter().map(|cells| cells.as_ref().map(texts)).collect(),
            rows: rows.len(),
        })
    }
}

fn number(cell: &str) -> Option<f64> {
    match cell.trim() {
        "" => Some(f64::NAN),
        cell => cell.parse().ok(),
    }
}

impl Column {
    /// A column, and how its numbers are written.
    fn of(cells: Vec<String>) -> (Self, Option<Vec<String>>) {
        match cells.iter().map(|cell| number(cell)).collect() {
            Some(numbers) if cells.iter().any(|cell| !cell.trim().is_empty()) => {
                let numbers: Vec<f64> = numbers;
                // Most columns are written as they would be again, and need not be kept.
                let differs = numbers.iter().zip(&cells).any(|(x, cell)| x.to_string() != *cell);
                (Self::Numbers(numbers), differs.then_some(cells))
            }
            _ => (Self::Text(cells), None),
        }
    }
}

struct Cells<'a> {
    text: std::str::Chars<'a>,
    delimiter: char,
    /// Counted from 1.
    line: usize,
}

impl Cells<'_> {
    /// The next row; nothing at the end.
    fn row(&mut self) -> std::result::Result<Option<Vec<String>>, String> {
        if self.text.as_str().is_empty() {
            return Ok(None);
        }
        let mut row = Vec::new();
        loop {
            let mut cell = String::new();
            let quoted = self.text.as_str().starts_with('"');
            if quoted {
                self.text.next();
                self.quoted(&mut cell)?;
            }
            let end = loop {
                match self.text.next() {
                    Some('\r') if self.text.as_str().starts_with('\n') => {}
                    Some(c) if c == self.delimiter || c == '\n' => break Some(c),
                    None => break None,
                    Some(_) if quoted => return Err(format!("has text behind a closing quote in line {}", self.line)),
                    Some(c) => cell.push(c),
                }
            };
            row.push(cell);
            if end != Some(self.delimiter) {
                self.line += 1;
                return Ok(Some(row));
            }
        }
    }

    fn quoted(&mut self, cell: &mut String) -> std::result::Result<(), String> {
        let opened = self.line;
        loop {
            match self.text.next() {
                None => return Err(format!("has a quote in line {opened} that is not closed")),
                Some('"') if self.text.as_str().starts_with('"') => {
                    self.text.next();
                    cell.push('"');
                }
                Some('"') => return Ok(()),
                Some(c) => {
                    self.line += usize::from(c == '\n');
                    cell.push(c);
                }
            }
        }
    }
}

/// How columns of a table become numbers: fitted to the rows that a model is trained with, kept with the model (it is a serde type), and
/// applied to all other rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableEncoder {
    columns: Vec<(String, Encoding)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Encoding {
    /// `(x - mean) / std`; an empty cell is 0, the mean.
    Standardized { mean: f64, std: f64 },
    /// A 1 in the place of the word, zeros in all others; all zeros for a word that was not there.
    OneHot(Vec<String>),
}

impl TableEncoder {
    /// Looks at the columns of these names: the mean and standard deviation of numbers, the words of text.
    ///
    /// # Errors
    /// When one is not there, or there are none.
    pub fn fit(table: &Table, columns: &[&str]) -> Result<Self> {
        if columns.is_empty() {
            return Err(Error::invalid("there are no columns to encode"));
        }
        let encoding = |&name: &&str| {
            let encoding = match table.column(name)? {
                Column::Numbers(numbers) => {
                    let known: Vec<f64> = numbers.iter().copied().filter(|x| x.is_finite()).collect();
                    let n = known.len().max(1) as f64;
                    let mean = known.iter().sum::<f64>() / n;
                    let std = (known.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
                    // A column in which all is the same tells nothing; its deviation may be no 0 but what rounding leaves.
                    let is_constant = known.windows(2).all(|pair| pair[0] == pair[1]);
                    let std = if is_constant || std == 0.0 { 1.0 } else { std };
                    Encoding::Standardized { mean, std }
                }
                Column::Text(cells) => {
                    let words: BTreeSet<&String> = cells.iter().collect();
                    Encoding::OneHot(words.into_iter().cloned().collect())
                }
            };
            Ok((name.to_owned(), encoding))
        };
        Ok(Self {
            columns: columns.iter().map(encoding).collect::<Result<_>>()?,
        })
    }

    /// How many numbers a row becomes.
    pub fn width(&self) -> usize {
        self.columns.iter().map(|(_, encoding)| encoding.width()).sum()
    }

    /// `[rows, width]`, f32.
    ///
    /// # Errors
    /// When a column is not there, or was of numbers and now has something else; [`ErrorKind::OutOfMemory`].
    pub fn encode(&self, table: &Table) -> Result<HostTensor> {
        let (rows, width) = (table.rows(), self.width());
        let mut values = self.zeros(rows, width)?;
        let mut at = 0;
        for (name, encoding) in &self.columns {
            match encoding {
                Encoding::Standardized { mean, std } => {
                    // A column of empty cells alone is read as text.
                    let numbers = match table.column(name)? {
                        Column::Text(cells) if cells.iter().all(|cell| cell.trim().is_empty()) => &[],
                        _ => table.numbers(name)?,
                    };
                    for (row, x) in values
                        .chunks_exact_mut(width)
                        .zip(numbers)
                        .filter(|(_, x)| x.is_finite())
                    {
                        row[at] = ((x - mean) / std) as f32;
                    }
                    at += 1;
                }
                Encoding::OneHot(words) => {
                    let place = |cell: &str| words.binary_search_by(|word| word.as_str().cmp(cell)).ok();
                    // A column of text has stretches that look like numbers.
                    for (row, cell) in values.chunks_exact_mut(width).zip(table.texts(name)?) {
                        if let Some(place) = place(&cell) {
                            row[at + place] = 1.0;
                        }
                    }
                    at += words.len();
                }
            }
        }
        HostTensor::new(Shape::from([rows, width]), values)
    }

    fn zeros(&self, rows: usize, width: usize) -> Result<Vec<f32>> {
        let count = rows.saturating_mul(width);
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|e| {
            let widest = self.columns.iter().max_by_key(|(_, encoding)| encoding.width());
            let (name, widest) = widest.map_or(("", 0), |(name, encoding)| (name, encoding.width()));
            let bytes = width.saturating_mul(size_of::<f32>());
            let what =
                format!("no memory for {rows} rows × {bytes} bytes, {name:?} alone being {widest} of {width} numbers");
            Error::new(ErrorKind::OutOfMemory, what)
                .with_source(e)
                .with_hint("take fewer rows, or leave this column out")
        })?;
        values.resize(count, 0.0);
        Ok(values)
    }
}

impl Encoding {
    fn width(&self) -> usize {
        match self {
            Self::Standardized { .. } => 1,
            Self::OneHot(words) => words.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_told_apart_as_rfc_4180_says() {
        let text = "\u{feff}a;\"b;\";c\r\n1;\"x \"\"y\"\"\n\";\r\n\n2.5;z,;-1e3";
        let table = Table::from_csv(text).unwrap();
        assert_eq!(table.names(), ["a", "b;", "c"]);
        assert_eq!(table.numbers("a").unwrap(), [1.0, 2.5]);
        let text = Column::Text(vec!["x \"y\"\n".to_owned(), "z,".to_owned()]);
        assert_eq!(table.column("b;").unwrap(), &text);
        let c = table.numbers("c").unwrap();
        assert!(c[0].is_nan() && c[1] == -1000.0);
        assert_eq!(table.select(&[1, 1]).unwrap().numbers("a").unwrap(), [2.5, 2.5]);
    }

    #[test]
    fn damaged_tables_are_named() {
        let says = |text: &str, words: &str| {
            let error = Table::from_csv(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        says("", "has no rows");
        says("a,b\n", "has no rows");
        says("a,b\n1,2\n3\n", "has 1 cells in line 3, and 2 in its first one");
        says("a,b\n1,\"2\n3\n", "has a quote in line 2 that is not closed");
        says("a,b\n1,\"2\"3\n", "has text behind a closing quote in line 2");
        says("a,a\n1,2\n", "two columns \"a\" in its first line");
        says("a,,\n1,2,3\n", "two columns without a name");
        let table = Table::from_csv("price,town\n1,x\n").unwrap();
        let error = table.column("pric").unwrap_err().to_string();
        assert!(error.contains("did you mean \"price\"?"), "{error}");
        let error = table.numbers("town").unwrap_err().to_string();
        assert!(
            error.contains("\"town\" is no column of numbers: it has \"x\" in row 1"),
            "{error}"
        );
    }

    #[test]
    fn a_constant_column_is_not_divided_by_what_rounding_leaves() {
        let text = format!("rate\n{}", "0.1\n".repeat(160));
        let encoder = TableEncoder::fit(&Table::from_csv(&text).unwrap(), &["rate"]).unwrap();
        let later = encoder.encode(&Table::from_csv("rate\n0.2\n").unwrap()).unwrap();
        let [x] = later.as_slice::<f32>().unwrap() else {
            panic!("one number")
        };
        assert!((x - 0.1).abs() < 1e-6, "{x}");
    }

    #[test]
    fn encodings_hold_for_rows_of_later() {
        let train = Table::from_csv("size,town\n1,b\n3,a\n,b\n").unwrap();
        let encoder = TableEncoder::fit(&train, &["town", "size"]).unwrap();
        let text = serde_json::to_string(&encoder).unwrap();
        let encoder: TableEncoder = serde_json::from_str(&text).unwrap();
        let values = |table: &Table| encoder.encode(table).unwrap().as_slice::<f32>().unwrap().to_vec();
        assert_eq!(values(&train), [0.0, 1.0, -1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
        let later = Table::from_csv("town,size\nc,5\n").unwrap();
        assert_eq!(values(&later), [0.0, 0.0, 3.0]);
        let empty = Table::from_csv("town,size\na,\n").unwrap();
        assert_eq!(values(&empty), [1.0, 0.0, 0.0]);
        let lacking = Table::from_csv("town\nc\n").unwrap();
        assert!(
            encoder
                .encode(&lacking)
                .unwrap_err()
                .to_string()
                .contains("no column \"size\"")
        );
    }

    #[test]
    fn too_many_rows_are_an_error() {
        let table = Table::from_csv("size,town\n1,b\n3,a\n").unwrap();
        let encoder = TableEncoder::fit(&table, &["size", "town"]).unwrap();
        for rows in [usize::MAX / 8, usize::MAX] {
            let error = encoder.zeros(rows, encoder.width()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            let words = format!("{rows} rows × 12 bytes, \"town\" alone being 2 of 3 numbers");
            assert!(error.to_string().contains(&words), "{error}");
        }
    }

    #[test]
    fn words_are_told_whatever_the_other_rows_have() {
        let codes = Table::from_csv("code,x\n007,1\n1.50,2\n+5,3\n,4\nA,5\n").unwrap();
        let encoder = TableEncoder::fit(&codes, &["code"]).unwrap();
        let values = |table: &Table| encoder.encode(table).unwrap().as_slice::<f32>().unwrap().to_vec();
        let all = values(&codes);
        for (at, cell) in ["007", "1.50", "+5", ""].into_iter().enumerate() {
            let later = Table::from_csv(&format!("code,x\n1,1\n{cell},1\n")).unwrap();
            assert!(later.numbers("code").is_ok());
            assert_eq!(later.texts("code").unwrap(), ["1", cell]);
            assert_eq!(values(&later.select(&[1]).unwrap()), all[5 * at..][..5], "{cell}");
        }
    }
}
