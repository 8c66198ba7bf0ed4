//! GGUF files out of others.

use std::io::{self, Read, Write};
use std::path::Path;

use polygrad_nn::files::{about_tensor, in_file};
use polygrad_nn::{HostBlocks, replace_file};
use polygrad_tensor::{BlockScheme, DType, Error, HostTensor, Result};

use super::MAGIC;
use super::header::{Head, Info, element, head};
use crate::place::Element;
use crate::save::little_endian;
use crate::source::{Source, damaged};

/// Where the metadata begin: behind the magic bytes, the version and two counts.
const PAIRS: u64 = 24;

/// How [`rewrite_gguf`] writes the numbers of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufType {
    /// As f32.
    F32,
    /// As f16.
    F16,
    /// In blocks of 32 numbers of 8 bits.
    Q8_0,
    /// In blocks of 32 numbers of 4 bits.
    Q4_0,
}

impl GgufType {
    /// The number by which files name it.
    fn number(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q8_0 => 8,
        }
    }

    fn encoded(self, tensor: &HostTensor) -> Result<Vec<u8>> {
        Ok(match self {
            Self::F32 => tensor.cast(DType::F32).bytes().to_vec(),
            Self::F16 => tensor.cast(DType::F16).bytes().to_vec(),
            Self::Q8_0 => blocks(&HostBlocks::quantize(tensor, BlockScheme::Q8)?),
            Self::Q4_0 => blocks(&HostBlocks::quantize(tensor, BlockScheme::Q4)?),
        })
    }
}

/// Scales before the numbers of their blocks, as the file has them.
fn blocks(packed: &HostBlocks) -> Vec<u8> {
    let ([numbers, scales, _], scheme) = (packed.parts(), packed.scheme());
    let (numbers, scales) = (numbers.bytes(), scales.bytes());
    let mut out = Vec::with_capacity(numbers.len() + scales.len());
    for (numbers, scale) in numbers.chunks_exact(scheme.bytes()).zip(scales.chunks_exact(2)) {
        out.extend(scale);
        match scheme.bits() {
            4 => {
                let number = |at: usize| numbers[at / 2] >> (4 * (at % 2)) & 15;
                // Those of the first half of a block are the low halves of all bytes.
                out.extend((0..scheme.bytes()).map(|at| number(at) | number(at + scheme.bytes()) << 4));
            }
            // Signed in the file.
            _ => out.extend(numbers.iter().map(|number| number ^ 128)),
        }
    }
    out
}

/// Writes a GGUF file that is another one with other numbers in the tensors that `replace` gives some for, by their
/// names; metadata and all other tensors are taken over byte by byte. A kill at any moment leaves the file at `to` as
/// it was, or whole.
///
/// # Errors
/// When `from` cannot be read or is damaged, those of `replace`, a tensor of another shape or one whose rows are not
/// made of whole blocks of its type, a tensor of an unknown type that stays, and when `to` cannot be written.
pub fn rewrite_gguf(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    mut replace: impl FnMut(&str) -> Result<Option<(HostTensor, GgufType)>>,
) -> Result<()> {
    let (source, to) = (Source::open(from.as_ref())?, to.as_ref());
    little_endian().map_err(|e| in_file(e, "write", to))?;
    let head = head(&source).map_err(|e| source.about(e))?;
    let (mut infos, mut values, mut end) = (head.infos.clone(), Vec::with_capacity(head.infos.len()), 0);
    for info in &mut infos {
        let own = info.offset;
        let value = match replace(&info.name)? {
            Some(new) => replaced(info, &new).map_err(|e| e.in_module(info.name.as_str())),
            None => kept(info, &head, own, &source).map_err(|e| source.about(about_tensor(e, &info.name))),
        }?;
        info.offset = end;
        end = (end + value.length()).next_multiple_of(head.alignment);
        values.push(value);
    }
    let begun = source.bytes(PAIRS, head.pairs_end - PAIRS)?;
    replace_file(to, |out| {
        let mut out = Aligned { out, written: 0 };
        out.bytes(MAGIC)?;
        out.bytes(&head.version.to_le_bytes())?;
        out.bytes(&(infos.len() as u64).to_le_bytes())?;
        out.bytes(&head.pairs.to_le_bytes())?;
        out.bytes(&begun)?;
        infos.iter().try_for_each(|info| out.info(info))?;
        out.fill(head.alignment)?;
        for value in &values {
            match value {
                Value::New(bytes) => out.bytes(bytes)?,
                Value::At(at, length) => out.copied(&source, *at, *length)?,
            }
            out.fill(head.alignment)?;
        }
        Ok(())
    })
}

/// The numbers of a tensor.
enum Value {
    New(Vec<u8>),
    /// So many bytes of the other file, from a place on.
    At(u64, u64),
}

impl Value {
    fn length(&self) -> u64 {
        match self {
            Self::New(bytes) => bytes.len() as u64,
            Self::At(_, length) => *length,
        }
    }
}

fn replaced(info: &mut Info, (tensor, kind): &(HostTensor, GgufType)) -> Result<Value> {
    if tensor.shape().dims() != info.dims {
        let what = format!("shape {} in the place of {:?}", tensor.shape(), info.dims);
        return Err(Error::shape(what));
    }
    info.kind = kind.number();
    kind.encoded(tensor).map(Value::New)
}

fn kept(info: &Info, head: &Head, offset: u64, source: &Source) -> Result<Value> {
    if let Element::Unknown(name) = element(info.kind) {
        return Err(Error::unsupported(format!(
            "its values are {name}, which is not known here"
        )));
    }
    let length = info.bytes()?;
    let at = head.start.checked_add(offset);
    match at.filter(|at| at.checked_add(length).is_some_and(|end| end <= source.length)) {
        Some(at) => Ok(Value::At(at, length)),
        None => Err(damaged("its values are not all in the file")),
    }
}

/// Counts what is written.
struct Aligned<'a> {
    out: &'a mut dyn Write,
    written: u64,
}

impl Aligned<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn info(&mut self, info: &Info) -> io::Result<()> {
        self.bytes(&(info.name.len() as u64).to_le_bytes())?;
        self.bytes(info.name.as_bytes())?;
        self.bytes(&(info.dims.len() as u32).to_le_bytes())?;
        for &extent in info.dims.iter().rev() {
            self.bytes(&(extent as u64).to_le_bytes())?;
        }
        self.bytes(&info.kind.to_le_bytes())?;
        self.bytes(&info.offset.to_le_bytes())
    }

    fn copied(&mut self, source: &Source, at: u64, length: u64) -> io::Result<()> {
        let copied = io::copy(&mut source.region(at, length).take(length), self.out)?;
        self.written += copied;
        match copied == length {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Zeros up to a multiple.
    fn fill(&mut self, alignment: u64) -> io::Result<()> {
        let missing = self.written.next_multiple_of(alignment) - self.written;
        self.bytes(&vec![0; missing as usize])
    }
}
