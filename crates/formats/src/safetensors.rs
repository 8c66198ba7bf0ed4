//! safetensors: one file, or shards with an index.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use polygrad_core::printable;
use polygrad_nn::files::{SafetensorsEntry, SafetensorsHeader, about_tensor};
use polygrad_tensor::{Error, ErrorKind, Result, Shape};
use serde_json::Value as Json;

use crate::file::{Contents, Entry, Skipped};
use crate::metadata::{Metadata, Value};
use crate::place::{Element, Layout, Place, Start};
use crate::source::{Source, damaged};

/// What the name of an index ends with.
const INDEX: &str = ".safetensors.index.json";
const ENDING: &str = ".safetensors";
/// The largest index that is read, and the most shards.
const MAX_INDEX: u64 = 100_000_000;
const MAX_SHARDS: usize = 10_000;

/// Whether a file that begins so is a safetensors file: a length of at most 4 GB, and JSON.
pub(crate) fn begins(start: &[u8]) -> bool {
    start.len() > 8 && start[4..8] == [0; 4] && start[8] == b'{'
}

pub(crate) fn open(source: &Source) -> Result<Contents> {
    file(source, 0)
}

fn file(source: &Source, number: usize) -> Result<Contents> {
    let header = SafetensorsHeader::read(source.from(0), source.length)?;
    let entry = |entry: SafetensorsEntry| {
        let shape = Shape::new(&entry.shape).map_err(|e| about_tensor(e, &entry.name))?;
        let element = match entry.element {
            Some(stored) => Element::Number(stored),
            None => Element::Unknown(entry.dtype),
        };
        Ok(Entry {
            name: entry.name,
            shape,
            place: Place {
                file: number,
                start: Start::At(entry.offset),
                element,
                big_endian: false,
                layout: Layout::Contiguous,
            },
        })
    };
    Ok(Contents {
        entries: header.tensors.into_iter().map(entry).collect::<Result<_>>()?,
        metadata: header
            .metadata
            .into_iter()
            .map(|(name, text)| (name, Value::Text(text)))
            .collect(),
        skipped: Vec::new(),
    })
}

/// The file that a folder means: its only index, or without one its only safetensors file.
///
/// # Errors
/// When there are several, or none.
pub(crate) fn in_folder(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|e| Error::io("read", folder, e))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: BTreeSet<String> = names
        .filter(|name| name.ends_with(INDEX) || name.ends_with(ENDING))
        .collect();
    for ending in [INDEX, ENDING] {
        let mut found = names.iter().filter(|name| name.ends_with(ending));
        match (found.next(), found.next()) {
            (None, _) => {}
            (Some(name), None) => return Ok(folder.join(name)),
            (Some(first), Some(second)) => {
                let message = format!(
                    "cannot read {}: it has several models, such as {} and {}",
                    printable(&folder.to_string_lossy()),
                    printable(first),
                    printable(second)
                );
                return Err(Error::new(ErrorKind::Format, message).with_hint("give one of the files"));
            }
        }
    }
    let message = format!(
        "cannot read {}: it is a folder without a {INDEX} or {ENDING} file",
        printable(&folder.to_string_lossy())
    );
    Err(Error::new(ErrorKind::Format, message).with_hint("give the file that holds the tensors"))
}

/// The files of an index, and what is in them. An index names files beside it, and no others.
pub(crate) fn open_sharded(index: &Source) -> Result<(Vec<Source>, Contents)> {
    if index.length > MAX_INDEX {
        return Err(damaged(format!(
            "it has {} bytes, and at most {MAX_INDEX} of JSON are read",
            index.length
        )));
    }
    let json: Json =
        serde_json::from_slice(&index.bytes(0, index.length)?).map_err(|e| damaged(format!("it is no JSON: {e}")))?;
    let Some(Json::Object(map)) = json.get("weight_map") else {
        return Err(damaged(
            "it is JSON, and has no weight_map, as the index of safetensors files has",
        ));
    };
    let mut shards: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, shard) in map {
        let plain = |shard: &&str| {
            let path = Path::new(shard);
            path.file_name().is_some_and(|name| name == path.as_os_str()) && !shard.contains(['/', '\\', ':'])
        };
        let shard = shard.as_str().filter(plain).ok_or_else(|| {
            damaged(format!(
                "it says that {} is in {}, which is no file beside it",
                printable(name),
                printable(&shard.to_string())
            ))
        })?;
        *shards.entry(shard).or_default() += 1;
    }
    if shards.len() > MAX_SHARDS {
        return Err(damaged(format!(
            "it has {} files, and at most {MAX_SHARDS} are read",
            shards.len()
        )));
    }
    let (mut sources, mut contents) = (Vec::new(), Contents::default());
    let mut metadata: Vec<(String, Value)> = Vec::new();
    let mut found: HashMap<String, usize> = HashMap::new();
    for (number, &shard) in shards.keys().enumerate() {
        let source = Source::open(&index.path.with_file_name(shard))?;
        let part = file(&source, number).map_err(|e| source.about(e))?;
        for entry in part.entries {
            if map.get(&entry.name).and_then(Json::as_str) == Some(shard) {
                found.insert(entry.name.clone(), number);
                contents.entries.push(entry);
            } else {
                contents.skipped.push(Skipped {
                    name: entry.name,
                    what: format!("in {}, and not said to be there by the index", printable(shard)),
                });
            }
        }
        let texts = part
            .metadata
            .iter()
            .filter(|(key, _)| !metadata.iter().any(|(known, _)| known == key));
        let texts: Vec<_> = texts.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        metadata.extend(texts);
        sources.push(source);
    }
    if let Some((name, shard)) = map.iter().find(|(name, _)| !found.contains_key(*name)) {
        return Err(damaged(format!(
            "tensor {} is not in {}, where the index says it is",
            printable(name),
            printable(&shard.to_string())
        )));
    }
    contents.metadata = metadata.into_iter().collect::<Metadata>();
    Ok((sources, contents))
}
