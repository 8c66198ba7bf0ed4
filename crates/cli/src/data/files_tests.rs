//! Folders as the data sets are published, and broken ones.

use std::path::Path;

use polygrad::data::Dataset as _;

use super::files::find;
use super::testing::{idx, scratch};

/// Writes a set of `train` and `test` images of 2 × 3 pixels with the labels 0, 1, 2, 0, 1, 2 …
fn write_set(folder: &Path, prefix: &str, test_name: &str, train: usize, test: usize) {
    for (split, count) in [("train", train), (test_name, test)] {
        let labels: Vec<u8> = (0..count).map(|i| (i % 3) as u8).collect();
        let pixels: Vec<u8> = (0..count * 6).map(|i| i as u8).collect();
        let n = count as u32;
        let at = |role: &str| folder.join(format!("{prefix}{split}-{role}-ubyte"));
        std::fs::write(at("images-idx3"), idx(&[n, 2, 3], &pixels)).unwrap();
        std::fs::write(at("labels-idx1"), idx(&[n], &labels)).unwrap();
    }
}

fn error_of(folder: &Path, name: &str) -> String {
    find(folder, name)
        .and_then(|files| files.load(name).map(|_| ()))
        .unwrap_err()
        .to_string()
}

#[test]
fn loads_a_set_and_names_its_classes() {
    let dir = scratch();
    write_set(dir.path(), "", "t10k", 7, 4);
    let set = find(dir.path(), "fashion-mnist")
        .unwrap()
        .load("fashion-mnist")
        .unwrap();
    assert_eq!(*set.train.labels, [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!((set.test.images.len(), set.test.shape[1], set.test.shape[2]), (4, 2, 3));
    assert_eq!(set.classes.len(), 10);
    assert_eq!(set.classes[9], "Ankle boot");
    let set = find(dir.path(), "shapes").unwrap().load("shapes").unwrap();
    assert_eq!(set.classes, ["0", "1", "2"]);
}

#[test]
fn emnist_is_chosen_by_name_turned_and_lettered() {
    let dir = scratch();
    write_set(dir.path(), "emnist-balanced-", "test", 3, 3);
    write_set(dir.path(), "emnist-letters-", "test", 6, 3);
    std::fs::write(
        dir.path().join("emnist-letters-mapping.txt"),
        "0 48\n1 65 97\n2 66 98\n",
    )
    .unwrap();
    let set = find(dir.path(), "emnist-letters")
        .unwrap()
        .load("emnist-letters")
        .unwrap();
    assert_eq!(set.train.images.len(), 6);
    assert_eq!(set.classes, ["0", "Aa", "Bb"]);
    assert_eq!((set.train.shape[1], set.train.shape[2]), (3, 2));
    assert_eq!(set.train.images.example(0).unwrap().pixels(), [0, 3, 1, 4, 2, 5]);

    let text = error_of(dir.path(), "mnist");
    assert!(
        text.contains("several data sets") && text.contains("emnist-balanced, emnist-letters"),
        "{text}"
    );

    std::fs::write(dir.path().join("emnist-letters-mapping.txt"), "0 48\n1 x\n").unwrap();
    let text = error_of(dir.path(), "emnist-letters");
    assert!(text.contains("mapping.txt, line 2"), "{text}");
}

#[test]
fn dotted_and_compressed_names_are_known() {
    let dir = scratch();
    write_set(dir.path(), "", "t10k", 3, 3);
    for (role, dotted) in [
        ("train-images-idx3", "train-images.idx3"),
        ("t10k-labels-idx1", "t10k-labels.idx1"),
    ] {
        let at = |stem: &str| dir.path().join(format!("{stem}-ubyte"));
        std::fs::rename(at(role), at(dotted)).unwrap();
    }
    // A damaged .gz beside the plain file shows which of the two is read.
    std::fs::write(dir.path().join("train-labels-idx1-ubyte.gz"), "junk").unwrap();
    let set = find(dir.path(), "mnist").unwrap().load("mnist").unwrap();
    assert_eq!(set.train.images.len(), 3);
}

#[test]
fn folders_gone_wrong_are_told_apart() {
    let dir = scratch();
    let missing = dir.path().join("nowhere");
    assert!(error_of(&missing, "mnist").contains("cannot read the folder"));
    assert!(error_of(dir.path(), "mnist").contains("has no IDX files"));

    write_set(dir.path(), "", "t10k", 3, 3);
    let labels = dir.path().join("t10k-labels-idx1-ubyte");
    std::fs::write(&labels, idx(&[2], &[0, 1])).unwrap();
    let text = error_of(dir.path(), "mnist");
    assert!(
        text.contains("holds 3 images") && text.contains("holds 2 labels"),
        "{text}"
    );

    std::fs::write(&labels, idx(&[3], &[0, 1, 77])).unwrap();
    let text = error_of(dir.path(), "mnist");
    assert!(
        text.contains("the label 77 at index 2") && text.contains("10 classes"),
        "{text}"
    );

    let images = dir.path().join("t10k-images-idx3-ubyte");
    std::fs::write(&images, idx(&[3, 2, 2], &[0; 12])).unwrap();
    std::fs::write(&labels, idx(&[3], &[0, 1, 2])).unwrap();
    let text = error_of(dir.path(), "mnist");
    assert!(
        text.contains("differ in size") && text.contains("[1, 2, 3]") && text.contains("[1, 2, 2]"),
        "{text}"
    );

    std::fs::remove_file(&labels).unwrap();
    let text = error_of(dir.path(), "mnist");
    assert!(text.contains("has no file t10k-labels-idx1-ubyte"), "{text}");
}
