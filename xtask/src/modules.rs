//! Checks that no crate uses a file of another crate as a module: code that several crates need belongs in a crate of
//! its own, such as `polygrad-testing`.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::cargo::checkout;

const FUZZ: &str = "it drives the server as the tests of its crate do, which is the folder above";

/// Exceptions, and the reasons for them.
const EXCEPTIONS: [(&str, &str); 4] = [
    (
        "benches/peers/protocol/src/lib.rs",
        "peers begin with the numbers of our workloads, and are built without any crate of ours",
    ),
    (
        "benches/workloads/tests/steps.rs",
        "the floor's table is compared with ours, and the floor is a program of another workspace",
    ),
    ("crates/serve/fuzz/targets/grpc.rs", FUZZ),
    ("crates/serve/fuzz/targets/http.rs", FUZZ),
];

#[test]
fn no_module_is_a_file_of_another_crate() {
    let mut files = Vec::new();
    sources(&checkout(), &mut files);
    assert!(files.len() > 500, "{} files", files.len());
    let mut strangers = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let paths = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        let folder = file.parent().unwrap();
        if paths
            .into_iter()
            .any(|path| home(&plain(&folder.join(path))) != home(file))
        {
            strangers.push(file.strip_prefix(checkout()).unwrap().display().to_string());
        }
    }
    strangers.sort();
    assert_eq!(
        strangers,
        EXCEPTIONS.map(|(file, _)| file),
        "make a crate of what they share"
    );
}

/// All Rust files below a folder.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The folder of the crate that a file belongs to.
fn home(file: &Path) -> Option<&Path> {
    file.ancestors()
        .skip(1)
        .find(|folder| folder.join("Cargo.toml").exists())
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}
