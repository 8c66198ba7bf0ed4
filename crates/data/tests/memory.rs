//! The memory of streams: that of the part being read, regardless of the size of the files. Each case runs in a
//! separate process, whose peak memory the system reports.
//!
//! The files have 192 MB, or the value of POLYGRAD_MEMORY_MB. Only Linux reports the peak; elsewhere nothing is tested.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use polygrad_data::{DataLoaderConfig, JsonLines, Parquet, WebDataset};
use polygrad_testing::memory::{peak, size};

/// The case to run, and the folder of its files.
const RUN: &str = "POLYGRAD_MEMORY_RUN";
const FOLDER: &str = "POLYGRAD_MEMORY_FOLDER";

const MB: u64 = 1 << 20;
const SHARDS: u64 = 4;

/// The most growth that counts as constant.
const MOST: u64 = 64 * MB;

fn main() {
    match std::env::var(RUN) {
        Ok(run) => {
            let folder = PathBuf::from(std::env::var_os(FOLDER).expect("it is set with the other one"));
            let before = peak();
            let bytes = match run.as_str() {
                "tar" => shards(&folder),
                "parquet" => cells(&folder),
                _ => lines(&folder),
            };
            let grown = peak() - before;
            println!(
                "{run}: {} MB through a loader, a peak of {} MB more than before",
                bytes / MB,
                grown / MB
            );
            // The rest is framing.
            assert!(bytes > size(192) / 10 * 9, "only {bytes} bytes came out");
            assert!(grown < MOST, "a peak of {grown} bytes more for {bytes}");
        }
        Err(_) if Path::new("/proc/self/status").exists() => each(),
        Err(_) => println!("no /proc/self/status: not tested"),
    }
}

fn each() {
    let size = size(192);
    let runs = [
        ("tar", write_shards as fn(&Path, u64)),
        ("json", write_lines),
        ("parquet", write_cells),
    ];
    for (run, write) in runs {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write(folder.path(), size);
        let program = std::env::current_exe().expect("this program");
        let mut command = std::process::Command::new(program);
        let status = command.env(RUN, run).env(FOLDER, folder.path()).status();
        assert!(status.expect("it can be run again").success(), "{run}");
    }
}

fn shard(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.tar"))
}

/// The size of a photograph.
fn image() -> Vec<u8> {
    (0..200_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn write_shards(folder: &Path, size: u64) {
    let image = image();
    for number in 0..SHARDS {
        let file = BufWriter::new(File::create(shard(folder, number)).expect("a temporary file"));
        let mut shard = tar::Builder::new(file);
        for i in 0..size / SHARDS / 200_000 {
            let mut add = |part: &str, bytes: &[u8]| {
                let mut header = tar::Header::new_ustar();
                header.set_size(bytes.len() as u64);
                let name = format!("train/{number}-{i}.{part}");
                shard.append_data(&mut header, name, bytes).expect("a temporary file");
            };
            add("jpg", &image);
            add("cls", b"3");
        }
        shard
            .into_inner()
            .and_then(|mut file| file.flush())
            .expect("a temporary file");
    }
}

fn shards(folder: &Path) -> u64 {
    let samples = WebDataset::open((0..SHARDS).map(|number| shard(folder, number))).expect("sound shards");
    let config = DataLoaderConfig::from_stream(samples.shuffle_shards(0))
        .batch_size(16)
        .workers(2)
        .shuffle(0);
    let loader = config
        .shuffle_buffer(64)
        .transform(|sample, _| Ok(sample.part("jpg")?.len() as u64 + sample.json::<u64>("cls")? - 3))
        .build_with(|sizes| Ok(sizes.into_iter().sum::<u64>()))
        .expect("a sound loader");
    loader.iter().map(|bytes| bytes.expect("a sound batch")).sum()
}

fn write_lines(folder: &Path, size: u64) {
    let mut file = BufWriter::new(File::create(folder.join("lines.jsonl")).expect("a temporary file"));
    let text = "words and more words, ".repeat(180);
    for i in 0..size / (text.len() as u64 + 20) {
        writeln!(file, "{{\"id\":{i:8},\"text\":\"{text}\"}}").expect("a temporary file");
    }
    file.flush().expect("a temporary file");
}

#[derive(serde::Deserialize)]
struct Line {
    id: u64,
    text: String,
}

fn lines(folder: &Path) -> u64 {
    let lines = JsonLines::<Line>::open(folder.join("lines.jsonl")).expect("a sound file");
    let config = DataLoaderConfig::new(lines).batch_size(64).workers(2).shuffle(0);
    let loader = config
        .build_with(|lines| {
            Ok(lines
                .iter()
                .map(|line| line.text.len() as u64 + line.id / u64::MAX)
                .sum::<u64>())
        })
        .expect("a sound loader");
    loader.iter().map(|bytes| bytes.expect("a sound batch")).sum()
}

/// One row group with pages of 1 MiB.
fn write_cells(folder: &Path, size: u64) {
    let schema = parse_message_type("message m { required binary image; }").expect("a schema");
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None);
    let file = File::create(folder.join("cells.parquet")).expect("a temporary file");
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).expect("a temporary file");
    let mut group = writer.next_row_group().expect("a temporary file");
    let mut column = group
        .next_column()
        .expect("a temporary file")
        .expect("the first column");
    let image = ByteArray::from(image());
    for _ in 0..size / 200_000 {
        let written = column
            .typed::<ByteArrayType>()
            .write_batch(std::slice::from_ref(&image), None, None);
        written.expect("a temporary file");
    }
    column.close().expect("a temporary file");
    group.close().expect("a temporary file");
    writer.close().expect("a temporary file");
}

#[derive(serde::Deserialize)]
struct Cell {
    image: Vec<u8>,
}

fn cells(folder: &Path) -> u64 {
    let rows = Parquet::open([folder.join("cells.parquet")])
        .expect("a sound file")
        .rows::<Cell>();
    let config = DataLoaderConfig::from_stream(rows).batch_size(16).workers(2);
    let loader = config
        .build_with(|cells| Ok(cells.iter().map(|cell| cell.image.len() as u64).sum::<u64>()))
        .expect("a sound loader");
    loader.iter().map(|bytes| bytes.expect("a sound batch")).sum()
}
