//! Parquet files.

mod bounds;
mod cell;
mod footer;
mod pages;
mod rows;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::record::Field;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};
use polygrad_core::{Error, Result, nearest, open_file, printable};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::image::bad;
use crate::table::{Column, Table};
use cell::Cell;
pub use rows::ParquetRows;

/// The most memory of a table: this, or this many times the bytes of its files if that is more.
const MAX_TABLE: u64 = 256 << 20;
const MAX_TABLE_PER_BYTE: u64 = 1024;

/// The most rows of a file.
const MAX_ROWS: i64 = 1 << 48;

/// Parquet files with the same columns, concatenated as one table on disk. Pages may be compressed by snappy, gzip or
/// zstd, and may have any encoding except `DELTA_BYTE_ARRAY`.
///
/// ```
/// use polygrad_data::Parquet;
/// # use polygrad_core::Result;
/// # fn read(path: &str) -> Result<()> {
/// let houses = Parquet::open([path])?;
/// for column in houses.columns() {
///     println!("{}: {:?}", column.name, column.kind);
/// }
/// // In memory, for a `TableEncoder`.
/// let table = houses.select(&["area", "town"])?.table()?;
/// // Or a row at a time, as a type of yours.
/// #[derive(serde::Deserialize)]
/// struct House {
///     area: f32,
///     town: Option<String>,
/// }
/// let config = polygrad_data::DataLoaderConfig::from_stream(houses.rows::<House>());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Parquet {
    files: Vec<Arc<Opened>>,
    columns: Vec<ParquetColumn>,
}

/// A column of a Parquet file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParquetColumn {
    /// Its name.
    pub name: String,
    /// The type of its cells.
    pub kind: ParquetKind,
    /// Whether cells may be null.
    pub nullable: bool,
}

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParquetKind {
    /// `bool`.
    Bool,
    /// Integers; also dates and times, as the numbers in the file: days, or milliseconds, microseconds or nanoseconds.
    /// Times of 96 bits (`INT96`) become milliseconds.
    Integer,
    /// Numbers of 16, 32 or 64 bits, and decimals.
    Float,
    /// UTF-8.
    Text,
    /// Any bytes.
    Bytes,
    /// `Vec`s of anything.
    List,
    /// Values by their names.
    Map,
    /// A struct.
    Struct,
    /// An unsupported type: selecting such a column is an error.
    Unsupported,
}

#[derive(Debug)]
struct Opened {
    path: Arc<Path>,
    metadata: Arc<ParquetMetaData>,
    length: u64,
}

impl Parquet {
    /// Reads the metadata of files: their columns, and where their rows are.
    ///
    /// # Errors
    /// When there are no files, one cannot be read, is damaged or encrypted, or has other columns than the first.
    pub fn open<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> Result<Self> {
        let (mut opened, mut columns) = (Vec::<Arc<Opened>>::new(), Vec::new());
        for path in files {
            let file = Opened::open(path.as_ref())?;
            let own = file.columns()?;
            match opened.is_empty() {
                true => columns = own,
                false => {
                    join(&mut columns, &own).map_err(|what| bad(&file.path, &what))?;
                    file.same_types(&opened[0])?;
                }
            }
            opened.push(Arc::new(file));
        }
        match opened.is_empty() {
            true => Err(Error::invalid("there are no Parquet files to read")),
            false => Ok(Self { files: opened, columns }),
        }
    }

    /// The selected columns, in order.
    pub fn columns(&self) -> &[ParquetColumn] {
        &self.columns
    }

    /// The number of rows of all files.
    pub fn row_count(&self) -> u64 {
        let groups = self.files.iter().flat_map(|file| file.metadata.row_groups());
        groups.map(|group| group.num_rows() as u64).sum()
    }

