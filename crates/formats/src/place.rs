//! Location of a tensor's values, and reading them.

use std::io::Read;

use polygrad_nn::HostBlocks;
use polygrad_nn::files::{Stored, strided};
use polygrad_tensor::{DType, Error, ErrorKind, HostTensor, Result, Shape};

use crate::gguf::Block;
use crate::source::{Source, damaged};
use crate::zip::Packed;

/// The most elements of a view that repeats elements, as expanded tensors do.
const MOST_REPEATED: usize = 1 << 24;

/// The type of a tensor's values in its file.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    /// Numbers.
    Number(Stored),
    /// Blocks of quantized numbers, which are read as f32.
    Block(Block),
    /// A type that no dtype can hold, with its name in the file.
    Unknown(String),
}

impl Element {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Number(stored) => stored.name(),
            Self::Block(block) => block.name(),
            Self::Unknown(name) => name,
        }
    }

    pub(crate) fn dtype(&self) -> Result<DType> {
        match self {
            Self::Number(stored) => Ok(stored.dtype()),
            Self::Block(_) => Ok(DType::F32),
            Self::Unknown(name) => {
                let known = DType::ALL.map(DType::name).join(", ");
                Err(
                    Error::unsupported(format!("its values are {name}, which no dtype of tensors holds"))
                        .with_hint(format!("convert it to one of {known} before saving")),
                )
            }
        }
    }
}

/// The start of a tensor in its file.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// At this byte offset.
    At(u64),
    /// At this offset in an entry of a zip archive.
    In(Packed, u64),
}

/// The memory layout of the elements.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    /// In row-major order.
    Contiguous,
    /// A view, with these strides in elements.
    Strided(Vec<usize>),
}

/// The location of a tensor's values.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Index of the file.
    pub(crate) file: usize,
    pub(crate) start: Start,
    pub(crate) element: Element,
    pub(crate) big_endian: bool,
    pub(crate) layout: Layout,
}

impl Place {
    /// Reads the values.
    pub(crate) fn read(&self, source: &Source, shape: Shape) -> Result<HostTensor> {
        let dtype = self.element.dtype()?;
        if shape.numel() == 0 {
            return HostTensor::from_bytes(dtype, shape, &[]);
        }
        match &self.start {
            Start::At(at) => self.decode(source.from(*at), shape),
            Start::In(packed, skipped) => {
                let mut entry = packed.open(source)?;
                entry.skip(*skipped)?;
                let value = self.decode(&mut entry, shape)?;
                entry.finish()?;
                Ok(value)
            }
        }
    }

    /// Reads the values without unpacking them; `None` if this is not supported.
    pub(crate) fn read_packed(&self, source: &Source, shape: Shape) -> Result<Option<HostBlocks>> {
        match (&self.element, &self.start) {
            (Element::Block(block), Start::At(at)) => block.read_packed(shape, source.from(*at)),
            _ => Ok(None),
        }
    }

    /// Whether [`Place::read_packed`] gives blocks.
    pub(crate) fn is_packed(&self, shape: &Shape) -> bool {
        match (&self.element, &self.start) {
            (Element::Block(block), Start::At(_)) => block.packed_form(shape).is_some(),
            _ => false,
        }
    }

    fn decode(&self, from: impl Read, shape: Shape) -> Result<HostTensor> {
        match (&self.element, &self.layout) {
            (Element::Number(stored), Layout::Contiguous) => stored.read(shape, self.big_endian, from),
            (Element::Number(stored), Layout::Strided(strides)) => {
                let span = span(&shape, strides).ok_or_else(|| damaged("its strides overflow"))?;
                let flat = stored.read(Shape::new(&[span])?, self.big_endian, from)?;
                strided(&flat, 0, shape, strides)
            }
            (Element::Block(block), _) => block.read(shape, from),
            (Element::Unknown(name), _) => Err(Error::unsupported(format!("values of {name}"))),
        }
    }
}

/// The number of storage elements from the first to the last element of a non-empty view; `None` on overflow.
pub(crate) fn span(shape: &Shape, strides: &[usize]) -> Option<usize> {
    let axes = shape.iter().zip(strides);
    axes.into_iter().try_fold(1usize, |span, (&extent, &stride)| {
        span.checked_add((extent - 1).checked_mul(stride)?)
    })
}

/// The layout of a view of a storage of `stored` elements from `offset` on; fails if it exceeds the storage.
pub(crate) fn view(shape: &Shape, strides: &[usize], offset: usize, stored: usize) -> Result<Layout> {
    if shape.numel() == 0 {
        return Ok(Layout::Contiguous);
    }
    let end = span(shape, strides).and_then(|span| span.checked_add(offset));
    if end.is_none_or(|end| end > stored) {
        return Err(damaged(format!(
            "a view of {shape} with strides {strides:?} from element {offset} on is not within its storage of {stored}"
        )));
    }
    if shape.numel() > stored.max(MOST_REPEATED) {
        let message = format!("a view of {shape} repeats {stored} elements, more often than is read");
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("call contiguous() before saving it"));
    }
    let row_major = shape.contiguous_strides();
    let dense = shape.iter().zip(strides).zip(row_major);
    let contiguous = dense
        .into_iter()
        .all(|((&extent, &stride), wanted)| extent == 1 || stride as isize == wanted);
    Ok(match contiguous {
        true => Layout::Contiguous,
        false => Layout::Strided(strides.to_owned()),
    })
}
