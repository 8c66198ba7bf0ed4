//! A fuzzer for every reader: valid files are modified, opened and read to their end. Nothing may panic, hang or
//! exhaust memory. For longer runs, with a limit on memory:
//!
//! ```text
//! cargo test -p polygrad-data --test fuzz --no-run
//! (ulimit -v 1500000; POLYGRAD_FUZZ_SECONDS=3600 POLYGRAD_FUZZ_SEED=7 cargo test -p polygrad-data --test fuzz)
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use polygrad_core::Result;
use polygrad_data::{Dataset, Idx, ImageFolder, JsonLines, Parquet, Stream, Table, TableEncoder, WebDataset};
use polygrad_testing::fuzz::{self, Random, change_bytes, change_file};

/// The reader of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reader {
    Images,
    Labels,
    Csv,
    Json,
    Tar,
    Folder,
    Parquet,
}

const MOST_ROWS: usize = 2000;

/// Reads a file completely, or the first part of something infinite; returns the number of examples.
fn read(reader: Reader, path: &Path) -> Result<usize> {
    match reader {
        Reader::Images => examples(&Idx::images(path)?),
        Reader::Labels => Ok(Idx::labels(path)?.len()),
        Reader::Csv => table(&Table::read_csv(path)?),
        Reader::Json => examples(&JsonLines::<serde_json::Value>::open(path)?),
        Reader::Folder => examples(&ImageFolder::open(
            path.parent().and_then(Path::parent).unwrap_or(path),
        )?),
        Reader::Tar => {
            let shards = WebDataset::open([path])?;
            let _passed = shards.examples(0)?.nth(3).transpose();
            let mut bytes = 0;
            let samples = shards.examples(0)?.map(|sample| {
                let sample = sample?;
                bytes += sample.parts().values().map(Vec::len).sum::<usize>();
                Ok(sample)
            });
            let count = samples.collect::<Result<Vec<_>>>().map(|samples| samples.len());
            assert!(bytes < 1 << 24);
            count
        }
        Reader::Parquet => {
            let parquet = Parquet::open([path])?;
            let rows = parquet.rows::<BTreeMap<String, serde::de::IgnoredAny>>();
            let _passed = rows.examples(0)?.nth(60).transpose();
            let count = rows
                .examples(0)?
                .take(MOST_ROWS)
                .collect::<Result<Vec<_>>>()
                .map(|rows| rows.len());
            // A table with a claimed huge number of rows could take long.
            if parquet.row_count() < MOST_ROWS as u64 {
                for column in parquet.columns() {
                    let _other = parquet
                        .select(&[&column.name])?
                        .table()
                        .and_then(|values| table(&values));
                }
            }
            count
        }
    }
}

fn examples<D: Dataset>(dataset: &D) -> Result<usize> {
    (0..dataset.len()).try_for_each(|i| dataset.example(i).map(|_| ()))?;
    Ok(dataset.len())
}

fn table(table: &Table) -> Result<usize> {
    let names: Vec<&str> = table.names().iter().map(String::as_str).collect();
    let encoder = TableEncoder::fit(table, &names)?;
    encoder.encode(table)?;
    Ok(table.rows())
}

struct Seed {
    reader: Reader,
    name: &'static str,
    bytes: Vec<u8>,
    /// Whether it is gzip-compressed after the modification, since gzip's checksum would detect any change.
    gzip: bool,
}

fn file(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path);
    fs::read(path).expect("a file of scripts/make_source_files.py or scripts/make_image_files.py")
}