    /// Selects the columns of these names; the bytes of others are not read.
    ///
    /// # Errors
    /// When there are no names, a column has an unsupported type, or does not exist; the error then suggests similar
    /// names.
    pub fn select(&self, names: &[&str]) -> Result<Self> {
        let column = |&name: &&str| {
            let found = self.columns.iter().find(|column| column.name == name);
            found.cloned().ok_or_else(|| {
                let all = self.columns.iter().map(|column| column.name.as_str());
                let hint = match nearest(name, all.clone()) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("the columns are {:?}", all.collect::<Vec<_>>()),
                };
                bad(&self.files[0].path, &format!("has no column {name:?}")).with_hint(hint)
            })
        };
        let columns: Vec<ParquetColumn> = names.iter().map(column).collect::<Result<_>>()?;
        if columns.is_empty() {
            return Err(Error::invalid("there are no columns to read"));
        }
        let files = self.files.clone();
        let selected = Self { files, columns };
        selected.supported()?;
        Ok(selected)
    }

    /// Checks that the columns have supported types.
    fn supported(&self) -> Result<()> {
        let unsupported = |column: &&ParquetColumn| column.kind == ParquetKind::Unsupported;
        match self.columns.iter().find(unsupported) {
            None => Ok(()),
            Some(ParquetColumn { name, .. }) => {
                let types = self.files[0].field(name).map(describe).unwrap_or_default();
                let what = format!("has a column {name:?} of a type that is not read: {types}");
                Err(bad(&self.files[0].path, &what).with_hint("`Parquet::select` takes other columns alone"))
            }
        }
    }

    /// The rows, one at a time, each as a `T`: a type that derives serde's `Deserialize` with a field for each column
    /// it needs. Null numbers are NaN for a float field; any other null needs an `Option`.
    pub fn rows<T: DeserializeOwned>(&self) -> ParquetRows<T> {
        ParquetRows::new(self.clone())
    }

    /// The columns in memory: as numbers, with null as NaN, booleans as 0 and 1, and dates and times as in
    /// [`ParquetKind::Integer`]; or as text, with null as an empty text.
    ///
    /// # Errors
    /// A column of another kind, no rows, damaged data, and more memory than 256 MiB or 1,024 times the files' bytes.
    pub fn table(&self) -> Result<Table> {
        self.supported()?;
        let mut columns = Vec::new();
        for column in &self.columns {
            columns.push(match column.kind {
                ParquetKind::Bool | ParquetKind::Integer | ParquetKind::Float => Column::Numbers(Vec::new()),
                ParquetKind::Text => Column::Text(Vec::new()),
                kind => {
                    let what = format!(
                        "has a column {:?} of the kind {kind:?}, which a table cannot have",
                        column.name
                    );
                    return Err(
                        bad(&self.files[0].path, &what).with_hint("`Parquet::select` takes other columns alone")
                    );
                }
            });
        }
        let bytes: u64 = self.files.iter().map(|file| file.length).sum();
        let most = MAX_TABLE.max(bytes.saturating_mul(MAX_TABLE_PER_BYTE));
        let mut left = most;
        let mut rows = rows::Rows::new(self, None);
        while let Some((path, number, cells)) = rows.next_row().transpose()? {
            for ((name, cell), column) in cells.into_iter().zip(&mut columns) {
                let fits = cell_into(cell, column, &mut left);
                fits.map_err(|what| bad(&path, &format!("has in row {number} a cell of {name:?} that {what}")))?;
            }
        }
        Table::new(self.columns.iter().map(|column| column.name.clone()).collect(), columns)
            .ok_or_else(|| bad(&self.files[0].path, "has no rows"))
    }

    /// The schema of the selected columns in a file.
    fn schema(&self, file: &Opened) -> parquet::errors::Result<SchemaDescPtr> {
        let root = file.metadata.file_metadata().schema();
        let field = |column: &ParquetColumn| root.get_fields().iter().find(|field| field.name() == column.name);
        let fields = self.columns.iter().filter_map(field).cloned().collect();
        let root = Type::group_type_builder(root.name()).with_fields(fields).build()?;
        Ok(Arc::new(SchemaDescriptor::new(Arc::new(root))))
    }
}

/// Checks that another file has the same columns. A column may be nullable although it is not in the first file.
fn join(columns: &mut [ParquetColumn], own: &[ParquetColumn]) -> std::result::Result<(), String> {
    if own.len() != columns.len() {
        return Err(format!(
            "has {} columns, and the first file {}",
            own.len(),
            columns.len()
        ));
    }
    for column in columns {
        let (name, kind) = (&column.name, column.kind);
        match own.iter().find(|own| own.name == *name && own.kind == kind) {
            Some(own) => column.nullable |= own.nullable,
            None => {
                return Err(format!(
                    "has no column {name:?} of the kind {kind:?}, as the first file has"
                ));
            }
        }
    }
    Ok(())
}

/// Appends a cell to a column, and subtracts its memory from `left`.
fn cell_into(cell: Field, column: &mut Column, left: &mut u64) -> std::result::Result<(), String> {
    let takes = match (&cell, column) {
        (&Field::Bool(x), Column::Numbers(numbers)) => {
            numbers.push(f64::from(u8::from(x)));
            8
        }
        (_, Column::Numbers(numbers)) => {
            numbers.push(f64::deserialize(Cell(cell)).map_err(|e| format!("is no number: {e}"))?);
            8
        }
        (_, Column::Text(cells) | Column::Mixed { cells, .. }) => {
            let text = match cell {
                Field::Null => String::new(),
                cell => String::deserialize(Cell(cell)).map_err(|e| format!("is no text: {e}"))?,
            };
            let takes = (size_of::<String>() + text.len()) as u64;
            cells.push(text);
            takes
        }
    };
    *left = left
        .checked_sub(takes)
        .ok_or("is more than a table of so small a file can hold")?;
    Ok(())
}

