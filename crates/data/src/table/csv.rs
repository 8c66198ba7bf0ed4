//! CSV files: detection of their delimiter and of columns of numbers.

use std::io::Read;
use std::path::Path;

use polygrad_core::{Error, ErrorKind, Result, open_file};

use super::{Column, Table};
use crate::image::bad;

/// Possible delimiters; the first wins if several split the rows equally well.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];

/// Number of rows used to detect the delimiter.
const SNIFFED: usize = 64;

/// Common marks for a missing value, in lower case.
const MARKS: [&str; 16] = [
    "na",
    "n/a",
    "n.a.",
    "#n/a",
    "#na",
    "<na>",
    "null",
    "none",
    "nil",
    "?",
    "-",
    "--",
    ".",
    "missing",
    "unknown",
    "undefined",
];

/// How to read a CSV file.
///
/// ```
/// use polygrad_data::CsvConfig;
/// # use polygrad_core::Result;
/// # fn main() -> Result<()> {
/// let table = CsvConfig::new().missing(["NA", "?"]).decimal_comma(true).parse("area;price\n80,5;410\nNA;290\n")?;
/// let area = table.numbers("area")?;
/// assert!(area[0] == 80.5 && area[1].is_nan());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CsvConfig {
    missing: Vec<String>,
    decimal_comma: bool,
}

impl CsvConfig {
    /// The options of [`Table::read_csv`]: only empty cells are missing values, and the decimal separator is a point.
    pub fn new() -> Self {
        Self::default()
    }

    /// Texts that mark a missing value, such as `NA`: such cells count as empty, ignoring blanks around them.
    #[must_use]
    pub fn missing<S: Into<String>>(mut self, marks: impl IntoIterator<Item = S>) -> Self {
        self.missing = marks.into_iter().map(Into::into).collect();
        self
    }

    /// Whether the decimal separator is a comma, as in `1,5`; by default it is a point.
    #[must_use]
    pub fn decimal_comma(mut self, comma: bool) -> Self {
        self.decimal_comma = comma;
        self
    }

    /// Reads a file as [`Table::read_csv`], with these options.
    ///
    /// # Errors
    /// As [`Table::read_csv`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Table> {
        let path = path.as_ref();
        let mut text = String::new();
        open_file(path)?
            .0
            .read_to_string(&mut text)
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::InvalidData => {
                    bad(path, "is not UTF-8").with_hint("give a CSV file, saved as UTF-8")
                }
                _ => Error::io("read", path, e),
            })?;
        self.table(&text).map_err(|what| bad(path, &what))
    }

    /// As [`CsvConfig::read`], from a text.
    ///
    /// # Errors
    /// As [`Table::from_csv`].
    pub fn parse(&self, text: &str) -> Result<Table> {
        self.table(text)
            .map_err(|what| Error::new(ErrorKind::Format, format!("the table {what}")))
    }

    fn table(&self, text: &str) -> std::result::Result<Table, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut cells = sniffed(text);
        let names = cells.row()?.unwrap_or_default();
        let (mut columns, mut lines) = (vec![Vec::new(); names.len()], Vec::new());
        while let Some(row) = cells.row()? {
            let line = cells.began;
            if row.len() != names.len() {
                return Err(format!(
                    "has {} cells in line {line}, and {} in its first one",
                    row.len(),
                    names.len()
                ));
            }
            lines.push(line);
            for (column, cell) in columns.iter_mut().zip(row) {
                column.push(match self.missing.iter().any(|mark| mark.trim() == cell.trim()) {
                    true => String::new(),
                    false => cell,
                });
            }
        }
        Table::of_cells(names, columns, lines, self.decimal_comma)
    }
}

