//! Parquet files written by pyarrow give the original values: scripts/make_source_files.py.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FixedLenByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use polygrad_core::Result;
use polygrad_data::{Column, DataLoaderConfig, Parquet, ParquetKind, Stream, Table, TableEncoder};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

fn source(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "sources", name].iter().collect()
}

fn known<T: DeserializeOwned>(name: &str) -> Vec<T> {
    serde_json::from_slice(&std::fs::read(source(name)).unwrap()).unwrap()
}

fn read<T: DeserializeOwned + Send + 'static>(parquet: Parquet) -> Vec<T> {
    let rows = parquet.rows::<T>().examples(0).unwrap();
    rows.collect::<Result<_>>().unwrap()
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct House {
    id: u32,
    area: Option<f64>,
    rooms: Option<u8>,
    town: String,
    note: Option<String>,
    sold: bool,
    embedding: Vec<f32>,
}

const HOUSES: [&str; 5] = ["snappy", "plain", "gzip", "zstd", "delta"];

fn houses(kind: &str) -> Parquet {
    Parquet::open([source(&format!("houses-{kind}.parquet"))]).unwrap()
}

#[test]
fn rows_are_what_was_written() {
    let known: Vec<House> = known("houses.json");
    assert!(known.iter().any(|house| house.area.is_none() && house.note.is_some()));
    for kind in HOUSES {
        let houses = houses(kind);
        assert_eq!(houses.row_count(), known.len() as u64);
        assert_eq!(read::<House>(houses), known, "{kind}");
    }
    let few = Parquet::open([source("houses-snappy.parquet"), source("houses-zstd.parquet")]).unwrap();
    assert_eq!(few.row_count(), 240);
    assert_eq!(read::<House>(few), [known.clone(), known].concat());
}

#[test]
fn columns_are_known_before_they_are_read() {
    let houses = houses("zstd");
    let columns: Vec<_> = (houses.columns().iter())
        .map(|column| (column.name.as_str(), column.kind, column.nullable))
        .collect();
    let expected = [
        ("id", ParquetKind::Integer, false),
        ("area", ParquetKind::Float, true),
        ("rooms", ParquetKind::Integer, true),
        ("town", ParquetKind::Text, false),
        ("note", ParquetKind::Text, true),
        ("sold", ParquetKind::Bool, false),
        ("embedding", ParquetKind::List, true),
    ];
    assert_eq!(columns, expected);
    let error = houses.select(&["toun"]).unwrap_err().to_string();
    assert!(
        error.contains("has no column \"toun\"") && error.contains("did you mean \"town\"?"),
        "{error}"
    );
    let error = Parquet::open([source("houses-zstd.parquet"), source("kinds.parquet")]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("kinds.parquet has 20 columns, and the first file 7"),
        "{error}"
    );
}

