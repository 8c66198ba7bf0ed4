//! Tensors as files store them.

use std::sync::Arc;

use bytes::Bytes;
use polygrad_core::{DType, Error, HostBytes, HostTensor, Result, Shape, bf16, f16};
use prost::Message;

use super::budget::Budget;
use super::{ElementType, malformed, minifloat};
use crate::proto::{EXTERNAL, SparseTensorProto, TensorProto};

/// A tensor in a file: values, and their element type.
#[derive(Clone, Debug)]
pub struct Literal {
    element: ElementType,
    host: HostTensor,
    /// The elements of a tensor of text.
    texts: Option<Arc<[Arc<str>]>>,
}

impl From<HostTensor> for Literal {
    fn from(host: HostTensor) -> Self {
        Self {
            element: host.dtype().into(),
            host,
            texts: None,
        }
    }
}

/// Memory of a file that was read, shared rather than copied.
struct FileBytes(Bytes);

impl HostBytes for FileBytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A tensor's memory as bytes, shared rather than copied.
struct Shared(HostTensor);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Literal {
    /// Values of an element type that may be narrower than their dtype.
    ///
    /// # Errors
    /// If that type is stored in another dtype.
    pub fn new(element: ElementType, host: HostTensor) -> Result<Self> {
        if element.dtype()? != host.dtype() {
            return Err(Error::dtype(format!(
                "{element} is held by {}, not by {}",
                element.dtype()?,
                host.dtype()
            )));
        }
        Ok(Self::held(element, host))
    }

    fn held(element: ElementType, host: HostTensor) -> Self {
        let texts = None;
        Self { element, host, texts }
    }

    /// A tensor of text.
    ///
    /// # Errors
    /// If there are not as many texts as the shape has elements.
    pub fn text(shape: Shape, texts: Vec<Arc<str>>) -> Result<Self> {
        let places = (0..texts.len() as i64).collect();
        Ok(Self {
            element: ElementType::String,
            host: fill(shape, places)?,
            texts: Some(texts.into()),
        })
    }

    /// The elements of a tensor of text, in row-major order; `None` for numbers.
    pub fn texts(&self) -> Option<&[Arc<str>]> {
        self.texts.as_deref()
    }

    /// The type of the elements in the file.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The values, in the dtype that stores the elements ([`ElementType::dtype`]). Those of text are the places in
    /// [`Literal::texts`].
    pub fn host(&self) -> &HostTensor {
        &self.host
    }

    /// Values from their little-endian bytes, packed if they are narrower than a byte. Not copied if they are aligned
    /// and their dtype is no wider than the element type.
    ///
    /// # Errors
    /// If the number of bytes does not fit, or no dtype can store the elements or one of their values.
    pub fn from_wire(element: ElementType, shape: Shape, bytes: Bytes) -> Result<Self> {
        from_raw(element, shape, bytes)
    }

    /// Reads a serialized `TensorProto`: its name and content.
    ///
    /// # Errors
    /// If the bytes are no such message, or its content does not fit its shape and element type.
    pub fn decode(bytes: impl Into<Bytes>) -> Result<(String, Self)> {
        let mut proto = TensorProto::decode(bytes.into())
            .map_err(|e| malformed("these bytes are no TensorProto").with_source(e))?;
        let name = std::mem::take(&mut proto.name);
        let tensor = Self::read(proto, &Budget::new(None, usize::MAX))?;
        Ok((name, tensor))
    }

    /// Writes a `TensorProto`.
    pub fn encode(&self, name: &str) -> Vec<u8> {
        self.write(name).encode_to_vec()
    }

    pub(super) fn read(proto: TensorProto, budget: &Budget<'_>) -> Result<Self> {
        let name = proto.name.clone();
        Self::read_unnamed(proto, budget).map_err(|e| in_tensor(e, &name))
    }

    /// Reinterprets the same bytes as another element type of the same size.
    pub(crate) fn reinterpret(&self, element: ElementType) -> Result<Self> {
        element.dtype()?;
        if element.bits() != self.element.bits() {
            return Err(Error::dtype(format!(
                "{} and {element} are not of one size",
                self.element
            )));
        }
        from_raw(element, *self.host.shape(), self.wire_bytes().into())
    }

