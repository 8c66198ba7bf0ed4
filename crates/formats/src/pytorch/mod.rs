//! PyTorch's checkpoints: zip archives since 1.6, and the format before that.
//!
//! Source: PyTorch's `torch/serialization.py`.

mod legacy;
mod tree;

pub(crate) use legacy::{begins as begins_legacy, open as open_legacy};
pub(crate) use tree::UNNAMED;

use std::collections::HashMap;

use polygrad_core::printable;
use polygrad_nn::files::about_tensor;
use polygrad_tensor::{Error, ErrorKind, Result, Shape};

use crate::file::{Contents, Entry, Skipped};
use crate::metadata::Metadata;
use crate::pickle::{Heap, Id, Machine, Object, Stopped, Storage, StorageType};
use crate::place::{Place, Start, view};
use crate::source::{Source, damaged};
use crate::zip::Packed;
use tree::Tree;

/// The most bytes of a pickle; a tensor takes about 200.
const MAX_PICKLE: u64 = 1 << 26;

const BIG_ENDIAN: &str = "its numbers are big-endian";
const SAVE_AGAIN: &str = "save it on a little-endian machine";

/// The folder with the records of a checkpoint, if an archive is one: the part before `data.pkl`.
pub(crate) fn folder(entries: &[Packed]) -> Option<&str> {
    let folder = |entry: &'_ Packed| -> Option<usize> {
        let folder = entry.name.strip_suffix("data.pkl")?;
        (folder.is_empty() || folder.find('/') == Some(folder.len() - 1)).then_some(folder.len())
    };
    entries.iter().find_map(|entry| Some(&entry.name[..folder(entry)?]))
}

/// Reads the structure of a checkpoint in an archive, without its values.
pub(crate) fn open(source: &Source, entries: &[Packed], folder: &str) -> Result<Contents> {
    let records: HashMap<&str, &Packed> = entries
        .iter()
        .filter_map(|entry| Some((entry.name.strip_prefix(folder)?, entry)))
        .collect();
    if let Some(order) = records.get("byteorder")
        && order.content(source, 16)? != b"little"
    {
        return Err(Error::unsupported(BIG_ENDIAN).with_hint(SAVE_AGAIN));
    }
    let pickle = records.get("data.pkl").ok_or_else(|| damaged("it has no data.pkl"))?;
    let pickle = pickle.content(source, MAX_PICKLE)?;
    let mut machine = Machine::new(&pickle);
    let root = machine.run().map_err(|stopped| match stopped {
        Stopped::Short => damaged("its pickle ends too early"),
        Stopped::Failed(error) => error,
    });
    let tree = root.and_then(|root| Tree::new(&machine.heap, root, &machine.attributes));
    let tree = tree.map_err(|error| match records.contains_key("constants.pkl") {
        true => Error::new(error.kind(), error.message().to_owned()).with_hint(
            "it is a TorchScript archive: in PyTorch, save the state dict alone, torch.save(model.state_dict(), path)",
        ),
        false => error,
    })?;
    collect(&machine.heap, tree, |storage| {
        let packed = records.get(format!("data/{}", storage.key).as_str());
        let packed = packed.ok_or_else(|| damaged(format!("its storage {} is missing", printable(&storage.key))))?;
        Ok((Start::In(Packed::clone(packed), 0), packed.size))
    })
}

/// The entries for the tensors of a tree. `locate` returns the start of a storage, and its size in bytes.
fn collect<'a>(
    heap: &'a Heap,
    tree: Tree,
    mut locate: impl FnMut(&'a Storage) -> Result<(Start, u64)>,
) -> Result<Contents> {
    let mut entry = |id: Id| -> Result<(Shape, Place)> {
        let wrong = || damaged("it has no storage");
        let Some(Object::Tensor(tensor)) = heap.object(id) else {
            return Err(wrong());
        };
        let Some(Object::Storage(storage)) = heap.object(tensor.storage) else {
            return Err(wrong());
        };
        let (start, bytes) = locate(storage)?;
        let of = tensor.element.unwrap_or(storage.of);
        let size = of.size();
        // If the bytes have no dtype of their own, the storage is counted in bytes.
        let unit = |count: usize| {
            if storage.of == StorageType::Untyped {
                count / size
            } else {
                count
            }
        };
        let (count, first) = (unit(storage.count), unit(storage.offset));
        let end = (count as u64)
            .checked_add(first as u64)
            .and_then(|end| end.checked_mul(size as u64));
        if end.is_none_or(|end| end > bytes) {
            return Err(damaged(format!(
                "its storage should have {count} elements of {size} bytes, and has {bytes} bytes"
            )));
        }
        let layout = view(&tensor.shape, &tensor.strides, tensor.offset, count)?;
        let skipped = if tensor.shape.numel() == 0 {
            0
        } else {
            (first + tensor.offset) as u64 * size as u64
        };
        let start = match start {
            Start::At(at) => Start::At(at + skipped),
            Start::In(packed, _) => Start::In(packed, skipped),
        };
        let place = Place {
            file: 0,
            start,
            element: of.element(),
            big_endian: false,
            layout,
        };
        Ok((tensor.shape, place))
    };
    let mut entries = Vec::with_capacity(tree.tensors.len());
    let (mut skipped, mut first) = (tree.skipped, None);
    for (name, id) in tree.tensors {
        match entry(id) {
            Ok((shape, place)) => entries.push(Entry { name, shape, place }),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                skipped.push(Skipped::tensor(&name, &error));
                first = first.or(Some(about_tensor(error, &name)));
            }
            Err(error) => return Err(about_tensor(error, &name)),
        }
    }
    match first {
        Some(error) if entries.is_empty() => Err(error),
        _ => Ok(Contents {
            entries,
            metadata: Metadata::default(),
            skipped,
        }),
    }
}
