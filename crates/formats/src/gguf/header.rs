//! The header of a GGUF file.

use std::io::{BufReader, Read};

use polygrad_core::{MAX_RANK, printable};
use polygrad_nn::files::{Stored, about_tensor, unreadable};
use polygrad_tensor::{Error, Result, Shape};

use super::{Block, MAGIC};
use crate::file::{Contents, Entry};
use crate::metadata::Value;
use crate::place::{Element, Layout, Place, Start};
use crate::source::{Region, Source, damaged};

/// The most metadata pairs, tensors, and array elements together.
const MAX_ITEMS: u64 = 1 << 22;
/// The most bytes of all texts together.
const MAX_TEXTS: u64 = 1 << 28;
/// The deepest nesting of arrays.
const MAX_DEPTH: usize = 4;
/// Default alignment of the tensors' values, in bytes.
const ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;

/// What stands before the values.
pub(super) struct Head {
    pub(super) version: u32,
    /// Where the metadata end, which begin behind the counts.
    pub(super) pairs_end: u64,
    pub(super) pairs: u64,
    metadata: Vec<(String, Value)>,
    pub(super) infos: Vec<Info>,
    pub(super) alignment: u64,
    /// Where values begin.
    pub(super) start: u64,
}

/// Reads what a file has, without its values.
pub(crate) fn open(source: &Source) -> Result<Contents> {
    let Head {
        metadata, infos, start, ..
    } = head(source)?;
    let entries = infos
        .into_iter()
        .map(|info| info.entry(start, source.length))
        .collect::<Result<_>>()?;
    Ok(Contents {
        entries,
        metadata: metadata.into_iter().collect(),
        skipped: Vec::new(),
    })
}

pub(super) fn head(source: &Source) -> Result<Head> {
    let mut header = Header {
        from: BufReader::new(source.from(0)),
        items: 0,
        texts: 0,
    };
    header.bytes::<{ MAGIC.len() }>()?;
    let version = header.u32()?;
    if version.swap_bytes() < version {
        return Err(Error::unsupported("it is a big-endian GGUF file").with_hint("convert it to little-endian"));
    }
    if !matches!(version, 2 | 3) {
        return Err(
            Error::unsupported(format!("it is of version {version} of GGUF, and known are 2 and 3"))
                .with_hint("convert it with a newer llama.cpp"),
        );
    }
    let (tensors, pairs) = (header.u64()?, header.u64()?);
    header.count(tensors)?;
    header.count(pairs)?;
    let metadata: Vec<(String, Value)> = (0..pairs).map(|_| header.pair()).collect::<Result<_>>()?;
    let pairs_end = source.length - header.left();
    let infos: Vec<Info> = (0..tensors).map(|_| header.info()).collect::<Result<_>>()?;
    let alignment = match metadata.iter().find(|(name, _)| name == "general.alignment") {
        None => ALIGNMENT,
        Some((_, Value::UInt(alignment @ 1..=MAX_ALIGNMENT))) => *alignment,
        Some((_, value)) => return Err(damaged(format!("its alignment is {}", printable(&value.to_string())))),
    };
    let start = (source.length - header.left()).next_multiple_of(alignment);
    Ok(Head {
        version,
        pairs_end,
        pairs,
        metadata,
        infos,
        alignment,
        start,
    })
}

/// What a tensor's values are.
pub(super) fn element(kind: u32) -> Element {
    let unknown = match kind {
        0 => return Element::Number(Stored::F32),
        1 => return Element::Number(Stored::F16),
        24 => return Element::Number(Stored::I8),
        25 => return Element::Number(Stored::I16),
        26 => return Element::Number(Stored::I32),
        27 => return Element::Number(Stored::I64),
        28 => return Element::Number(Stored::F64),
        30 => return Element::Number(Stored::BF16),
        2 => return Element::Block(Block::Q4_0),
        3 => return Element::Block(Block::Q4_1),
        6 => return Element::Block(Block::Q5_0),
        7 => return Element::Block(Block::Q5_1),
        8 => return Element::Block(Block::Q8_0),
        10 => return Element::Block(Block::Q2K),
        11 => return Element::Block(Block::Q3K),
        12 => return Element::Block(Block::Q4K),
        13 => return Element::Block(Block::Q5K),
        14 => return Element::Block(Block::Q6K),
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        other => return Element::Unknown(format!("GGUF's type {other}")),
    };
    Element::Unknown(unknown.to_owned())
}

#[derive(Clone)]
pub(super) struct Info {
    pub(super) name: String,
    /// The first axis is the slowest, as everywhere but in the file.
    pub(super) dims: Vec<usize>,
    pub(super) kind: u32,
    pub(super) offset: u64,
}

