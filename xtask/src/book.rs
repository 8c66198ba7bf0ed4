//! The book: mdBook over docs/, and checks of its links.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::{cache, cargo};

const VERSION: &str = "0.5.4";
const REPOSITORY: &str = "https://github.com/polygrad/polygrad/blob/main";

/// `cargo xtask book`: checks the links, and builds target/book/html.
///
/// # Errors
/// If a link is broken, or mdBook cannot be installed or fails.
pub(crate) fn run() -> Result<(), String> {
    let checkout = cargo::checkout();
    check(&checkout)?;
    let mdbook = mdbook()?;
    let book = checkout.join("target/book");
    let source = book.join("src");
    if source.exists() {
        fs::remove_dir_all(&source).map_err(|e| told(&source, &e))?;
    }
    copy(&checkout, &checkout.join("docs"), &source)?;
    let status = Command::new(&mdbook)
        .arg("build")
        .arg(&source)
        .arg("--dest-dir")
        .arg(book.join("html"))
        .status()
        .map_err(|e| told(&mdbook, &e))?;
    if !status.success() {
        return Err(format!("mdbook ended with {status}"));
    }
    println!("{}", book.join("html/index.html").display());
    Ok(())
}

/// The path of the program, which is first installed if it is not in the cache folder.
fn mdbook() -> Result<PathBuf, String> {
    let root = cache::folder()?.join(format!("mdbook-{VERSION}"));
    let program = root.join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX));
    if !program.exists() {
        let (root, version) = (root.display().to_string(), format!("mdbook@{VERSION}"));
        let line = [
            "install",
            "--locked",
            "--no-default-features",
            "--features",
            "search",
            "--root",
            &root,
            &version,
        ];
        cargo::run(&line, &[]).map_err(|e| {
            format!("{e}\n  mdBook is needed to build the book, and could not be installed from crates.io\n  fix: put mdbook {VERSION} at {}", program.display())
        })?;
    }
    Ok(program)
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Copies a folder. In pages, links out of the book are turned into links to the repository.
fn copy(checkout: &Path, from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|e| told(to, &e))?;
    for entry in fs::read_dir(from).map_err(|e| told(from, &e))? {
        let path = entry.map_err(|e| told(from, &e))?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(checkout, &path, &target)?;
        } else if path.extension().is_some_and(|e| e == "md") {
            let mut text = fs::read_to_string(&path).map_err(|e| told(&path, &e))?;
            for link in links(&text) {
                let place = resolved(from, link.split('#').next().unwrap_or_default());
                if let (false, Ok(inside)) = (
                    link.starts_with('#') || place.starts_with(checkout.join("docs")),
                    place.strip_prefix(checkout),
                ) {
                    let outside = format!("]({REPOSITORY}/{})", inside.display());
                    text = text.replace(&format!("]({link})"), &outside);
                }
            }
            fs::write(&target, text).map_err(|e| told(&target, &e))?;
        } else {
            fs::copy(&path, &target).map_err(|e| told(&target, &e))?;
        }
    }
    Ok(())
}

/// A relative path from a folder, without `..`.
fn resolved(folder: &Path, link: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// The targets of all links and pictures that are not addresses, outside code.
fn links(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    for part in prose.split("](").skip(1) {
        let link = part.split(')').next().unwrap_or_default();
        if !link.is_empty() && !link.contains("://") && !link.contains(char::is_whitespace) {
            found.insert(link.to_owned());
        }
    }
    found
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if let (false, true, Some((_, heading))) = (code, line.starts_with('#'), line.split_once(' ')) {
            let slug: String = heading
                .to_lowercase()
                .chars()
                .filter_map(|c| match c {
                    ' ' => Some('-'),
                    '-' | '_' => Some(c),
                    c if c.is_alphanumeric() => Some(c),
                    _ => None,
                })
                .collect();
            found.insert(slug);
        }
    }
    found
}

/// All pages below a folder.
fn pages(folder: &Path, found: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|e| told(folder, &e))? {
        let path = entry.map_err(|e| told(folder, &e))?.path();
        if path.is_dir() {
            pages(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "md") {
            found.insert(path);
        }
    }
    Ok(())
}

/// The `NOTES.md` of all crates that have one.
fn notes(checkout: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for folder in ["backends", "crates"].map(|folder| checkout.join(folder)) {
        for entry in fs::read_dir(&folder).map_err(|e| told(&folder, &e))? {
            let page = entry.map_err(|e| told(&folder, &e))?.path().join("NOTES.md");
            if page.exists() {
                found.push(page);
            }
        }
    }
    Ok(found)
}

