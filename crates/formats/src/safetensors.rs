//! Single safetensors files.

use polygrad_nn::files::{SafetensorsEntry, SafetensorsHeader, about_tensor};
use polygrad_tensor::{Result, Shape};

use crate::file::{Contents, Entry};
use crate::metadata::Value;
use crate::place::{Element, Layout, Place, Start};
use crate::source::Source;

/// Whether a file with this beginning is a safetensors file: a length below 4 GB, and JSON.
pub(crate) fn begins(start: &[u8]) -> bool {
    start.len() > 8 && start[4..8] == [0; 4] && start[8] == b'{'
}

/// Reads the structure of a file, without its values.
pub(crate) fn open(source: &Source) -> Result<Contents> {
    let header = SafetensorsHeader::read(source.from(0), source.length)?;
    if let Some(first) = header.tensors.first() {
        header.check(source.from(first.offset))?;
    }
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
                file: 0,
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
