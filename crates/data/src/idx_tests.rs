//! Whole files come back as written; every kind of damage is named.

use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// An IDX file of unsigned bytes.
fn idx(dims: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, dims.len() as u8];
    file.extend(dims.iter().flat_map(|d| d.to_be_bytes()));
    file.extend(bytes);
    file
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Writes `bytes` to a file of its own and returns the folder's guard and the path.
fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = scratch();
    let path = dir.path().join("train-images-idx3-ubyte");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn error_of(bytes: &[u8]) -> String {
    let (_dir, path) = file(bytes);
    let text = Idx::images(&path).unwrap_err().to_string();
    assert!(text.contains(&path.display().to_string()), "names no file: {text}");
    assert!(text.contains("; "), "has no hint: {text}");
    text
}

#[test]
fn reads_plain_and_gzip_by_content() {
    let pixels: Vec<u8> = (0..24).collect();
    let bytes = idx(&[2, 3, 4], &pixels);
    let want = Idx {
        pixels,
        count: 2,
        channels: 1,
        height: 3,
        width: 4,
    };
    for bytes in [bytes.clone(), gz(&bytes)] {
        let (_dir, path) = file(&bytes);
        assert_eq!(Idx::images(&path).unwrap(), want);
    }
    let (_dir, path) = file(&idx(&[1, 3, 2, 2], &(0..12).collect::<Vec<u8>>()));
    let images = Idx::images(&path).unwrap();
    assert_eq!((images.channels, images.height, images.width), (3, 2, 2));
    assert_eq!(
        images.example(0).unwrap().pixels(),
        [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]
    );
    let (_dir, path) = file(&gz(&idx(&[3], &[1, 2, 3])));
    assert_eq!(Idx::labels(&path).unwrap(), [1, 2, 3]);
}

#[test]
fn transposes_every_image() {
    let mut images = Idx {
        pixels: (0..12).collect(),
        count: 2,
        channels: 1,
        height: 2,
        width: 3,
    };
    images.transpose();
    assert_eq!((images.height, images.width), (3, 2));
    assert_eq!(images.pixels, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
}

#[test]
fn names_each_kind_of_damage() {
    let whole = idx(&[2, 3, 4], &[9; 24]);
    let mut flipped = gz(&idx(&[50, 28, 28], &[3; 50 * 784]));
    let crc = flipped.len() - 6;
    flipped[crc] ^= 0x40;
    let mut garbled = gz(&whole);
    garbled[10..].fill(0xff);
    let mut long = whole.clone();
    long.push(0);
    let mut floats = whole.clone();
    floats[2] = 0x0d;
    for (bytes, words) in [
        (&b""[..], "is truncated: it ends inside its header"),
        (&whole[..2], "is truncated: it ends inside its header"),
        (&whole[..9], "is truncated: it ends inside its header"),
        (
            &whole[..39],
            "is truncated or corrupt: its header promises [2, 3, 4] bytes, the file can hold at most 23",
        ),
        (&long, "goes on after the 24 bytes"),
        (b"<!DOCTYPE html>", "is no IDX file"),
        (&floats, "holds 32-bit floats"),
        (&idx(&[0, 3, 4], &[]), "holds no images"),
        (&idx(&[4], &[1; 4]), "has rank 1, but a file of images has rank 3 or 4"),
        (
            &gz(&whole[..30]),
            "is truncated: its header promises [2, 3, 4] = 24 bytes, it holds 14",
        ),
        (&gz(&whole)[..20], "is truncated"),
        (&flipped, "is corrupt: its gzip stream is damaged"),
        (&garbled, "is corrupt: its gzip stream is damaged"),
    ] {
        let text = error_of(bytes);
        assert!(text.contains(words), "{text}\nshould contain {words}");
    }
}

#[test]
fn huge_promises_allocate_nothing() {
    let huge = idx(&[u32::MAX, u32::MAX, u32::MAX], &[0; 64]);
    assert!(error_of(&huge).contains("can hold at most 64"));
    assert!(error_of(&gz(&huge)).contains("is truncated or corrupt"));
    let large = idx(&[1 << 20, 1 << 10, 1 << 10], &[0; 64]);
    assert!(error_of(&gz(&large)).contains("is truncated or corrupt"));
}

#[test]
fn missing_files_and_folders_are_errors() {
    let dir = scratch();
    let text = Idx::labels(dir.path().join("none")).unwrap_err().to_string();
    assert!(text.contains("cannot read") && text.contains("none"), "{text}");
    let text = Idx::labels(dir.path()).unwrap_err().to_string();
    assert!(text.contains("is not a file"), "{text}");
}
