//! The code on the page "Bring your own backend" exists in this repository.

use std::fs;
use std::path::Path;

/// Where the page's code comes from.
const SOURCES: [&str; 5] = [
    "examples/backend/Cargo.toml",
    "examples/backend/src",
    "examples/backend/tests",
    "crates/core/src/dyn_backend.rs",
    "conformance/tests",
];

fn read(path: &Path, into: &mut Vec<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            read(&entry.unwrap().path(), into);
        }
    } else {
        into.push(plain(&fs::read_to_string(path).unwrap()));
    }
}

/// The text without indentation.
fn plain(text: &str) -> String {
    text.lines().map(|line| line.trim_start().to_owned() + "\n").collect()
}

/// The contents of the page's code blocks in a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let after = page.split(fence.as_str()).skip(1);
    after.map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn every_excerpt_stands_in_a_file_of_the_repository() {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let mut sources = Vec::new();
    SOURCES.iter().for_each(|source| read(&root.join(source), &mut sources));
    let page = fs::read_to_string(root.join("docs/backend.md")).unwrap();
    let excerpts = [blocks(&page, "rust"), blocks(&page, "toml")].concat();
    assert!(excerpts.len() >= 8, "the page has {} excerpts", excerpts.len());
    for excerpt in excerpts {
        // A line with `…` stands for omitted code.
        for part in plain(excerpt).split("…\n") {
            let there = sources.iter().any(|source| source.contains(part));
            assert!(there, "docs/backend.md shows code that is nowhere:\n{part}");
        }
    }
}