    fn read_unnamed(proto: TensorProto, budget: &Budget<'_>) -> Result<Self> {
        if proto.segment.is_some() {
            return Err(malformed("tensors stored in segments are not read"));
        }
        let element = ElementType::from_number(proto.data_type)?;
        let shape = read_dims(&proto.dims)?;
        if element == ElementType::String {
            return read_text(proto, shape, budget);
        }
        let dtype = element.dtype()?;
        let bytes = shape.numel().saturating_mul(dtype.size());
        if proto.data_location == EXTERNAL {
            let Some(folder) = budget.folder else {
                return Err(
                    malformed("the values are in another file, of which nothing is known here")
                        .with_hint("load the model from its path"),
                );
            };
            let needed = wire_len(element, &shape);
            let needed = needed.ok_or_else(|| malformed(format!("{element}{shape} is larger than memory")))?;
            let besides = if element.is_widened() { needed } else { 0 };
            let bytes = folder.read(&proto, needed, || budget.take(bytes, besides))?;
            return from_raw(element, shape, bytes);
        }
        // A shape with too few values is rejected below.
        if shape.numel() <= listed(&proto, element) {
            budget.take(bytes, 0)?;
        }
        // The values are in raw_data, or in the field of their type.
        if !proto.raw_data.is_empty() || shape.numel() == 0 {
            return from_raw(element, shape, proto.raw_data);
        }
        let byte_by_byte = element.is_small_float() || element.bits() < 8;
        let host = match element {
            // Packed as in raw_data, one byte in each number.
            _ if byte_by_byte => {
                let bytes = proto.int32_data.into_iter().map(|v| narrow::<u8>(v, element));
                return from_raw(element, shape, bytes.collect::<Result<Vec<u8>>>()?.into());
            }
            ElementType::F32 => fill(shape, proto.float_data),
            ElementType::F64 => fill(shape, proto.double_data),
            ElementType::I64 => fill(shape, proto.int64_data),
            ElementType::U32 | ElementType::U64 => {
                let values = proto.uint64_data.into_iter().map(|v| within(v, element));
                fill(shape, values.collect::<Result<Vec<i64>>>()?)
            }
            ElementType::F16 | ElementType::BF16 => {
                let bits = proto.int32_data.into_iter().map(|v| narrow::<u16>(v, element));
                let bits = bits.collect::<Result<Vec<u16>>>()?;
                if element == ElementType::F16 {
                    fill(shape, bits.into_iter().map(f16::from_bits).collect())
                } else {
                    fill(shape, bits.into_iter().map(bf16::from_bits).collect())
                }
            }
            ElementType::Bool => {
                let values = proto.int32_data.into_iter().map(|v| match v {
                    0 => Ok(false),
                    1 => Ok(true),
                    _ => Err(malformed(format!("{v} is no bool"))),
                });
                fill(shape, values.collect::<Result<Vec<bool>>>()?)
            }
            ElementType::U8 => {
                let values = proto.int32_data.into_iter().map(|v| narrow::<u8>(v, element));
                fill(shape, values.collect::<Result<Vec<u8>>>()?)
            }
            _ => {
                let values = proto.int32_data.into_iter().map(|v| within(v, element));
                let values: Vec<i64> = values.collect::<Result<_>>()?;
                return Ok(Self::held(element, fill(shape, values)?.cast(dtype)));
            }
        }?;
        Ok(Self::held(element, host))
    }

    /// The sparse tensor's values among zeros.
    pub(super) fn read_sparse(proto: SparseTensorProto, budget: &Budget<'_>) -> Result<(String, Self)> {
        let missing = |what: &str| malformed(format!("a sparse tensor has no {what}"));
        let values = proto.values.ok_or_else(|| missing("values"))?;
        let name = values.name.clone();
        let values = Self::read(values, budget)?;
        let indices = Self::read(proto.indices.ok_or_else(|| missing("indices"))?, budget)?;
        let read = || {
            values.element.dtype()?;
            let shape = read_dims(&proto.dims)?;
            // A dense tensor of a few bytes in the file could fill the memory.
            let count = values.host.shape().numel();
            if shape.numel() > count.saturating_mul(1 << 10).max(1 << 20) {
                return Err(malformed(format!(
                    "a sparse tensor of shape {shape} has no more than {count} values"
                )));
            }
            let bytes = shape.numel() * values.host.dtype().size();
            budget.take(bytes, bytes)?;
            let positions = positions(&shape, count, indices.host())?;
            let mut dense = vec![0u8; shape.numel() * values.host.dtype().size()];
            let size = values.host.dtype().size();
            for (&position, value) in positions.iter().zip(values.host.bytes().chunks_exact(size)) {
                dense[position * size..][..size].copy_from_slice(value);
            }
            let host = HostTensor::from_bytes(values.host.dtype(), shape, &dense)?;
            Ok(Self::held(values.element, host))
        };
        let tensor = read().map_err(|e| in_tensor(e, &name))?;
        Ok((name, tensor))
    }

    /// The size of the values in a file, in bytes.
    pub(super) fn wire_len(&self) -> usize {
        wire_len(self.element, self.host.shape()).unwrap_or(0)
    }

