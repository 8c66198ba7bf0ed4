//! Tensors whose values are in another file beside the model's.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use polygrad_core::{Error, Result};

use super::budget::no_memory;
use super::{malformed, read};
use crate::proto::{EXTERNAL, GraphProto, NodeProto, TensorProto};

/// The files beside a model file that have values of its tensors, in the order of their names. The values are not read.
///
/// # Errors
/// If a file cannot be read or is no model; if values would be outside the model's folder.
pub fn external_files(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let path = path.as_ref();
    let find = || {
        let (proto, folder) = (read::decoded(read::bytes_of(path)?)?, Folder::of(path)?);
        let mut found = BTreeSet::new();
        let mut take = |tensor: &TensorProto| {
            if tensor.data_location == EXTERNAL {
                found.insert(folder.inside(location(tensor)?)?);
            }
            Ok(())
        };
        if let Some(graph) = &proto.graph {
            each_of_graph(graph, &mut take)?;
        }
        for function in &proto.functions {
            each_of_nodes(&function.node, &mut take)?;
        }
        Ok(found.into_iter().collect())
    };
    find().map_err(|e: Error| e.in_module(path.display().to_string()))
}

fn each_of_graph(graph: &GraphProto, take: &mut impl FnMut(&TensorProto) -> Result<()>) -> Result<()> {
    graph.initializer.iter().try_for_each(&mut *take)?;
    each_of_nodes(&graph.node, take)
}

fn each_of_nodes(nodes: &[NodeProto], take: &mut impl FnMut(&TensorProto) -> Result<()>) -> Result<()> {
    for attribute in nodes.iter().flat_map(|node| &node.attribute) {
        let mut tensors = attribute.t.as_deref().into_iter().chain(&attribute.tensors);
        tensors.try_for_each(&mut *take)?;
        let graphs = attribute.g.as_deref().into_iter().chain(&attribute.graphs);
        for graph in graphs {
            each_of_graph(graph, take)?;
        }
    }
    Ok(())
}

fn entry<'a>(tensor: &'a TensorProto, key: &str) -> Option<&'a str> {
    let mut found = tensor.external_data.iter().filter(|entry| entry.key == key);
    found.next().map(|entry| entry.value.as_str())
}

fn location(tensor: &TensorProto) -> Result<&str> {
    entry(tensor, "location").ok_or_else(|| malformed("the external data has no location"))
}

/// The folder in which external data may be.
pub(super) struct Folder {
    /// Without symbolic links.
    path: PathBuf,
}

impl Folder {
    pub(super) fn of(model: &Path) -> Result<Self> {
        let parent = model.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let path = parent.canonicalize().map_err(|e| Error::io("open", parent, e))?;
        Ok(Self { path })
    }

    /// The bytes of a tensor that must have `needed` bytes. `take` reserves memory once the file is known to have them.
    ///
    /// # Errors
    /// That of `take`; when the location is not a plain path inside the folder, leads out of it by a link, or does not
    /// hold the bytes needed.
    pub(super) fn read(&self, tensor: &TensorProto, needed: usize, take: impl FnOnce() -> Result<()>) -> Result<Bytes> {
        let number = |key: &str| match entry(tensor, key) {
            None => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| malformed(format!("{key} of the external data is {text:?}, not a number"))),
        };
        let location = location(tensor)?;
        let offset = number("offset")?.unwrap_or(0);
        let path = self.inside(location)?;
        // Checked before opening, since opening a pipe would block.
        let metadata = path.metadata().map_err(|e| Error::io("read", &path, e))?;
        if !metadata.is_file() {
            return Err(malformed(format!("external data {location:?} is no file")));
        }
        let length = number("length")?.unwrap_or(needed as u64);
        if length != needed as u64 {
            return Err(malformed(format!(
                "the external data is said to be {length} bytes long, the shape needs {needed}"
            )));
        }
        if offset.checked_add(length).is_none_or(|end| end > metadata.len()) {
            return Err(malformed(format!(
                "{length} bytes at {offset} lie outside {location:?} of {} bytes",
                metadata.len()
            ))
            .with_hint("the file is truncated, or belongs to another model"));
        }
        take()?;
        let mut file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        file.seek(SeekFrom::Start(offset))
            .map_err(|e| Error::io("read", &path, e))?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(needed).map_err(|_| no_memory(needed))?;
        file.take(length)
            .read_to_end(&mut bytes)
            .map_err(|e| Error::io("read", &path, e))?;
        Ok(bytes.into())
    }

    fn inside(&self, location: &str) -> Result<PathBuf> {
        let outside = || {
            malformed(format!("external data {location:?} is not inside the model's folder"))
                .with_hint("only files in the folder of the model are read")
        };
        let relative = Path::new(location);
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        // A backslash is a separator on some systems only, and a file must mean the same on all.
        if location.is_empty() || location.contains('\\') || !relative.components().all(plain) {
            return Err(outside());
        }
        let path = self.path.join(relative);
        let path = path.canonicalize().map_err(|e| Error::io("open", &path, e))?;
        if path.starts_with(&self.path) {
            Ok(path)
        } else {
            Err(outside())
        }
    }
}
