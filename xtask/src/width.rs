//! Limits comments and pages to 120 columns, since `rustfmt` leaves both as they are, and decisions to 200 words.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo;

const WIDTH: usize = 120;

/// Pages written by programs, and the list of pages, in which a link is one line.
const LONG_PAGES: [&str; 3] = ["docs/SUMMARY.md", "docs/benchmarks.md", "docs/ops.md"];

/// Files with this extension below a folder, without build outputs.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
            files(&path, extension, found);
        } else if path.is_file() && path.extension().is_some_and(|is| is == extension) {
            found.push(path);
        }
    }
}

/// `FILE:LINE: COLUMNS` of the lines that are too long, among those for which `is_meant` returns true.
fn too_long(path: &Path, is_meant: &mut dyn FnMut(&str) -> bool) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().enumerate();
    let meant = lines.filter(|(_, line)| is_meant(line));
    let columns = meant.map(|(at, line)| (at + 1, line.chars().count()));
    let long = columns.filter(|(_, columns)| *columns > WIDTH);
    long.map(|(at, columns)| format!("{}:{at}: {columns}", path.display()))
        .collect()
}

#[test]
fn comments_have_at_most_120_columns() {
    let checkout = cargo::checkout();
    let mut sources = Vec::new();
    files(&checkout, "rs", &mut sources);
    let mut wrong = Vec::new();
    for path in sources {
        wrong.extend(too_long(&path, &mut |line| line.trim_start().starts_with("//")));
    }
    assert!(wrong.is_empty(), "wrap these comments:\n{}", wrong.join("\n"));
}

#[test]
fn pages_have_at_most_120_columns() {
    let checkout = cargo::checkout();
    let mut pages = Vec::new();
    for folder in ["docs", "backends", "crates"] {
        files(&checkout.join(folder), "md", &mut pages);
    }
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| checkout.join(page)));
    let mut wrong = Vec::new();
    for path in pages {
        let inside = path.strip_prefix(&checkout).unwrap();
        if LONG_PAGES.iter().any(|long| inside.starts_with(long)) {
            continue;
        }
        let mut code = false;
        wrong.extend(too_long(&path, &mut |line| {
            let line = line.trim_start();
            code ^= line.starts_with("```");
            // A table's row is one line.
            !code && !line.starts_with('|')
        }));
    }
    assert!(wrong.is_empty(), "wrap these lines:\n{}", wrong.join("\n"));
}

#[test]
fn decisions_have_at_most_200_words_and_are_listed() {
    let checkout = cargo::checkout();
    let folder = checkout.join("docs/decisions");
    let lists =
        [checkout.join("docs/SUMMARY.md"), folder.join("README.md")].map(|list| fs::read_to_string(list).unwrap());
    let mut decisions = Vec::new();
    files(&folder, "md", &mut decisions);
    let mut wrong = Vec::new();
    for path in decisions {
        let name = path.file_name().unwrap().to_string_lossy();
        if name == "README.md" {
            continue;
        }
        let words = fs::read_to_string(&path).unwrap().split_whitespace().count();
        if words > 200 {
            wrong.push(format!("{name} has {words} words"));
        }
        if lists.iter().any(|list| !list.contains(&*name)) {
            wrong.push(format!(
                "{name} is missing in docs/SUMMARY.md or docs/decisions/README.md"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "shorten or list these decisions:\n{}",
        wrong.join("\n")
    );
}
