//! Encoding of a table's columns as numbers for a model.

use std::collections::BTreeSet;

use polygrad_core::{Error, ErrorKind, HostTensor, Result, Shape};
use serde::{Deserialize, Serialize};

use super::{Column, Table};

/// How columns of a table become numbers. It is fitted to the training rows, saved with the model (it is a serde type),
/// and applied to all other rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableEncoder {
    columns: Vec<(String, Encoding)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Encoding {
    /// `(x - mean) / std`; an empty cell is 0, the mean.
    Standardized { mean: f64, std: f64 },
    /// One-hot: a 1 in the position of the word; all zeros for an unknown word.
    OneHot(Vec<String>),
}

impl TableEncoder {
    /// Fits the columns of these names: the mean and standard deviation of numbers, the words of texts.
    ///
    /// # Errors
    /// When there are no columns, or one does not exist, has an infinite number, or is [`Column::Mixed`], that is,
    /// numbers except for a few cells.
    pub fn fit(table: &Table, columns: &[&str]) -> Result<Self> {
        if columns.is_empty() {
            return Err(Error::invalid("there are no columns to encode"));
        }
        let encoding = |&name: &&str| {
            let encoding = match table.column(name)? {
                Column::Numbers(numbers) => {
                    table.must_be_finite(name)?;
                    let known: Vec<f64> = numbers.iter().copied().filter(|x| x.is_finite()).collect();
                    let n = known.len().max(1) as f64;
                    let mean = known.iter().sum::<f64>() / n;
                    let std = (known.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
                    // A constant column carries no information. Its deviation may be a rounding error instead of 0.
                    let is_constant = known.windows(2).all(|pair| pair[0] == pair[1]);
                    let std = if is_constant || std == 0.0 { 1.0 } else { std };
                    Encoding::Standardized { mean, std }
                }
                Column::Text(cells) => {
                    let words: BTreeSet<&String> = cells.iter().collect();
                    Encoding::OneHot(words.into_iter().cloned().collect())
                }
                Column::Mixed { cells, odd } => return Err(table.mixed(name, cells, odd)),
            };
            Ok((name.to_owned(), encoding))
        };
        Ok(Self {
            columns: columns.iter().map(encoding).collect::<Result<_>>()?,
        })
    }

    /// Number of values per row.
    pub fn width(&self) -> usize {
        self.columns.iter().map(|(_, encoding)| encoding.width()).sum()
    }

    /// Whether a table, and therefore any part of it, can be encoded.
    ///
    /// # Errors
    /// When a column does not exist, or a column of numbers now has other cells or an infinite number.
    pub fn check(&self, table: &Table) -> Result<()> {
        self.columns.iter().try_for_each(|(name, encoding)| match encoding {
            Encoding::Standardized { .. } => table.known_numbers(name).map(|_| ()),
            Encoding::OneHot(_) => table.column(name).map(|_| ()),
        })
    }

    /// `[rows, width]`, f32.
    ///
    /// # Errors
    /// As [`TableEncoder::check`], and [`ErrorKind::OutOfMemory`].
    pub fn encode(&self, table: &Table) -> Result<HostTensor> {
        let (rows, width) = (table.rows(), self.width());
        let mut values = self.zeros(rows, width)?;
        let mut at = 0;
        for (name, encoding) in &self.columns {
            match encoding {
                Encoding::Standardized { mean, std } => {
                    // A column that contains only empty cells is read as text.
                    let numbers = table.known_numbers(name)?;
                    for (row, x) in values.chunks_exact_mut(width).zip(numbers).filter(|(_, x)| !x.is_nan()) {
                        row[at] = ((x - mean) / std) as f32;
                    }
                    at += 1;
                }
                Encoding::OneHot(words) => {
                    let place = |cell: &str| words.binary_search_by(|word| word.as_str().cmp(cell)).ok();
                    // A column of text may look like numbers in a part of the table.
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

impl Table {
    /// The numbers of a column; empty if all its cells are empty.
    ///
    /// # Errors
    /// As [`Table::numbers`], and at an infinite number.
    fn known_numbers(&self, name: &str) -> Result<&[f64]> {
        match self.column(name)? {
            // A column without any values is read as text.
            Column::Text(cells) if cells.iter().all(|cell| cell.trim().is_empty()) => Ok(&[]),
            _ => self.must_be_finite(name),
        }
    }

    fn must_be_finite(&self, name: &str) -> Result<&[f64]> {
        let numbers = self.numbers(name)?;
        match numbers.iter().position(|x| x.is_infinite()) {
            None => Ok(numbers),
            Some(row) => Err(Error::invalid(format!(
                "the column {name:?} has {} in {}, with which nothing can be computed",
                numbers[row],
                self.rows_named(&[row])
            ))
            .with_hint("correct the cell, or leave it empty")),
        }
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
    fn an_infinite_number_is_no_empty_cell() {
        let encoder = TableEncoder::fit(&Table::from_csv("x,y\n1,2\n3,4\n").unwrap(), &["x"]).unwrap();
        for cell in ["inf", "-inf", "1e999", "Infinity"] {
            let table = Table::from_csv(&format!("x,y\n1,2\n{cell},4\n")).unwrap();
            for error in [
                encoder.encode(&table).unwrap_err(),
                TableEncoder::fit(&table, &["x"]).unwrap_err(),
            ] {
                let error = error.to_string();
                assert!(
                    error.contains("\"x\" has ") && error.contains("inf in line 3"),
                    "{error}"
                );
            }
        }
        assert!(encoder.check(&Table::from_csv("x,y\nnan,2\n,4\n").unwrap()).is_ok());
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
        let codes = Table::from_csv("code,x\n007,1\n1.50,2\n+5,3\n,4\nA,5\n")
            .unwrap()
            .with_text(&["code"])
            .unwrap();
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