impl Info {
    /// How many bytes the values of a type take.
    ///
    /// # Errors
    /// When rows are not made of whole blocks, or there are more bytes than can be counted; values of a type that is
    /// unknown take none.
    pub(super) fn bytes(&self) -> Result<u64> {
        let numel = Shape::new(&self.dims).map_err(|e| damaged(e.to_string()))?.numel() as u64;
        let bytes = match element(self.kind) {
            Element::Number(stored) => numel.checked_mul(stored.size() as u64),
            Element::Block(block) => {
                let row = self.dims.last().copied().unwrap_or(1);
                if row % block.len() != 0 {
                    let what = format!("rows of {row} values are not made of blocks of {}", block.len());
                    return Err(damaged(what));
                }
                (numel / block.len() as u64).checked_mul(block.size() as u64)
            }
            Element::Unknown(_) => Some(0),
        };
        bytes.ok_or_else(|| damaged("it has more bytes than can be counted"))
    }

    fn entry(self, start: u64, length: u64) -> Result<Entry> {
        let about = |error| about_tensor(error, &self.name);
        let shape = Shape::new(&self.dims).map_err(|e| about(damaged(e.to_string())))?;
        let bytes = self.bytes().map_err(about)?;
        let at = start.checked_add(self.offset);
        let end = at.and_then(|at| at.checked_add(bytes));
        let (Some(at), true) = (at, end.is_some_and(|end| end <= length)) else {
            let what = format!(
                "its values should begin {} bytes after {start}, and the file ends at {length}",
                self.offset
            );
            return Err(about(damaged(what)));
        };
        Ok(Entry {
            shape,
            place: Place {
                file: 0,
                start: Start::At(at),
                element: element(self.kind),
                big_endian: false,
                layout: Layout::Contiguous,
            },
            name: self.name,
        })
    }
}

struct Header<'a> {
    from: BufReader<Region<'a>>,
    items: u64,
    texts: u64,
}

impl Header<'_> {
    /// Number of unread bytes.
    fn left(&self) -> u64 {
        self.from.get_ref().left() + self.from.buffer().len() as u64
    }

    fn count(&mut self, items: u64) -> Result<()> {
        self.items = self.items.saturating_add(items);
        // Each item takes at least a byte.
        match self.items <= MAX_ITEMS && items <= self.left() {
            true => Ok(()),
            false => Err(damaged(format!(
                "it would have {items} items more than is read, or than there is room for"
            ))),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(unreadable)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String> {
        let length = self.u64()?;
        self.texts = self.texts.saturating_add(length);
        if length > self.left() || self.texts > MAX_TEXTS {
            return Err(damaged(format!(
                "it has a text of {length} bytes, more than it has or than is read"
            )));
        }
        let mut bytes = Vec::new();
        self.from
            .by_ref()
            .take(length)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        // Tokens may be incomplete characters.
        Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    fn pair(&mut self) -> Result<(String, Value)> {
        let name = self.text()?;
        let kind = self.u32()?;
        let value = self.value(kind, MAX_DEPTH).map_err(|error| {
            let what = format!("metadata {}: {}", printable(&name), error.message());
            Error::new(error.kind(), what).with_hint("the file is damaged: fetch or save it again")
        })?;
        Ok((name, value))
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value> {
        Ok(match kind {
            0 => Value::UInt(u64::from(self.bytes::<1>()?[0])),
            1 => Value::Int(i64::from(self.bytes::<1>()?[0] as i8)),
            2 => Value::UInt(u64::from(self.bytes().map(u16::from_le_bytes)?)),
            3 => Value::Int(i64::from(self.bytes().map(i16::from_le_bytes)?)),
            4 => Value::UInt(u64::from(self.u32()?)),
            5 => Value::Int(i64::from(self.u32()? as i32)),
            6 => Value::Float(f64::from(f32::from_bits(self.u32()?))),
            7 => Value::Bool(self.bytes::<1>()?[0] != 0),
            8 => Value::Text(self.text()?),
            9 if depth > 0 => {
                let (kind, count) = (self.u32()?, self.u64()?);
                self.count(count)?;
                Value::List((0..count).map(|_| self.value(kind, depth - 1)).collect::<Result<_>>()?)
            }
            9 => return Err(damaged(format!("it has arrays in arrays more than {MAX_DEPTH} deep"))),
            10 => Value::UInt(self.u64()?),
            11 => Value::Int(self.u64()? as i64),
            12 => Value::Float(f64::from_bits(self.u64()?)),
            other => return Err(damaged(format!("it is of type {other}, which is none of GGUF's"))),
        })
    }

    fn info(&mut self) -> Result<Info> {
        let name = self.text()?;
        let rank = self.u32()?;
        if rank as usize > MAX_RANK {
            let what = format!("its rank is {rank}, above the limit of {MAX_RANK}");
            return Err(about_tensor(damaged(what), &name));
        }
        let mut dims = Vec::new();
        for _ in 0..rank {
            dims.push(usize::try_from(self.u64()?).unwrap_or(usize::MAX));
        }
        dims.reverse();
        Ok(Info {
            name,
            dims,
            kind: self.u32()?,
            offset: self.u64()?,
        })
    }
}
