//! Sharded models: several files, and an index of which tensor is in which.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use polygrad_core::printable;
use polygrad_tensor::{Error, ErrorKind, Result};
use serde_json::{Map, Value as Json};

use crate::file::{Contents, KNOWN, Skipped};
use crate::metadata::{Metadata, Value};
use crate::source::{Source, damaged};

/// Endings of the main file in a folder, in order of preference.
const ENDINGS: [&str; 3] = [".safetensors.index.json", ".safetensors", ".bin.index.json"];
/// The most bytes of an index, and the most shards.
const MAX_INDEX: u64 = 1 << 25;
const MAX_SHARDS: usize = 10_000;

/// The main file of a folder: its only index, or without an index its only safetensors file.
///
/// # Errors
/// When there are several candidates, or none.
pub(crate) fn in_folder(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|e| Error::io("read", folder, e))?;
    let names: BTreeSet<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let shown = folder.to_string_lossy();
    let shown = printable(&shown);
    for ending in ENDINGS {
        let mut found = names.iter().filter(|name| name.ends_with(ending));
        match (found.next(), found.next()) {
            (None, _) => {}
            (Some(name), None) => return Ok(folder.join(name)),
            (Some(first), Some(second)) => {
                let (first, second) = (printable(first), printable(second));
                let message = format!("cannot read {shown}: it has several models, such as {first} and {second}");
                return Err(Error::new(ErrorKind::Format, message).with_hint("give one of the files"));
            }
        }
    }
    let message = format!(
        "cannot read {shown}: it is a folder without a {} file",
        ENDINGS.join(" or ")
    );
    Err(Error::new(ErrorKind::Format, message).with_hint("give the file that holds the tensors"))
}

/// The shards of an index with their contents, each read with `read`. An index may only name files beside it.
pub(crate) fn open(index: &Source, read: impl Fn(&Source) -> Result<Contents>) -> Result<(Vec<Source>, Contents)> {
    let map = weight_map(index).map_err(|e| index.about(e))?;
    let shards = shards(&map).map_err(|e| index.about(e))?;
    let (mut sources, mut contents) = (Vec::new(), Contents::default());
    let mut metadata: Vec<(String, Value)> = Vec::new();
    let mut found: HashSet<String> = HashSet::new();
    for (number, &shard) in shards.iter().enumerate() {
        let source = Source::open(&index.path.with_file_name(shard))?;
        let part = read(&source).map_err(|e| source.about(e))?;
        for mut entry in part.entries {
            if map.get(&entry.name).and_then(Json::as_str) == Some(shard) {
                entry.place.file = number;
                found.insert(entry.name.clone());
                contents.entries.push(entry);
            } else {
                contents.skipped.push(Skipped {
                    name: entry.name,
                    what: format!("in {}, and not said to be there by the index", printable(shard)),
                    holds_tensors: true,
                });
            }
        }
        contents.skipped.extend(part.skipped);
        for (key, value) in part.metadata.iter() {
            if !metadata.iter().any(|(known, _)| known == key) {
                metadata.push((key.to_owned(), value.clone()));
            }
        }
        sources.push(source);
    }
    if let Some((name, shard)) = map.iter().find(|(name, _)| !found.contains(*name)) {
        let (name, shard) = (printable(name), shard.to_string());
        let what = format!("tensor {name} is not in {}, where it says it is", printable(&shard));
        return Err(index.about(damaged(what)));
    }
    contents.metadata = metadata.into_iter().collect::<Metadata>();
    Ok((sources, contents))
}

/// Maps tensors to files.
fn weight_map(index: &Source) -> Result<Map<String, Json>> {
    if index.length > MAX_INDEX {
        let what = format!(
            "it has {} bytes, and at most {MAX_INDEX} of JSON are read",
            index.length
        );
        return Err(damaged(what));
    }
    const KEY: &str = "weight_map";
    let bytes = index.bytes(0, index.length)?;
    if !bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()) {
        let what = "it begins as JSON does, and has no weight_map, as the index of a model in shards has";
        return Err(Error::new(ErrorKind::Format, what).with_hint(KNOWN));
    }
    let mut json: Json = serde_json::from_slice(&bytes).map_err(|e| damaged(format!("it is no JSON: {e}")))?;
    match json.get_mut(KEY).map(Json::take) {
        Some(Json::Object(map)) => Ok(map),
        _ => Err(damaged("its weight_map does not name a file for each tensor")),
    }
}

/// The files that contain tensors.
fn shards(map: &Map<String, Json>) -> Result<BTreeSet<&str>> {
    let plain = |shard: &&str| {
        let path = Path::new(shard);
        path.file_name().is_some_and(|name| name == path.as_os_str()) && !shard.contains(['/', '\\', ':'])
    };
    let mut shards = BTreeSet::new();
    for (name, shard) in map {
        let file = shard.as_str().filter(plain).ok_or_else(|| {
            let (name, shard) = (printable(name), shard.to_string());
            damaged(format!(
                "it says that {name} is in {}, which is no file beside it",
                printable(&shard)
            ))
        })?;
        shards.insert(file);
    }
    match shards.len() <= MAX_SHARDS {
        true => Ok(shards),
        false => Err(damaged(format!(
            "it has {} files, and at most {MAX_SHARDS} are read",
            shards.len()
        ))),
    }
}