fn unpacked(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packed = file(path);
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed.as_slice()), &mut bytes).expect("a sound file");
    bytes
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |reader, name, bytes: Vec<u8>, gzip| {
        seeds.push(Seed {
            reader,
            name,
            bytes,
            gzip,
        })
    };
    let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4][..], &[7; 24]].concat();
    let labels = [&[0, 0, 8, 1, 0, 0, 0, 9][..], &[3; 9]].concat();
    for gzip in [false, true] {
        add(Reader::Images, "a", images.clone(), gzip);
        add(Reader::Labels, "a", labels.clone(), gzip);
    }
    let csv = b"a;b;c\r\n1;\"x \"\"y\"\"\n\";\n\n2.5;z,;-1e3\n;;3\n";
    add(Reader::Csv, "a", csv.to_vec(), false);
    let json = b"\n{\"text\": \"good\", \"stars\": [5, null]}\r\n\n3\n\"n\xc3\xa9\"\n{\"a\": {}}";
    add(Reader::Json, "a", json.to_vec(), false);
    for name in ["gnu", "pax", "ustar"] {
        let bytes = unpacked(&format!("sources/{name}.tar.gz"));
        add(Reader::Tar, "a.tar", bytes.clone(), false);
        add(Reader::Tar, "a.tgz", bytes, true);
    }
    for name in ["colour.png", "palette.png", "bits.png", "alpha.png"] {
        add(Reader::Folder, "class/a.png", file(&format!("images/{name}")), false);
    }
    for name in ["half.jpg", "full.jpg", "grey.jpg"] {
        add(Reader::Folder, "class/a.jpg", file(&format!("images/{name}")), false);
    }
    for name in [
        "houses-snappy",
        "houses-plain",
        "houses-gzip",
        "houses-zstd",
        "houses-delta",
        "kinds",
        "kinds",
    ] {
        add(Reader::Parquet, "a", file(&format!("sources/{name}.parquet")), false);
    }
    seeds
}

/// Modifies a header of a tar file and corrects its checksum.
fn change_header(bytes: &mut [u8], other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() / 512) * 512;
    let mut header = bytes[at..at + 512].to_vec();
    change_bytes(&mut header, other, random);
    header.resize(512, 0);
    let mut header = tar::Header::from_byte_slice(&header).clone();
    header.set_cksum();
    bytes[at..at + 512].copy_from_slice(header.as_bytes());
}

fn change(seeds: &[Seed], random: &mut Random) -> ((Reader, &'static str), Vec<u8>) {
    let seed = &seeds[random.below(seeds.len())];
    let other = &seeds[random.below(seeds.len())].bytes;
    let mut bytes = seed.bytes.clone();
    match seed.reader {
        Reader::Tar if random.below(4) > 0 => change_header(&mut bytes, other, random),
        _ => change_file(&mut bytes, other, random),
    }
    if seed.gzip {
        bytes = packed(&bytes);
        if random.below(4) == 0 {
            change_file(&mut bytes, other, random);
        }
    }
    ((seed.reader, seed.name), bytes)
}

fn main() {
    let seeds = seeds();
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(folder.path().join("class")).expect("a temporary folder");
    for seed in &seeds {
        let path = folder.path().join(seed.name);
        fs::write(
            &path,
            if seed.gzip {
                packed(&seed.bytes)
            } else {
                seed.bytes.clone()
            },
        )
        .expect("a temporary file");
        let count = read(seed.reader, &path).expect("a sound file");
        assert!(count > 0, "{:?}", seed.reader);
        fs::remove_file(&path).expect("a temporary file");
    }
    // Number of files read to the end, and of all files.
    let mut counts: BTreeMap<Reader, (u64, u64)> = BTreeMap::new();
    fuzz::fuzz(
        "data",
        |random| change(&seeds, random),
        |&(reader, name), bytes| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("a temporary file");
            let count = counts.entry(reader).or_default();
            count.1 += 1;
            match read(reader, &path) {
                Ok(_) => count.0 += 1,
                Err(error) => assert!(error.to_string().len() < 2000, "{error}"),
            }
            fs::remove_file(&path).expect("a temporary file");
        },
    );
    for (reader, (whole, all)) in counts {
        println!("{reader:?}: {whole} of {all} were read to the end");
    }
}