impl Table {
    /// Reads all columns of a Parquet file, as [`Parquet::table`].
    ///
    /// # Errors
    /// As [`Parquet::open`] and [`Parquet::table`].
    pub fn read_parquet(path: impl AsRef<Path>) -> Result<Self> {
        Parquet::open([path])?.table()
    }
}

impl Opened {
    fn open(path: &Path) -> Result<Self> {
        let (mut file, length) = open_file(path)?;
        let metadata = metadata(&mut file, length, path)?;
        let mut rows = 0_i64;
        for group in metadata.row_groups() {
            let held = |column: &parquet::file::metadata::ColumnChunkMetaData| {
                let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
                let end = start.checked_add(column.compressed_size());
                start >= 0 && column.compressed_size() >= 0 && end.is_some_and(|end| end as u64 <= length)
            };
            rows = rows.saturating_add(group.num_rows());
            if group.num_rows() < 0 || rows > MAX_ROWS || !group.columns().iter().all(held) {
                return Err(bad(path, "is damaged: it says to have rows where it has no bytes"));
            }
        }
        Ok(Self {
            path: Arc::from(path),
            metadata: Arc::new(metadata),
            length,
        })
    }

    fn columns(&self) -> Result<Vec<ParquetColumn>> {
        let fields = self.metadata.file_metadata().schema().get_fields();
        if fields.is_empty() {
            return Err(bad(&self.path, "has no columns"));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = fields.iter().find(|field| !names.insert(field.name())) {
            return Err(bad(&self.path, &format!("has two columns {:?}", twice.name())));
        }
        let column = |field: &Arc<Type>| {
            let about = field.get_basic_info();
            if !about.has_repetition() {
                let what = format!("has a column {:?} whose type is damaged", field.name());
                return Err(bad(&self.path, &what));
            }
            Ok(ParquetColumn {
                name: field.name().to_owned(),
                kind: kind(field).unwrap_or(ParquetKind::Unsupported),
                nullable: about.repetition() == Repetition::OPTIONAL,
            })
        };
        fields.iter().map(column).collect()
    }

    fn field(&self, name: &str) -> Option<&Type> {
        let fields = self.metadata.file_metadata().schema().get_fields();
        fields.iter().find(|field| field.name() == name).map(Arc::as_ref)
    }

    /// Checks that the columns have the same types as in the first file, so that units are not mixed.
    fn same_types(&self, first: &Self) -> Result<()> {
        for field in self.metadata.file_metadata().schema().get_fields() {
            let other = first.field(field.name());
            if let Some(other) = other.filter(|other| !same_type(field, other, false)) {
                let what = format!(
                    "has a column {:?} of another type than the first file: {}, and there {}",
                    field.name(),
                    describe(field),
                    describe(other)
                );
                return Err(bad(&self.path, &what));
            }
        }
        Ok(())
    }
}

/// Whether two types mean the same, apart from being nullable. Names within lists and maps may differ, since writers
/// choose their own.
fn same_type(a: &Type, b: &Type, within: bool) -> bool {
    let (about, other) = (a.get_basic_info(), b.get_basic_info());
    let repeated = |field: &Type| {
        let about = field.get_basic_info();
        about.has_repetition() && about.repetition() == Repetition::REPEATED
    };
    // Old writers only know the converted type.
    let logical = match (about.logical_type_ref(), other.logical_type_ref()) {
        (Some(a), Some(b)) => a == b,
        (None, None) => true,
        _ => about.converted_type() != ConvertedType::NONE,
    };
    if !logical || about.converted_type() != other.converted_type() || repeated(a) != repeated(b) {
        return false;
    }
    match (a, b) {
        (
            Type::PrimitiveType {
                physical_type,
                type_length,
                scale,
                precision,
                ..
            },
            Type::PrimitiveType {
                physical_type: physical,
                type_length: length,
                scale: digits,
                precision: exact,
                ..
            },
        ) => (physical_type, type_length, scale, precision) == (physical, length, digits, exact),
        (Type::GroupType { fields: own, .. }, Type::GroupType { fields: others, .. }) => {
            let lists = [ConvertedType::LIST, ConvertedType::MAP, ConvertedType::MAP_KEY_VALUE];
            let container = lists.contains(&about.converted_type());
            let same = |(a, b): (&Arc<Type>, &Arc<Type>)| {
                (container || within || a.name() == b.name()) && same_type(a, b, container)
            };
            own.len() == others.len() && own.iter().zip(others).all(same)
        }
        _ => false,
    }
}

/// A type in the format's own notation.
fn describe(field: &Type) -> String {
    let mut text = Vec::new();
    parquet::schema::printer::print_schema(&mut text, field);
    let text = String::from_utf8_lossy(&text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    printable(&text.chars().take(200).collect::<String>()).into_owned()
}

/// The footer of a file, after checking that it can be parsed.
fn metadata(file: &mut File, length: u64, path: &Path) -> Result<ParquetMetaData> {
    let mut read = |from: u64, count: u64| -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize];
        let read = file
            .seek(SeekFrom::Start(from))
            .and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|e| Error::io("read", path, e))?;
        Ok(bytes)
    };
    if length < 12 || read(0, 4)? != *b"PAR1" {
        return Err(bad(path, "is no Parquet file: it does not begin with PAR1"));
    }
    let tail = read(length - 8, 8)?;
    if tail[4..] == *b"PARE" {
        return Err(bad(path, "is encrypted, which is not read"));
    }
    if tail[4..] != *b"PAR1" {
        return Err(bad(path, "is truncated: it does not end with PAR1"));
    }
    let count = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if count > length - 12 {
        return Err(bad(path, &format!("is damaged: its footer is to have {count} bytes")));
    }
    let footer = read(length - 8 - count, count)?;
    if !footer::sound(&footer) {
        return Err(bad(path, "is damaged: its footer cannot be read"));
    }
    rows::guarded(|| ParquetMetaDataReader::decode_metadata(&footer)).map_err(|e| damaged(path, &e))
}

