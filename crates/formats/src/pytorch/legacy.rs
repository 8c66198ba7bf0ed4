//! Checkpoints of PyTorch before 1.6: five pickles one after another, then the storages.

use std::collections::HashMap;

use polygrad_core::printable;
use polygrad_tensor::{Error, Result};

use super::tree::Tree;
use super::{BIG_ENDIAN, MAX_PICKLE, SAVE_AGAIN, collect};
use crate::file::Contents;
use crate::pickle::{Heap, Id, Machine, Object, Stopped, Value};
use crate::place::Start;
use crate::source::{Source, damaged};

/// The first pickle is a magic number: ten bytes since protocol 2, digits before that.
const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
const DIGITS: &[u8] = b"L119547037146038801333356L\n.";
/// Pickles begin with the protocol number since protocol 2, and also with a frame's length since protocol 4.
const PROTO: u8 = 0x80;
const FRAME: &[u8] = b"\x95\x0d\0\0\0\0\0\0\0";

/// Whether a file with this beginning is such a checkpoint, in any pickle protocol.
pub(crate) fn begins(start: &[u8]) -> bool {
    let number = match start {
        [PROTO, _, rest @ ..] => rest.strip_prefix(FRAME).unwrap_or(rest),
        _ => start,
    };
    number.starts_with(MAGIC) || number.starts_with(DIGITS)
}
const PROTOCOL: i64 = 1001;

/// Number of bytes read at first; eight times as many each time the pickles do not end within them.
const FIRST: u64 = 1 << 20;

/// Reads the structure of a checkpoint, without its values.
pub(crate) fn open(source: &Source) -> Result<Contents> {
    let mut length = FIRST;
    loop {
        let most = length.min(source.length).min(MAX_PICKLE);
        let bytes = source.bytes(0, most)?;
        match read(source, &bytes) {
            Ok(contents) => return Ok(contents),
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::Short) if most < length => {
                return Err(damaged(format!(
                    "its pickles do not end within {most} bytes, and at most {MAX_PICKLE} are read"
                )));
            }
            Err(Stopped::Short) => length *= 8,
        }
    }
}

fn read(source: &Source, bytes: &[u8]) -> std::result::Result<Contents, Stopped> {
    let mut machine = Machine::new(bytes);
    machine.run()?;
    let protocol = machine.run()?;
    if protocol != Value::Int(PROTOCOL) {
        let found = machine.heap.describe(protocol);
        return Err(damaged(format!(
            "it is of version {found} of the format, and known is {PROTOCOL}"
        ))
        .into());
    }
    let system = machine.run()?;
    let little = |&&(key, _): &&(Value, Value)| machine.heap.text(key) == Some("little_endian");
    let order = machine.heap.dict(system).and_then(|system| system.iter().find(little));
    if order.is_some_and(|&(_, value)| value == Value::Bool(false)) {
        return Err(Error::unsupported(BIG_ENDIAN).with_hint(SAVE_AGAIN).into());
    }
    let root = machine.run()?;
    let keys = machine.run()?;
    let places = places(source, &machine.heap, keys, machine.at() as u64)?;
    let tree = Tree::new(&machine.heap, root, &machine.attributes)?;
    let contents = collect(&machine.heap, tree, |storage| {
        let place = places.get(storage.key.as_str());
        let &(at, bytes) =
            place.ok_or_else(|| damaged(format!("its storage {} is missing", printable(&storage.key))))?;
        Ok((Start::At(at), bytes))
    });
    Ok(contents?)
}

/// The offset and byte size of each storage. They are in the order of their keys, each preceded by its number of
/// elements.
fn places<'a>(source: &Source, heap: &'a Heap, keys: Value, start: u64) -> Result<HashMap<&'a str, (u64, u64)>> {
    let storages = (0..heap.len() as Id).filter_map(|id| match heap.object(id) {
        Some(Object::Storage(storage)) => Some((storage.key.as_str(), storage.of.size() as u64)),
        _ => None,
    });
    let sizes: HashMap<&str, u64> = storages.collect();
    let keys = heap
        .sequence(keys)
        .ok_or_else(|| damaged("it has no list of its storages"))?;
    let mut places = HashMap::new();
    let mut at = start;
    for &key in keys {
        let (key, size) = heap
            .text(key)
            .and_then(|key| sizes.get_key_value(key))
            .ok_or_else(|| damaged("its list of storages has one that is not in its pickle"))?;
        let count = source.bytes(at, 8)?;
        let count = count.first_chunk().map_or(0, |&count| u64::from_le_bytes(count));
        let bytes = count.checked_mul(*size);
        let end = bytes
            .and_then(|bytes| bytes.checked_add(at + 8))
            .filter(|&end| end <= source.length);
        let (Some(bytes), Some(end)) = (bytes, end) else {
            return Err(damaged(format!(
                "its storage {} should have {count} elements, and the file ends before",
                printable(key)
            )));
        };
        places.insert(*key, (at + 8, bytes));
        at = end;
    }
    Ok(places)
}