#[test]
fn a_table_has_numbers_and_text() {
    let known: Vec<House> = known("houses.json");
    for kind in HOUSES {
        let table = houses(kind)
            .select(&["sold", "area", "town", "rooms"])
            .unwrap()
            .table()
            .unwrap();
        assert_eq!((table.rows(), table.names()[0].as_str()), (120, "sold"));
        let same = |name: &str, value: fn(&House) -> f64| {
            let numbers = table.numbers(name).unwrap();
            let mut pairs = numbers.iter().zip(&known);
            assert!(
                pairs.all(|(&a, house)| a == value(house) || a.is_nan() && value(house).is_nan()),
                "{name}"
            );
        };
        same("sold", |house| f64::from(u8::from(house.sold)));
        same("area", |house| house.area.unwrap_or(f64::NAN));
        same("rooms", |house| house.rooms.map_or(f64::NAN, f64::from));
        let towns = Column::Text(known.iter().map(|house| house.town.clone()).collect());
        assert_eq!(table.column("town").unwrap(), &towns);
        let encoder = TableEncoder::fit(&table, &["area", "town"]).unwrap();
        assert_eq!(encoder.encode(&table).unwrap().shape().dims(), [120, 5]);
    }
    let says = |names: &[&str], words: &str| {
        let error = houses("gzip").select(names).unwrap().table().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let notes = houses("gzip").select(&["note"]).unwrap().table().unwrap();
    let texts: Vec<String> = known
        .iter()
        .map(|house| house.note.clone().unwrap_or_default())
        .collect();
    assert!(texts.contains(&String::new()));
    assert_eq!(notes.column("note").unwrap(), &Column::Text(texts));
    says(
        &["embedding"],
        "has a column \"embedding\" of the kind List, which a table cannot have",
    );
    let error = Table::read_parquet(source("kinds.parquet")).unwrap_err().to_string();
    assert!(error.contains("\"bytes\" of the kind Bytes"), "{error}");
}

/// All kinds of values.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kinds {
    i8: i8,
    u8: u8,
    i16: i16,
    u16: u16,
    u32: u32,
    i64: i64,
    u64: u64,
    f16: f32,
    f32: f32,
    decimal: f64,
    date: i32,
    millis: i64,
    nanos: i64,
    bytes: Vec<u8>,
    fixed: [u8; 2],
    image: Option<Image>,
    messages: Option<Vec<Message>>,
    nested: Vec<Option<Vec<Option<i32>>>>,
    map: BTreeMap<String, Option<i64>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Image {
    bytes: Option<Vec<u8>>,
    path: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Message {
    role: Role,
    content: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

#[test]
fn every_kind_of_value_is_read() {
    let kinds = Parquet::open([source("kinds.parquet")]).unwrap();
    assert_eq!(read::<Kinds>(kinds.clone()), known::<Kinds>("kinds.json"));
    #[derive(Deserialize)]
    struct Special {
        nan: f64,
    }
    let special = kinds.select(&["nan"]).unwrap();
    let special: Vec<f64> = read::<Special>(special).iter().map(|row| row.nan).collect();
    assert_eq!(special, [f64::INFINITY, 1.0, f64::NEG_INFINITY]);
    let table = kinds
        .select(&["date", "decimal", "f16", "u64", "nanos"])
        .unwrap()
        .table()
        .unwrap();
    assert_eq!(table.numbers("decimal").unwrap(), [12.34, -0.05, 999.99]);
    assert_eq!(table.numbers("u64").unwrap()[1], u64::MAX as f64);
    assert_eq!(table.numbers("f16").unwrap()[1], -65504.0);
}

#[test]
fn nulls_are_nan_or_an_option() {
    #[derive(Deserialize)]
    struct Area {
        area: f32,
    }
    let areas = read::<Area>(houses("plain"));
    let known: Vec<House> = known("houses.json");
    assert!(
        areas
            .iter()
            .zip(&known)
            .all(|(row, house)| row.area.is_nan() == house.area.is_none())
    );
    #[derive(Debug, Deserialize)]
    struct Note {
        #[allow(dead_code, reason = "it is never read")]
        note: String,
    }
    let error = houses("plain")
        .rows::<Note>()
        .examples(0)
        .unwrap()
        .nth(4)
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("houses-plain.parquet has a row 4 that does not fit: \"note\" is null"),
        "{error}"
    );
}

#[test]
fn a_loader_goes_on_within_a_row_group() {
    #[derive(Deserialize)]
    struct Id {
        id: i64,
    }
    let loader = |workers| {
        let rows = houses("snappy").select(&["id"]).unwrap().rows::<Id>().shuffle_groups(3);
        let config = DataLoaderConfig::from_stream(rows).batch_size(7).workers(workers);
        config.transform(|row, _| Ok(row.id)).build_with(Ok).unwrap()
    };
    let whole: Vec<Vec<i64>> = loader(0).iter().collect::<Result<_>>().unwrap();
    let mut sorted = whole.concat();
    assert_ne!(sorted, (0..120).collect::<Vec<i64>>());
    sorted.sort_unstable();
    assert_eq!(sorted, (0..120).collect::<Vec<i64>>());
    for taken in 0..whole.len() {
        let stopped = loader(2);
        assert_eq!(stopped.iter().take(taken).count(), taken);
        let other = loader(1);
        other.set_state(stopped.state());
        let rest: Vec<Vec<i64>> = other.iter().collect::<Result<_>>().unwrap();
        assert_eq!(rest, whole[taken..]);
    }
    let rows = houses("snappy").rows::<Id>().shuffle_groups(3);
    let first = |epoch| rows.examples(epoch).unwrap().next().unwrap().unwrap().id;
    assert!((0..20).any(|epoch| first(epoch) != first(0)));
}

#[test]
fn what_cannot_be_read_is_named() {
    let says = |bytes: &[u8], words: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, bytes).unwrap();
        let table = Parquet::open([file.path()]).and_then(|all| all.select(&["id", "town"])?.table());
        let error = table.unwrap_err().to_string();
        let path = file.path().to_string_lossy().into_owned();
        assert!(error.contains(words) && error.contains(&path), "{error}");
    };
    let whole = std::fs::read(source("houses-snappy.parquet")).unwrap();
    says(b"id,area\n1,2\n", "is no Parquet file: it does not begin with PAR1");
    says(&whole[..whole.len() - 1], "is truncated: it does not end with PAR1");
    let mut lying = whole.clone();
    let at = whole.len() - 8;
    lying[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    says(&lying, "its footer is to have 4294967295 bytes");
    lying[at..at + 4].copy_from_slice(&7_u32.to_le_bytes());
    says(&lying, "is damaged");
    let error = read_error("houses-lz4.parquet");
    assert!(
        error.contains("compressed by LZ4") && error.contains("snappy, gzip and zstd are read"),
        "{error}"
    );
    // A flipped bit in a page with a checksum.
    let mut flipped = std::fs::read(source("houses-gzip.parquet")).unwrap();
    flipped[200] ^= 1;
    says(&flipped, "is damaged");
}

#[test]
fn a_file_that_was_cut_is_an_error_anywhere() {
    // Its pages have checksums; without them, a different end of the last page could be just as valid.
    let whole = std::fs::read(source("houses-gzip.parquet")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for end in (0..whole.len()).step_by(11) {
        std::fs::write(&file, &whole[..end]).unwrap();
        assert!(Parquet::open([file.path()]).is_err(), "{end}");
        // The same with a valid footer: bytes are removed before it.
        let footer = whole.len() - 8 - u32::from_le_bytes(whole[whole.len() - 8..][..4].try_into().unwrap()) as usize;
        if end < footer {
            std::fs::write(&file, [&whole[..end], &whole[footer..]].concat()).unwrap();
            let rows = Parquet::open([file.path()]).and_then(|all| all.rows::<House>().examples(0));
            let rows = rows.and_then(Iterator::collect::<Result<Vec<House>>>);
            assert!(rows.is_err(), "{end}");
        }
    }
}

fn read_error(name: &str) -> String {
    let houses = Parquet::open([source(name)]).unwrap().select(&["id"]).unwrap();
    houses.table().unwrap_err().to_string()
}

/// A file whose columns all have the same rows: either a value each, or a list.
struct Written {
    file: tempfile::NamedTempFile,
}

impl Written {
    fn new<T: DataType>(schema: &str, properties: WriterPropertiesBuilder, rows: &[&[T::T]], lists: bool) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer =
            SerializedFileWriter::new(file.reopen().unwrap(), schema, Arc::new(properties.build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            for row in rows {
                let starts: Vec<i16> = (0..row.len()).map(|i| i16::from(i > 0)).collect();
                let there = vec![1; row.len()];
                let levels = lists.then_some((&there[..], &starts[..])).unzip();
                column.typed::<T>().write_batch(row, levels.0, levels.1).unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        Self { file }
    }

    fn open(&self) -> Result<Parquet> {
        Parquet::open([self.file.path()])
    }
}

fn plain() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_dictionary_enabled(false)
}

#[test]
fn encodings_of_differences_are_read_and_their_counts_checked() {
    let numbers: Vec<i64> = (0..100).map(|i| i * i).collect();
    let texts: Vec<ByteArray> = (0..100).map(|i| format!("text {i}").as_str().into()).collect();
    let text = |encoding| {
        let schema = "message m { required binary x (UTF8); }";
        Written::new::<ByteArrayType>(schema, plain().set_encoding(encoding), &[&texts], false)
    };
    let packed = Written::new::<Int64Type>(
        "message m { required int64 x; }",
        plain().set_encoding(Encoding::DELTA_BINARY_PACKED),
        &[&numbers],
        false,
    );
    let lengths = text(Encoding::DELTA_LENGTH_BYTE_ARRAY);
    let squares = packed.open().unwrap().table().unwrap();
    assert!(
        squares
            .numbers("x")
            .unwrap()
            .iter()
            .zip(&numbers)
            .all(|(&a, &b)| a == b as f64)
    );
    let read = lengths.open().unwrap().table().unwrap();
    assert_eq!(
        read.column("x").unwrap(),
        &Column::Text((0..100).map(|i| format!("text {i}")).collect())
    );
    for (written, name) in [(&packed, "DELTA_BINARY_PACKED"), (&lengths, "DELTA_LENGTH_BYTE_ARRAY")] {
        let mut bytes = std::fs::read(written.file.path()).unwrap();
        let mut headers = (0..bytes.len() - 4).filter(|&at| matches!(bytes[at..at + 4], [0x80, 1 | 2, _, 100]));
        let at = headers.next().expect("blocks of 128 or 256, and 100 values");
        bytes[at + 3] = 127;
        std::fs::write(written.file.path(), bytes).unwrap();
        let error = written.open().unwrap().table().unwrap_err().to_string();
        assert!(
            error.contains(&format!("{name} of 127 values in a page of 100")),
            "{error}"
        );
    }
    let error = text(Encoding::DELTA_BYTE_ARRAY)
        .open()
        .unwrap()
        .table()
        .unwrap_err()
        .to_string();
    assert!(error.contains("\"x\" in the encoding DELTA_BYTE_ARRAY"), "{error}");
}

#[test]
fn long_lists_of_many_rows_are_read() {
    let mut row = vec![0; 1 << 18];
    row[7] = 3;
    let written = Written::new::<Int32Type>(
        "message m { required group x (LIST) { repeated group list { required int32 element (INT_8); } } }",
        WriterProperties::builder()
            .set_data_page_size_limit(1 << 30)
            .set_data_page_row_count_limit(1 << 30),
        &[&row[..]; 100],
        true,
    );
    #[derive(Deserialize)]
    struct Row {
        x: Vec<i8>,
    }
    let length = written.file.as_file().metadata().unwrap().len();
    assert!(length < 1 << 20, "{length}");
    let rows = written.open().unwrap().rows::<Row>();
    let sums = rows.examples(0).unwrap().map(|row| {
        let row = row.unwrap();
        (row.x.len(), row.x.iter().map(|&x| i64::from(x)).sum())
    });
    assert_eq!(sums.collect::<Vec<(usize, i64)>>(), vec![(1 << 18, 3); 100]);
    let long = vec![0; (4 << 20) + 1];
    let written = Written::new::<Int32Type>(
        "message m { required group x (LIST) { repeated group list { required int32 element; } } }",
        WriterProperties::builder(),
        &[&long],
        true,
    );
    let error = written
        .open()
        .unwrap()
        .rows::<Row>()
        .examples(0)
        .unwrap()
        .next()
        .unwrap();
    let error = error.map(|row| row.x.len()).unwrap_err().to_string();
    assert!(
        error.contains("more than 4194304 elements in the lists of a row"),
        "{error}"
    );
}

#[test]
fn files_with_other_units_are_not_joined() {
    let times = |unit: &str| {
        let schema = format!("message m {{ required int64 x ({unit}); }}");
        Written::new::<Int64Type>(&schema, plain(), &[&[1, 2]], false)
    };
    let (millis, micros) = (times("TIMESTAMP_MILLIS"), times("TIMESTAMP_MICROS"));
    let other = Written::new::<Int64Type>(
        "message m { required int64 x (TIMESTAMP_MILLIS); }",
        plain(),
        &[&[3]],
        false,
    );
    assert_eq!(
        Parquet::open([millis.file.path(), other.file.path()])
            .unwrap()
            .row_count(),
        3
    );
    let error = Parquet::open([millis.file.path(), micros.file.path()])
        .unwrap_err()
        .to_string();
    let words = "has a column \"x\" of another type than the first file: ";
    assert!(
        error.contains(words) && error.contains("MICROS") && error.contains("MILLIS"),
        "{error}"
    );
}

#[test]
fn a_type_that_is_not_read_matters_where_it_is_selected() {
    let span = parquet::data_type::FixedLenByteArray::from(vec![1; 12]);
    let written = Written::new::<FixedLenByteArrayType>(
        "message m { required fixed_len_byte_array(12) a; required fixed_len_byte_array(12) b (INTERVAL); }",
        plain(),
        &[&[span]],
        false,
    );
    let both = written.open().unwrap();
    assert_eq!(both.columns()[1].kind, ParquetKind::Unsupported);
    assert_eq!(
        read::<BTreeMap<String, Vec<u8>>>(both.select(&["a"]).unwrap())[0]["a"],
        [1; 12]
    );
    let rows = both
        .rows::<BTreeMap<String, Vec<u8>>>()
        .examples(0)
        .unwrap()
        .next()
        .unwrap();
    for error in [
        rows.unwrap_err(),
        both.select(&["b"]).unwrap_err(),
        both.table().unwrap_err(),
    ] {
        let error = error.to_string();
        assert!(
            error.contains("\"b\" of a type that is not read") && error.contains("INTERVAL"),
            "{error}"
        );
    }
}