fn damaged(path: &Path, error: &parquet::errors::ParquetError) -> Error {
    // Some errors quote a whole cell.
    let text: String = error.to_string().chars().take(300).collect();
    bad(
        path,
        &format!("is damaged, or not of a kind that is read: {}", printable(&text)),
    )
}

/// The type of a column, or `None` if its rows cannot be assembled.
fn kind(field: &Type) -> Option<ParquetKind> {
    let about = field.get_basic_info();
    if !about.has_repetition() {
        return None;
    }
    let converted = about.converted_type();
    let kind = match field {
        Type::PrimitiveType { physical_type, .. } => match (physical_type, converted) {
            (Physical::BOOLEAN, _) => ParquetKind::Bool,
            (Physical::FLOAT | Physical::DOUBLE, _) => ParquetKind::Float,
            (_, ConvertedType::DECIMAL) => ParquetKind::Float,
            (Physical::INT96, _) => ParquetKind::Integer,
            (
                Physical::INT32,
                ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::DATE
                | ConvertedType::TIME_MILLIS,
            ) => ParquetKind::Integer,
            (
                Physical::INT64,
                ConvertedType::NONE
                | ConvertedType::INT_64
                | ConvertedType::UINT_64
                | ConvertedType::TIME_MICROS
                | ConvertedType::TIMESTAMP_MILLIS
                | ConvertedType::TIMESTAMP_MICROS,
            ) => ParquetKind::Integer,
            (Physical::BYTE_ARRAY, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON) => {
                ParquetKind::Text
            }
            (Physical::BYTE_ARRAY, ConvertedType::NONE | ConvertedType::BSON) => ParquetKind::Bytes,
            (Physical::FIXED_LEN_BYTE_ARRAY, ConvertedType::NONE) => match about.logical_type_ref() {
                Some(LogicalType::Float16) => ParquetKind::Float,
                _ => ParquetKind::Bytes,
            },
            // The parquet crate panics for these.
            _ => return None,
        },
        Type::GroupType { fields, .. } => {
            let group = fields.iter().map(|field| kind(field)).collect::<Option<Vec<_>>>()?;
            let repeated = |field: &Type| field.get_basic_info().repetition() == Repetition::REPEATED;
            match (converted, fields.as_slice()) {
                (ConvertedType::LIST, [element]) if repeated(element) => ParquetKind::List,
                (ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE, [entry]) if repeated(entry) => match entry.as_ref()
                {
                    Type::GroupType { fields, .. } if fields.len() <= 2 => ParquetKind::Map,
                    _ => return None,
                },
                (ConvertedType::LIST | ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE, _) => return None,
                _ if group.is_empty() => return None,
                _ => ParquetKind::Struct,
            }
        }
    };
    match about.repetition() {
        Repetition::REPEATED => Some(ParquetKind::List),
        _ => Some(kind),
    }
}
