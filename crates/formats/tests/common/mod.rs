//! Shared helpers of the test programs: files written by other libraries, and hostile pickles and archives.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use std::path::{Path, PathBuf};

use flate2::Crc;

/// A file written by `scripts/make_format_files.py`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// An uncompressed zip archive of these entries.
pub fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in entries {
        let mut crc = Crc::new();
        crc.update(content);
        let size = content.len() as u32;
        let mut common = [20u16, 0, 0, 0, 33].map(u16::to_le_bytes).concat();
        common.extend([crc.sum(), size, size].map(u32::to_le_bytes).concat());
        common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        directory.extend(
            [
                &b"PK\x01\x02\x14\0"[..],
                &common,
                &[0; 10],
                &(out.len() as u32).to_le_bytes(),
                name.as_bytes(),
            ]
            .concat(),
        );
        out.extend([&b"PK\x03\x04"[..], &common, name.as_bytes(), content].concat());
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06");
    let count = entries.len() as u16;
    out.extend([0, 0, count, count].map(u16::to_le_bytes).concat());
    out.extend([directory.len() as u32, start].map(u32::to_le_bytes).concat());
    out.extend([0; 2]);
    out
}

/// A checkpoint with this pickle, and one storage `0` of four floats: 1, 2, 3 and 4.
pub fn checkpoint(pickle: &[u8]) -> Vec<u8> {
    let storage = [1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
    zip(&[
        ("x/data.pkl", pickle),
        ("x/byteorder", b"little"),
        ("x/data/0", &storage),
        ("x/version", b"3\n"),
    ])
}

/// The opcodes that push a text.
pub fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// The opcodes that push an integer.
pub fn int(number: i64) -> Vec<u8> {
    [&[0x8a, 8][..], &number.to_le_bytes()].concat()
}

/// The opcodes that push a tuple of integers.
pub fn tuple(numbers: &[i64]) -> Vec<u8> {
    [
        b"(".to_vec(),
        numbers.iter().flat_map(|&number| int(number)).collect(),
        b"t".to_vec(),
    ]
    .concat()
}

/// The opcodes that push the storage of `key`, of a class and with `count` elements.
pub fn storage(class: &str, key: &str, count: i64) -> Vec<u8> {
    let class = format!("ctorch\n{class}\n").into_bytes();
    [
        b"(".to_vec(),
        text("storage"),
        class,
        text(key),
        text("cpu"),
        int(count),
        b"tQ".to_vec(),
    ]
    .concat()
}

/// The opcodes that push a tensor whose storage is pushed by `storage`.
pub fn tensor(storage: &[u8], offset: i64, size: &[i64], stride: &[i64]) -> Vec<u8> {
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n(".to_vec(),
        storage.to_vec(),
        int(offset),
        tuple(size),
        tuple(stride),
        b"\x89NtR".to_vec(),
    ]
    .concat()
}

/// A valid tensor of four elements.
pub fn sound() -> Vec<u8> {
    tensor(&storage("FloatStorage", "0", 4), 0, &[4], &[1])
}

/// A pickle of a dict with a single item, `key`.
pub fn dict(key: &str, value: &[u8]) -> Vec<u8> {
    [b"\x80\x02}".to_vec(), text(key), value.to_vec(), b"s.".to_vec()].concat()
}