impl Table {
    /// Reads a CSV file (RFC 4180): a line with the columns' names, then one for each row. Cells are separated by
    /// commas, semicolons, tabs or bars: whichever splits the first rows, outside of quotes, into equal numbers of
    /// cells. A cell in double quotes may contain these, line breaks, and quotes as `""`. If a blank follows every
    /// delimiter, these blanks are not part of the cells. Blank lines are skipped. [`CsvConfig`] has more options.
    ///
    /// # Errors
    /// A file that cannot be read, is not UTF-8, has no rows, has a row with more or fewer cells than the first line,
    /// has two columns of the same name, or a quote that is not closed; the error names the line.
    pub fn read_csv(path: impl AsRef<Path>) -> Result<Self> {
        CsvConfig::new().read(path)
    }

    /// As [`Table::read_csv`], from a text.
    ///
    /// # Errors
    /// As [`Table::read_csv`].
    pub fn from_csv(text: &str) -> Result<Self> {
        CsvConfig::new().parse(text)
    }
}

/// A reader with the delimiter that splits the first rows best.
fn sniffed(text: &str) -> Cells<'_> {
    let mut best = (0.0, Cells::new(text, DELIMITERS[0]));
    for delimiter in DELIMITERS {
        let mut cells = Cells::new(text, delimiter);
        let Ok(Some(header)) = cells.row() else { continue };
        if header.len() < 2 {
            continue;
        }
        let (mut same, mut rows) = (0, 0);
        while rows < SNIFFED
            && let Some(row) = cells.row().transpose()
        {
            rows += 1;
            match row {
                Ok(row) => same += usize::from(row.len() == header.len()),
                // The rest cannot be split into rows any more.
                Err(_) => break,
            }
        }
        // A header without rows also counts.
        let share = (1 + same) as f64 / (1 + rows) as f64;
        if share > best.0 {
            let mut found = Cells::new(text, delimiter);
            found.skips_blanks = cells.delimiters > 0 && cells.blanks == cells.delimiters;
            best = (share, found);
        }
    }
    best.1
}

struct Cells<'a> {
    text: std::str::Chars<'a>,
    delimiter: char,
    /// Whether blanks after a delimiter are skipped.
    skips_blanks: bool,
    /// The current line, counted from 1.
    line: usize,
    /// The line in which the last row began.
    began: usize,
    /// Number of delimiters so far, and of those followed by a blank.
    delimiters: usize,
    blanks: usize,
}

impl<'a> Cells<'a> {
    fn new(text: &'a str, delimiter: char) -> Self {
        Self {
            text: text.chars(),
            delimiter,
            skips_blanks: false,
            line: 1,
            began: 1,
            delimiters: 0,
            blanks: 0,
        }
    }

