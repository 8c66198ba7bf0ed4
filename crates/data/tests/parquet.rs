//! Parquet files that pyarrow wrote give what it was given: scripts/make_source_files.py.

use std::collections::BTreeMap;
use std::path::PathBuf;

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

const HOUSES: [&str; 4] = ["snappy", "plain", "gzip", "zstd"];

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
    says(&["note"], "has in row 1 a cell of \"note\" that is null");
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
    // A page with a checksum: one bit of it.
    let mut flipped = std::fs::read(source("houses-gzip.parquet")).unwrap();
    flipped[200] ^= 1;
    says(&flipped, "is damaged");
}

#[test]
fn a_file_that_was_cut_is_an_error_anywhere() {
    // Its pages have checksums, without which another end of the last one may be as good.
    let whole = std::fs::read(source("houses-gzip.parquet")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for end in (0..whole.len()).step_by(11) {
        std::fs::write(&file, &whole[..end]).unwrap();
        assert!(Parquet::open([file.path()]).is_err(), "{end}");
        // The same with an end that is sound: bytes are left out before it.
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
