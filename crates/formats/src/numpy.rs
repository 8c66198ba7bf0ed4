//! NumPy's files: a single array, and archives of named arrays.

use polygrad_nn::files::about_tensor;
use polygrad_tensor::{ErrorKind, Result, Shape};

use crate::file::{Contents, Entry, Skipped};
use crate::npy::{NpyHeader, column_major};
use crate::place::{Element, Layout, Place, Start};
use crate::pytorch::UNNAMED;
use crate::source::{Source, damaged};
use crate::zip::Packed;

pub(crate) use crate::npy::MAGIC;
pub(crate) const ENDING: &str = ".npy";

/// The entry for an array whose file begins at `start` and has `size` bytes.
fn entry(name: &str, header: Result<NpyHeader>, start: Start, size: u64) -> Result<Entry> {
    let header = match header {
        Ok(header) => header,
        // This array has an unsupported type; others in an archive may still be readable.
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            let place = Place {
                file: 0,
                start,
                element: Element::Unknown(error.message().trim_start_matches("its values are ").to_owned()),
                big_endian: false,
                layout: Layout::Contiguous,
            };
            return Ok(Entry {
                name: name.to_owned(),
                shape: Shape::SCALAR,
                place,
            });
        }
        Err(error) => return Err(about_tensor(error, name)),
    };
    let values = (header.shape.numel() as u64).saturating_mul(header.element.size() as u64);
    let (length, found) = (header.length as u64, size.saturating_sub(header.length as u64));
    if found < values {
        let what = format!(
            "it has {found} bytes of values, and {} of {} takes {values}",
            header.shape,
            header.element.name()
        );
        return Err(about_tensor(damaged(what), name));
    }
    let layout = match header.column_major && header.shape.rank() > 1 {
        true => Layout::Strided(column_major(&header.shape)),
        false => Layout::Contiguous,
    };
    Ok(Entry {
        name: name.to_owned(),
        shape: header.shape,
        place: Place {
            file: 0,
            start: match start {
                Start::At(at) => Start::At(at + length),
                Start::In(packed, _) => Start::In(packed, length),
            },
            element: Element::Number(header.element),
            big_endian: header.big_endian,
            layout,
        },
    })
}

/// Reads the structure of a `.npy` file.
pub(crate) fn open(source: &Source) -> Result<Contents> {
    let header = NpyHeader::read(source.from(0));
    Ok(Contents {
        entries: vec![entry(UNNAMED, header, Start::At(0), source.length)?],
        ..Contents::default()
    })
}

/// Reads the structure of a `.npz` file.
pub(crate) fn open_archive(source: &Source, entries: Vec<Packed>) -> Result<Contents> {
    let mut contents = Contents::default();
    for packed in entries {
        let Some(name) = packed.name.strip_suffix(ENDING).map(str::to_owned) else {
            contents.skipped.push(Skipped {
                what: format!("an entry that is no {ENDING} file"),
                name: packed.name,
                holds_tensors: false,
            });
            continue;
        };
        let header = NpyHeader::read(packed.open(source)?);
        let size = packed.size;
        contents.entries.push(entry(&name, header, Start::In(packed, 0), size)?);
    }
    Ok(contents)
}
