//! Pictures of known content, and files that are not pictures.

use std::path::PathBuf;

use png::{BitDepth, ColorType, Encoder};

use super::*;

fn png(color: ColorType, depth: BitDepth, cols: u32, rows: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, cols, rows);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == ColorType::Indexed {
        encoder.set_palette(vec![0, 0, 0, 255, 255, 255]);
    }
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(data).unwrap();
    writer.finish().unwrap();
    bytes
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shoe.png");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn loaded(bytes: &[u8], channels: usize, rows: usize, cols: usize) -> Picture {
    let (_dir, path) = file(bytes);
    load(&path, channels, rows, cols, false).unwrap()
}

fn close(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() < 1e-3, "{got:?} is not {want:?}");
    }
}

#[test]
fn the_right_size_passes_unchanged_and_inverts() {
    let bytes = png(ColorType::Grayscale, BitDepth::Eight, 2, 2, &[0, 10, 200, 255]);
    close(&loaded(&bytes, 1, 2, 2).values, &[0.0, 10.0, 200.0, 255.0]);
    let (_dir, path) = file(&bytes);
    close(&load(&path, 1, 2, 2, true).unwrap().values, &[255.0, 245.0, 55.0, 0.0]);
}

#[test]
fn shrinking_averages_areas() {
    let data = [0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 100, 100, 0, 0, 100, 100];
    let bytes = png(ColorType::Grayscale, BitDepth::Eight, 4, 4, &data);
    close(&loaded(&bytes, 1, 2, 2).values, &[5.0, 9.0, 0.0, 100.0]);
    // Three columns into two: the middle one is shared.
    let bytes = png(
        ColorType::Grayscale,
        BitDepth::Eight,
        3,
        3,
        &[0, 30, 90, 0, 30, 90, 0, 30, 90],
    );
    close(&loaded(&bytes, 1, 2, 2).values, &[10.0, 70.0, 10.0, 70.0]);
}

#[test]
fn enlarging_repeats_and_other_shapes_are_padded_with_their_border() {
    let bytes = png(ColorType::Grayscale, BitDepth::Eight, 1, 1, &[40]);
    close(&loaded(&bytes, 1, 2, 2).values, &[40.0; 4]);
    let bytes = png(ColorType::Grayscale, BitDepth::Eight, 2, 1, &[10, 30]);
    close(&loaded(&bytes, 1, 2, 2).values, &[15.0, 25.0, 15.0, 25.0]);
}

#[test]
fn every_kind_of_colour_becomes_grey() {
    let rgb = png(ColorType::Rgb, BitDepth::Eight, 1, 1, &[200, 100, 50]);
    close(&loaded(&rgb, 1, 1, 1).values, &[124.2]);
    close(&loaded(&rgb, 3, 1, 1).values, &[200.0, 100.0, 50.0]);
    let rgba = png(ColorType::Rgba, BitDepth::Eight, 1, 1, &[200, 100, 50, 51]);
    close(&loaded(&rgba, 1, 1, 1).values, &[24.84]);
    let grey_alpha = png(ColorType::GrayscaleAlpha, BitDepth::Eight, 1, 1, &[100, 0]);
    close(&loaded(&grey_alpha, 1, 1, 1).values, &[0.0]);
    let deep = png(ColorType::Grayscale, BitDepth::Sixteen, 1, 1, &[0x80, 0xff]);
    close(&loaded(&deep, 1, 1, 1).values, &[128.0]);
    let bits = png(ColorType::Grayscale, BitDepth::One, 2, 1, &[0b0100_0000]);
    close(&loaded(&bits, 1, 1, 2).values, &[0.0, 255.0]);
    let palette = png(ColorType::Indexed, BitDepth::One, 2, 1, &[0b1000_0000]);
    close(&loaded(&palette, 1, 1, 2).values, &[255.0, 0.0]);
    close(&loaded(&deep, 3, 1, 1).values, &[128.0; 3]);
}

#[test]
fn a_light_ground_is_noticed() {
    let dark = png(
        ColorType::Grayscale,
        BitDepth::Eight,
        3,
        3,
        &[0, 0, 0, 0, 255, 0, 0, 0, 0],
    );
    assert!(!loaded(&dark, 1, 3, 3).light_ground);
    let (_dir, path) = file(&dark);
    assert!(load(&path, 1, 3, 3, true).unwrap().light_ground);
}

#[test]
fn what_is_no_png_is_told() {
    let whole = png(ColorType::Grayscale, BitDepth::Eight, 64, 64, &[77; 4096]);
    let mut flipped = whole.clone();
    flipped[20] ^= 0x10;
    // A header that declares 60,000 × 60,000 RGBA pixels, with a correct checksum.
    let mut huge = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\xea\x60\0\0\xea\x60\x08\x06\0\0\0".to_vec();
    let mut crc = flate2::Crc::new();
    crc.update(&huge[12..]);
    huge.extend(crc.sum().to_be_bytes());
    huge.extend(b"\0\0\0\0IDAT\x35\xaf\x06\x1e");
    for (bytes, words) in [
        (&b""[..], "is neither a PNG nor a JPEG file"),
        (b"\xff\xd8\xff\xe0 a JPEG", "JPEG file"),
        (b"II*\0 a TIFF", "is a TIFF file"),
        (&whole[..40], "is no whole PNG file"),
        (&whole[..whole.len() - 20], "is no whole PNG file"),
        (&flipped, "is no whole PNG file"),
        (&huge, "is larger than 128 MiB"),
    ] {
        let (_dir, path) = file(bytes);
        let text = load(&path, 1, 28, 28, false).unwrap_err().to_string();
        assert!(text.contains("shoe.png") && text.contains("fix: give a PNG"), "{text}");
        assert!(text.contains(words), "{text}\nshould contain {words}");
    }
    let text = load(Path::new("/nowhere.png"), 1, 28, 28, false)
        .unwrap_err()
        .to_string();
    assert!(text.contains("cannot read /nowhere.png"), "{text}");
}