    /// The bytes of [`Literal::from_wire`]. Not copied if the dtype is no wider than the element type.
    pub fn to_wire(&self) -> Bytes {
        if cfg!(target_endian = "big") || self.element.is_widened() {
            return self.wire_bytes().into();
        }
        Bytes::from_owner(Shared(self.host.clone()))
    }

    /// The values as a file stores them.
    pub(super) fn wire_bytes(&self) -> Vec<u8> {
        let integers = || {
            self.host
                .cast(DType::I64)
                .to_vec::<i64>()
                .unwrap_or_default()
                .into_iter()
        };
        match self.element {
            ElementType::I8 => integers().map(|v| v as u8).collect(),
            ElementType::U16 | ElementType::I16 => integers().flat_map(|v| (v as u16).to_le_bytes()).collect(),
            ElementType::U32 => integers().flat_map(|v| (v as u32).to_le_bytes()).collect(),
            element if element.is_small_float() => {
                let values = self.host.to_f64_vec();
                pack(
                    element.bits(),
                    values.into_iter().map(|v| minifloat::encode(element, v as f32, false)),
                )
            }
            element if element.bits() < 8 => pack(element.bits(), integers().map(|v| v as u8)),
            _ => little_endian(self.host.bytes().to_vec(), self.host.dtype().size()),
        }
    }

    pub(super) fn write(&self, name: &str) -> TensorProto {
        let texts = self.texts().unwrap_or_default();
        TensorProto {
            dims: self.host.shape().iter().map(|&extent| extent as i64).collect(),
            data_type: self.element.number(),
            name: name.into(),
            string_data: texts
                .iter()
                .map(|text| Bytes::copy_from_slice(text.as_bytes()))
                .collect(),
            raw_data: match self.texts {
                Some(_) => Bytes::new(),
                None => self.wire_bytes().into(),
            },
            ..TensorProto::default()
        }
    }
}

fn in_tensor(error: Error, name: &str) -> Error {
    error.in_module(format!("tensor {name:?}"))
}

fn read_text(proto: TensorProto, shape: Shape, budget: &Budget<'_>) -> Result<Literal> {
    if proto.data_location == EXTERNAL {
        return Err(malformed("text is stored in another file"));
    }
    let bytes = proto
        .string_data
        .iter()
        .map(|text| text.len() + size_of::<Arc<str>>() + size_of::<i64>());
    budget.take(bytes.fold(0, usize::saturating_add), 0)?;
    let text = |bytes: Bytes| match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.into()),
        Err(e) => Err(malformed("text that is not UTF-8").with_source(e)),
    };
    Literal::text(shape, proto.string_data.into_iter().map(text).collect::<Result<_>>()?)
}

fn read_dims(dims: &[i64]) -> Result<Shape> {
    let extent = |&dim: &i64| usize::try_from(dim).map_err(|_| malformed(format!("the shape {dims:?} is negative")));
    Shape::new(&dims.iter().map(extent).collect::<Result<Vec<_>>>()?)
}

/// The most elements that the message itself can hold.
fn listed(proto: &TensorProto, element: ElementType) -> usize {
    let numbers = [
        proto.raw_data.len(),
        proto.int32_data.len(),
        proto.int64_data.len(),
        proto.uint64_data.len(),
        proto.float_data.len(),
        proto.double_data.len(),
    ];
    // Elements narrower than 8 bits are packed, several in one number.
    let packed = 8usize.div_ceil(element.bits().max(1));
    numbers.into_iter().max().unwrap_or(0).saturating_mul(packed)
}

/// The size of a shape's elements in a file, in bytes: small elements are packed without gaps.
fn wire_len(element: ElementType, shape: &Shape) -> Option<usize> {
    let bits = shape.numel().checked_mul(element.bits())?;
    Some(bits.div_ceil(8))
}

/// Packs elements of fewer than 8 bits, the first in the lowest bits.
fn pack(bits: usize, values: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for (i, value) in values.enumerate() {
        let value = (u16::from(value) & ((1 << bits) - 1)) << (i * bits % 8);
        let at = i * bits / 8;
        bytes.resize((at + 1 + usize::from(i * bits % 8 + bits > 8)).max(bytes.len()), 0);
        bytes[at] |= value as u8;
        if value > 255 {
            bytes[at + 1] |= (value >> 8) as u8;
        }
    }
    bytes
}

/// The inverse of [`pack`], for `count` elements.
fn unpack(bits: usize, bytes: &[u8], count: usize) -> impl Iterator<Item = u8> + '_ {
    (0..count).map(move |i| {
        let at = i * bits / 8;
        let low = bytes.get(at).copied().unwrap_or(0);
        let high = bytes.get(at + 1).copied().unwrap_or(0);
        let word = u16::from_le_bytes([low, high]) >> (i * bits % 8);
        (word & ((1 << bits) - 1)) as u8
    })
}

