//! The memory of reading a whole file: little more than its tensors. It is measured in a separate process, whose peak
//! the system reports.
//!
//! The files have 256 MB, or the value of POLYGRAD_MEMORY_MB. Only Linux reports the peak; elsewhere nothing is tested.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use polygrad_formats::TensorFile;
use polygrad_testing::memory::{peak, size};

#[path = "../common/mod.rs"]
mod common;

/// The file that a run reads.
const FILE: &str = "POLYGRAD_MEMORY_FILE";

fn main() {
    match std::env::var_os(FILE) {
        Some(path) => read(Path::new(&path)),
        None if Path::new("/proc/self/status").exists() => each(),
        None => println!("no /proc/self/status: not tested"),
    }
}

/// Reads each file in a separate process, since a peak does not go down.
fn each() {
    let size = size(256);
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, write) in [
        ("model.safetensors", safetensors as fn(&Path, u64)),
        ("model.pt", legacy),
        ("model.gguf", gguf),
    ] {
        let path = folder.path().join(name);
        write(&path, size);
        let program = std::env::current_exe().expect("this program");
        let status = std::process::Command::new(program).env(FILE, &path).status();
        assert!(status.expect("it can be run again").success(), "{name}");
        fs::remove_file(path).expect("a file of ours");
    }
}

fn read(path: &Path) {
    let size = fs::metadata(path).expect("the file").len();
    let file = TensorFile::open(path).expect("a sound file");
    assert!(peak() < 32 << 20, "{} bytes before a value was asked for", peak());
    let state = file.state_dict().expect("sound tensors");
    let held: u64 = state.iter().map(|(_, host)| host.bytes().len() as u64).sum();
    assert!(held * 100 > size * 99 && state.len() == 4);
    println!(
        "{}: {size} bytes, a peak of {} ({:.1} %)",
        file.format(),
        peak(),
        100.0 * peak() as f64 / size as f64
    );
    assert!(
        peak() < size / 10 * 11,
        "a peak of {} bytes for a file of {size}",
        peak()
    );
}

/// Writes the start of a file, and zeros up to its length as a hole without disk space.
fn sparse(path: &Path, start: &[u8], length: u64) {
    let mut file = File::create(path).expect("a temporary file");
    file.write_all(start).expect("a temporary file");
    file.set_len(length).expect("a temporary file");
}

fn safetensors(path: &Path, size: u64) {
    let part = size / 4;
    let entry = |i: u64| {
        let (start, end) = (i * part, (i + 1) * part);
        format!(
            "\"w{i}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{start},{end}]}}",
            part / 4
        )
    };
    let header = format!("{{{}}}", (0..4).map(entry).collect::<Vec<_>>().join(","));
    let start = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    sparse(path, &start, start.len() as u64 + size);
}

fn legacy(path: &Path, size: u64) {
    let count = (size / 16) as i64;
    let mut start =
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.\x80\x02}".to_vec();
    for i in 0..4 {
        let storage = common::storage("FloatStorage", &i.to_string(), count);
        start.extend(
            [
                common::text(&format!("w{i}")),
                common::tensor(&storage, 0, &[count], &[1]),
                b"s".to_vec(),
            ]
            .concat(),
        );
    }
    start.extend(b".\x80\x02(");
    (0..4).for_each(|i| start.extend(common::text(&i.to_string())));
    start.extend(b"l.");
    let part = 8 + 4 * count as u64;
    sparse(path, &start, start.len() as u64 + 4 * part);
    let mut file = fs::OpenOptions::new().write(true).open(path).expect("the file");
    for i in 0..4 {
        file.seek(SeekFrom::Start(start.len() as u64 + i * part))
            .expect("the file");
        file.write_all(&count.to_le_bytes()).expect("the file");
    }
}

fn gguf(path: &Path, size: u64) {
    let part = size / 4;
    let mut start = [&b"GGUF\x03\0\0\0"[..], &4u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
    for i in 0..4u64 {
        start.extend([&2u64.to_le_bytes()[..], format!("w{i}").as_bytes(), &1u32.to_le_bytes()].concat());
        start.extend(
            [
                &(part / 4).to_le_bytes()[..],
                &0u32.to_le_bytes(),
                &(i * part).to_le_bytes(),
            ]
            .concat(),
        );
    }
    start.resize(start.len().next_multiple_of(32), 0);
    sparse(path, &start, start.len() as u64 + size);
}