    /// The next row; `None` at the end. Blank lines are skipped.
    fn row(&mut self) -> std::result::Result<Option<Vec<String>>, String> {
        loop {
            let rest = self.text.as_str();
            let blank = rest.trim_start_matches(' ');
            if blank.is_empty() {
                return Ok(None);
            }
            let Some(behind) = line_break(blank) else { break };
            self.text = behind.chars();
            self.line += 1;
        }
        self.began = self.line;
        let mut row = Vec::new();
        loop {
            let mut cell = String::new();
            let blank = self.text.as_str().trim_start_matches(' ');
            let quoted = blank.starts_with('"');
            if quoted || self.skips_blanks {
                self.text = blank.chars();
            }
            if quoted {
                self.text.next();
                self.quoted(&mut cell)?;
            }
            let end = loop {
                if let Some(behind) = line_break(self.text.as_str()) {
                    self.text = behind.chars();
                    self.line += 1;
                    break '\n';
                }
                match self.text.next() {
                    Some(c) if c == self.delimiter => break c,
                    None => break '\n',
                    Some(' ') if quoted => {}
                    Some(_) if quoted => return Err(format!("has text behind a closing quote in line {}", self.line)),
                    Some(c) => cell.push(c),
                }
            };
            row.push(cell);
            if end != self.delimiter {
                return Ok(Some(row));
            }
            self.delimiters += 1;
            self.blanks += usize::from(self.text.as_str().starts_with(' '));
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

/// The text after its initial line break, if it begins with one: `\n`, `\r\n` or, from old Macs, `\r`.
fn line_break(text: &str) -> Option<&str> {
    match text.strip_prefix('\r') {
        Some(rest) => Some(rest.strip_prefix('\n').unwrap_or(rest)),
        None => text.strip_prefix('\n'),
    }
}

/// The number in a cell; NaN if the cell is empty, `None` if it is not a number.
pub(super) fn number(cell: &str, decimal_comma: bool) -> Option<f64> {
    match cell.trim() {
        "" => Some(f64::NAN),
        cell if !decimal_comma => cell.parse().ok(),
        cell if cell.contains('.') => None,
        cell => cell.replacen(',', ".", 1).parse().ok(),
    }
}

/// Whether a cell could be meant as a number, with blanks, commas or a currency sign in it.
fn resembles_number(cell: &str) -> bool {
    let inner = |c: &char| !matches!(c, ',' | '\'' | '_' | '%' | '$' | '€' | '£') && !c.is_whitespace();
    let plain: String = cell.chars().filter(inner).collect();
    plain.contains(|c: char| c.is_ascii_digit()) && plain.parse::<f64>().is_ok()
}

impl Column {
    /// A column, and the text of its numbers if needed.
    pub(super) fn of(cells: Vec<String>, decimal_comma: bool) -> (Self, Option<Vec<String>>) {
        let numbers: Vec<Option<f64>> = cells.iter().map(|cell| number(cell, decimal_comma)).collect();
        let filled = cells.iter().filter(|cell| !cell.trim().is_empty()).count();
        let odd: Vec<usize> = (0..cells.len()).filter(|&row| numbers[row].is_none()).collect();
        if filled == 0 {
            return (Self::Text(cells), None);
        }
        if odd.is_empty() {
            let numbers: Vec<f64> = numbers.into_iter().flatten().collect();
            // The text is only kept if it differs from how the numbers would be printed.
            let differs = numbers.iter().zip(&cells).any(|(x, cell)| x.to_string() != *cell);
            return (Self::Numbers(numbers), differs.then_some(cells));
        }
        let plain = filled - odd.len();
        let like = odd.iter().filter(|&&row| resembles_number(&cells[row])).count();
        let is_mark = |cell: &str| MARKS.contains(&cell.trim().to_lowercase().as_str());
        let are_numbers = 2 * (plain + like) > filled || plain > 0 && odd.iter().all(|&row| is_mark(&cells[row]));
        let column = match are_numbers {
            true => Self::Mixed { cells, odd },
            false => Self::Text(cells),
        };
        (column, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableEncoder;

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

    /// Each of these is a table with the columns `names` and a last column of 2, 4, 6.
    #[test]
    fn delimiters_are_found_outside_of_quotes_by_all_rows() {
        for (text, names) in [
            (
                "\"area, in m2, gross, net\";rooms;y\n0;0;2\n1;1;4\n2;2;6\n",
                &["area, in m2, gross, net", "rooms", "y"][..],
            ),
            ("\"a;b;c\",y\n1,2\n2,4\n3,6\n", &["a;b;c", "y"]),
            ("\"a\tb\"|y\n1|2\n2|4\n3|6\n", &["a\tb", "y"]),
            ("\"a,\nb,\n,c\"\ty\r\n1\t2\r\n2\t4\r\n3\t6\r\n", &["a,\nb,\n,c", "y"]),
            ("\u{feff}\"a, b, c\";y\r\n1;2\r\n2;4\r\n3;6\r\n", &["a, b, c", "y"]),
            // Delimiters outside of quotes, but only in the header.
            ("area, in m2, net;y\n1;2\n2;4\n3;6\n", &["area, in m2, net", "y"]),
            // More decimal commas than semicolons.
            ("a;b;y\n1,5;2,5;2\n2,5;3,5;4\n3,5;4,5;6\n", &["a", "b", "y"]),
            ("text\ty\nwell, yes, no\t2\nno\t4\na, b, c\t6\n", &["text", "y"]),
            (
                "\"a\" ; \"b, c\" ; y\n1 ; 2 ; 2\n1 ; 2 ; 4\n1 ; 2 ; 6\n",
                &["a", "b, c", "y"],
            ),
            (
                "a, \"b, c\", y\n1, \"x, y\", 2\n2, z, 4\n3, z, 6\n",
                &["a", "b, c", "y"],
            ),
            ("\"y, of it\"\n2\n4\n6\n", &["y, of it"]),
            ("y\n\n2\n4\n6\n\n", &["y"]),
            ("\n\na,y\n1,2\n\n2,4\n3,6\n \n", &["a", "y"]),
            ("a,y\r1,2\r2,4\r3,6\r", &["a", "y"]),
            ("a,b;y\n1,2\n2,4\n3,6\n", &["a", "b;y"]),
        ] {
            let table = Table::from_csv(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
            assert_eq!(table.names(), names, "{text:?}");
            assert_eq!(
                table.numbers(names[names.len() - 1]).unwrap(),
                [2.0, 4.0, 6.0],
                "{text:?}"
            );
        }
        let table = Table::from_csv("a,  b\n1,x\n2, y\n").unwrap();
        assert_eq!(table.names(), ["a", "  b"], "blanks that are not everywhere are kept");
    }

    #[test]
    fn a_column_of_numbers_but_for_a_few_is_told() {
        for odd in [
            "NA", "null", "N/A", "None", "?", "-", "1,5", "1 000", "$3", "12 %", "five", "1.2.3",
        ] {
            let rows: String = (0..20).map(|i| format!("{i};{}\n", 3 * i)).collect();
            let text = format!("x;y\n{rows}{odd};1\n\"{odd}\";2\n");
            let table = Table::from_csv(&text).unwrap();
            let encoded = TableEncoder::fit(&table, &["x"]).unwrap_err().to_string();
            let asked = table.numbers("x").unwrap_err().to_string();
            for error in [encoded, asked] {
                let words =
                    format!("\"x\" looks like numbers, but 2 of its 22 cells are none: {odd:?} in lines 22 and 23");
                assert!(error.contains(&words), "{error}");
            }
            let missing = CsvConfig::new().missing([odd]).parse(&text).unwrap();
            assert!(missing.numbers("x").unwrap()[20..].iter().all(|x| x.is_nan()));
            let text = table.with_text(&["x"]).unwrap();
            assert_eq!(TableEncoder::fit(&text, &["x"]).unwrap().width(), 21);
        }
        let kind = |cells: &[&str]| match Table::from_csv(&format!("x,y\n{},1\n", cells.join(",1\n")))
            .unwrap()
            .column("x")
        {
            Ok(Column::Numbers(_)) => "numbers",
            Ok(Column::Text(_)) => "text",
            _ => "mixed",
        };
        assert_eq!(kind(&["1", "", " 2 ", "nan"]), "numbers");
        assert_eq!(kind(&["NA", "NA", "1", "NA"]), "mixed", "all else is marks");
        assert_eq!(kind(&["red", "NA", "1", "blue"]), "text");
        assert_eq!(
            kind(&["\"1,5\"", "\"2,5\""]),
            "mixed",
            "none is a number as it is written"
        );
        assert_eq!(kind(&["2024-01-05", "12:30", "a1"]), "text");
        let decimals = CsvConfig::new()
            .decimal_comma(true)
            .parse("x;y\n1,5;2\n-2;3\n")
            .unwrap();
        assert_eq!(decimals.numbers("x").unwrap(), [1.5, -2.0]);
        let error = CsvConfig::new()
            .decimal_comma(true)
            .parse("x;y\n1,5;2\n1.234,5;3\n2;4\n")
            .unwrap();
        let error = error.numbers("x").unwrap_err().to_string();
        assert!(
            error.contains("one of its 3 cells is none: \"1.234,5\" in line 3"),
            "{error}"
        );
    }

    #[test]
    fn damaged_tables_are_named() {
        let says = |text: &str, words: &str| {
            let error = Table::from_csv(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        says("", "has no rows");
        says("\n \n", "has no rows");
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
            error.contains("\"town\" is no column of numbers: it has \"x\" in line 2"),
            "{error}"
        );
    }
}