fn from_raw(element: ElementType, shape: Shape, bytes: Bytes) -> Result<Literal> {
    if wire_len(element, &shape) != Some(bytes.len()) {
        return Err(malformed(format!(
            "{element}{shape} does not fit into {} bytes of values",
            bytes.len()
        )));
    }
    let host = match element {
        ElementType::I8 => fill(shape, bytes.iter().map(|&b| i32::from(b as i8)).collect()),
        ElementType::U16 => fill(shape, words(&bytes).map(|v| i32::from(u16::from_le_bytes(v))).collect()),
        ElementType::I16 => fill(shape, words(&bytes).map(|v| i32::from(i16::from_le_bytes(v))).collect()),
        ElementType::U32 => fill(shape, words(&bytes).map(|v| i64::from(u32::from_le_bytes(v))).collect()),
        ElementType::U64 => {
            let values = words(&bytes).map(|v| within(u64::from_le_bytes(v), element));
            fill(shape, values.collect::<Result<Vec<i64>>>()?)
        }
        element if element.is_small_float() => {
            let bits = unpack(element.bits(), &bytes, shape.numel());
            fill(shape, bits.map(|bits| minifloat::decode(element, bits)).collect())
        }
        element if element.bits() < 8 => {
            let signed = element.range().is_some_and(|(low, _)| low < 0);
            let half = 1 << (element.bits() - 1);
            let bits = unpack(element.bits(), &bytes, shape.numel()).map(i32::from);
            fill(
                shape,
                bits.map(|v| if signed && v >= half { v - 2 * half } else { v })
                    .collect(),
            )
        }
        _ => {
            let dtype = element.dtype()?;
            let is_aligned = |bytes: &Bytes| (bytes.as_ptr() as usize).is_multiple_of(dtype.size());
            let ready = match is_aligned(&bytes) && cfg!(target_endian = "little") {
                true => bytes,
                // Allocated memory is aligned on all but unusual machines.
                false => little_endian(bytes.to_vec(), dtype.size()).into(),
            };
            match is_aligned(&ready) {
                true => HostTensor::from_shared(dtype, shape, Arc::new(FileBytes(ready))),
                false => HostTensor::from_bytes(dtype, shape, &ready),
            }
        }
    }?;
    Ok(Literal::held(element, host))
}

/// From the machine's order of bytes to the file's, or back.
fn little_endian(mut bytes: Vec<u8>, size: usize) -> Vec<u8> {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    bytes
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.chunks_exact(N).map(|chunk| {
        let mut word = [0; N];
        word.copy_from_slice(chunk);
        word
    })
}

fn fill<T: polygrad_core::Element>(shape: Shape, values: Vec<T>) -> Result<HostTensor> {
    if values.len() != shape.numel() {
        return Err(malformed(format!(
            "{} values do not fill a tensor of shape {shape}",
            values.len()
        )));
    }
    HostTensor::new(shape, values)
}

fn narrow<T: TryFrom<i32>>(value: i32, element: ElementType) -> Result<T> {
    T::try_from(value).map_err(|_| malformed(format!("{value} is no {element}")))
}

fn within<T: TryInto<i64> + Copy + std::fmt::Display>(value: T, element: ElementType) -> Result<i64> {
    let (low, high) = element.range().unwrap_or((i64::MIN, i64::MAX));
    let found = value.try_into().ok().filter(|v| (low..=high).contains(v));
    found.ok_or_else(|| Error::out_of_range(format!("{value} is no {element} that can be held in an i64")))
}

/// Row-major positions of a sparse tensor's values in its shape.
fn positions(shape: &Shape, count: usize, indices: &HostTensor) -> Result<Vec<usize>> {
    let list = indices.as_slice::<i64>()?;
    let per_value = match indices.shape().dims() {
        [n] if *n == count => 1,
        [n, rank] if *n == count && *rank == shape.rank() => *rank,
        _ => {
            return Err(malformed(format!(
                "indices of shape {} do not fit {count} values of a tensor of shape {shape}",
                indices.shape()
            )));
        }
    };
    let strides = shape.contiguous_strides();
    let place = |index: &[i64]| -> Option<usize> {
        if per_value == 1 && shape.rank() != 1 {
            return usize::try_from(index[0]).ok().filter(|&i| i < shape.numel());
        }
        let mut position = 0;
        for (axis, &i) in index.iter().enumerate() {
            let i = usize::try_from(i).ok().filter(|&i| i < shape[axis])?;
            position += i * strides[axis] as usize;
        }
        Some(position)
    };
    list.chunks_exact(per_value.max(1))
        .map(|index| place(index).ok_or_else(|| malformed(format!("index {index:?} is outside {shape}"))))
        .collect()
}