/// Checks that every page of docs/ is listed in SUMMARY.md, and that every relative link in docs/, the top-level pages
/// and the notes of the crates leads to a file and, if it has an anchor, to a heading.
///
/// # Errors
/// The problems, a line for each.
fn check(checkout: &Path) -> Result<(), String> {
    let docs = checkout.join("docs");
    let summary = docs.join("SUMMARY.md");
    let mut all = BTreeSet::new();
    pages(&docs, &mut all)?;
    let listed = links(&fs::read_to_string(&summary).map_err(|e| told(&summary, &e))?);
    let mut wrong: Vec<String> = all
        .iter()
        .filter(|page| **page != summary && !listed.iter().any(|link| docs.join(link) == **page))
        .map(|page| format!("{} is not listed in docs/SUMMARY.md", page.display()))
        .collect();
    all.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| checkout.join(page)));
    all.extend(notes(checkout)?);
    for page in &all {
        let text = fs::read_to_string(page).map_err(|e| told(page, &e))?;
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => resolved(page.parent().unwrap_or(checkout), file),
            };
            if !target.exists() {
                wrong.push(format!("{}: {link} leads nowhere", page.display()));
            } else if !anchor.is_empty() && target.extension().is_some_and(|e| e == "md") {
                let there = fs::read_to_string(&target).map_err(|e| told(&target, &e))?;
                if !anchors(&there).contains(anchor) {
                    wrong.push(format!("{}: {link} names no heading", page.display()));
                }
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_listed_and_every_link_leads_somewhere() {
        check(&cargo::checkout()).unwrap();
    }

    /// The features in a crate's manifest, except `default`.
    fn features(manifest: &str) -> BTreeSet<String> {
        let manifest = fs::read_to_string(cargo::checkout().join(manifest)).unwrap();
        let (_, features) = manifest.split_once("[features]\n").unwrap();
        let features = features.split("\n[").next().unwrap().lines();
        let names = features.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
        names.filter(|name| *name != "default").map(str::to_owned).collect()
    }

    /// The names in the first column of the table below a heading of docs/tour/start.md.
    fn named(heading: &str) -> BTreeSet<String> {
        let page = fs::read_to_string(cargo::checkout().join("docs/tour/start.md")).unwrap();
        let (_, table) = page.split_once(&format!("\n## {heading}\n")).unwrap();
        let table = table.split("\n## ").next().unwrap();
        let cells = table.lines().filter(|line| line.starts_with("| `")).map(|row| {
            let cell = row.split(" | ").next().unwrap_or_default();
            cell.split('`').skip(1).step_by(2)
        });
        cells.flatten().map(str::to_owned).collect()
    }

    #[test]
    fn every_feature_is_in_the_table_of_features() {
        assert_eq!(named("Features"), features("crates/polygrad/Cargo.toml"));
        assert_eq!(named("Features of the command"), features("crates/cli/Cargo.toml"));
    }

    #[test]
    fn every_decision_has_its_head_and_at_most_200_words() {
        let folder = cargo::checkout().join("docs/decisions");
        let index = links(&fs::read_to_string(folder.join("README.md")).unwrap());
        let mut files = BTreeSet::new();
        pages(&folder, &mut files).unwrap();
        files.remove(&folder.join("README.md"));
        let mut numbers = BTreeSet::new();
        for file in &files {
            let name = file.file_name().unwrap().to_str().unwrap();
            let (number, title) = name.split_once('-').unwrap();
            let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(
                number.len() == 3 && number.bytes().all(|b| b.is_ascii_digit()),
                "{name}: three digits"
            );
            assert!(
                title.strip_suffix(".md").unwrap().chars().all(kebab),
                "{name}: words with hyphens"
            );
            assert!(numbers.insert(number.to_owned()), "{name}: the number is taken");
            assert!(index.contains(name), "{name}: not in docs/decisions/README.md");

            let text = fs::read_to_string(file).unwrap();
            let mut lines = text.lines();
            let head = lines.next().unwrap();
            assert!(
                head.starts_with(&format!("# {number}. ")),
                "{name}: {head:?} is not its head"
            );
            assert_eq!(lines.next(), Some(""), "{name}: after the head");
            let status = lines.next().unwrap();
            let date = status.split(" · ").nth(1).and_then(|part| part.strip_prefix("Date: "));
            let is_date = |date: &str| {
                let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
                date.split('-').map(str::len).eq([4, 2, 2]) && date.split('-').all(digits)
            };
            assert!(
                status.starts_with("Status: ") && date.is_some_and(is_date),
                "{name}: {status:?} is not `Status: accepted · Date: YYYY-MM-DD`"
            );
            let words = lines.flat_map(str::split_whitespace).count();
            assert!((1..=200).contains(&words), "{name}: {words} words");
        }
        assert!(!files.is_empty());
    }

    #[test]
    fn headings_are_named_as_on_github() {
        let names = anchors("# Layers, models, and PyTorch's weights\n```\n# code\n```\n## `a_b` – c\n");
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["a_b--c", "layers-models-and-pytorchs-weights"]
        );
    }

    #[test]
    fn links_in_code_and_addresses_are_left_out() {
        let text = "[a](b.md#c) ![p](p.png) [x](https://x.org)\n```\n[d](e.md)\n```\n";
        assert_eq!(links(text).into_iter().collect::<Vec<_>>(), ["b.md#c", "p.png"]);
    }
}
