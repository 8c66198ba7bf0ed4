//! Inputs and outputs of a model: numbers or strings.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use polygrad_core::{Element, Error, ErrorKind, HostBytes, HostTensor, Result, Shape, dispatch_dtype};
use polygrad_onnx::graph::{ElementType, Literal};

/// An array of numbers or of strings.
#[derive(Clone, Debug)]
pub enum Value {
    /// Numbers or bools.
    Tensor(Literal),
    /// Strings.
    Strings(Strings),
}

/// Strings in row-major order.
#[derive(Clone, Debug)]
pub struct Strings {
    shape: Shape,
    strings: Vec<Bytes>,
}

impl Strings {
    /// Strings of a shape; by the protocol they are bytes, UTF-8 by convention.
    ///
    /// # Errors
    /// If their number differs from the shape's.
    pub fn new(shape: Shape, strings: Vec<Bytes>) -> Result<Self> {
        if strings.len() != shape.numel() {
            return Err(Error::shape(format!(
                "{} strings do not fill shape {shape}",
                strings.len()
            )));
        }
        Ok(Self { shape, strings })
    }

    /// Strings from the protocol's bytes: each string is preceded by its length, four bytes in little-endian order.
    /// Shares the memory.
    ///
    /// # Errors
    /// If the bytes end within a string, or the number of strings differs from the shape's.
    pub fn from_wire(shape: Shape, mut bytes: Bytes) -> Result<Self> {
        let mut strings = Vec::with_capacity(shape.numel().min(bytes.len() / 4));
        while let Some(length) = bytes.first_chunk::<4>() {
            let end = (u32::from_le_bytes(*length) as usize).saturating_add(4);
            if end > bytes.len() {
                break;
            }
            strings.push(bytes.split_to(end).slice(4..));
        }
        if !bytes.is_empty() {
            return Err(Error::invalid(format!(
                "the bytes end within string {}: each has its length before it, four bytes, the lowest first",
                strings.len()
            )));
        }
        Self::new(shape, strings)
    }

    /// The bytes of [`Strings::from_wire`].
    pub fn to_wire(&self) -> Bytes {
        let length = self.strings.iter().map(|string| string.len() + 4).sum();
        let mut bytes = Vec::with_capacity(length);
        for string in &self.strings {
            // Longer strings do not fit into a request's memory.
            let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&string[..length as usize]);
        }
        bytes.into()
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The strings.
    pub fn strings(&self) -> &[Bytes] {
        &self.strings
    }
}

impl From<HostTensor> for Value {
    fn from(host: HostTensor) -> Self {
        Self::Tensor(host.into())
    }
}

impl Value {
    /// The shape.
    pub fn shape(&self) -> &Shape {
        match self {
            Self::Tensor(literal) => literal.host().shape(),
            Self::Strings(strings) => &strings.shape,
        }
    }

    /// Its size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Tensor(literal) => literal.host().bytes().len(),
            Self::Strings(strings) => strings
                .strings
                .iter()
                .map(|string| string.len() + size_of::<Bytes>())
                .sum(),
        }
    }

    /// The type of the elements.
    pub fn element(&self) -> ElementType {
        match self {
            Self::Tensor(literal) => literal.element(),
            Self::Strings(_) => ElementType::String,
        }
    }

    /// The numbers.
    ///
    /// # Errors
    /// If these are strings.
    pub fn tensor(&self) -> Result<&Literal> {
        match self {
            Self::Tensor(literal) => Ok(literal),
            Self::Strings(_) => Err(Error::dtype("strings where numbers are wanted")),
        }
    }

    /// The value for a graph.
    pub(crate) fn into_graph(self) -> Result<polygrad_onnx::Value> {
        Ok(self.tensor()?.clone().into())
    }

    /// A value from the protocol's bytes: numbers as in [`Literal::from_wire`], strings as in [`Strings::from_wire`].
    ///
    /// # Errors
    /// If the bytes do not fit the shape, or no dtype can store the elements or one of their values.
    pub fn from_wire(element: ElementType, shape: Shape, bytes: Bytes) -> Result<Self> {
        match element {
            ElementType::String => Ok(Self::Strings(Strings::from_wire(shape, bytes)?)),
            element => Ok(Self::Tensor(Literal::from_wire(element, shape, bytes)?)),
        }
    }

    /// The bytes of [`Value::from_wire`].
    pub fn to_wire(&self) -> Bytes {
        match self {
            Self::Tensor(literal) => literal.to_wire(),
            Self::Strings(strings) => strings.to_wire(),
        }
    }

    /// The address of its memory, by which values that share it are recognized.
    pub(crate) fn address(&self) -> usize {
        match self {
            Self::Tensor(literal) => Arc::as_ptr(literal.host().shared()).cast::<()>() as usize,
            Self::Strings(strings) => strings.strings.as_ptr() as usize,
        }
    }

    /// Concatenates values along `axis`; their shapes differ only there.
    pub(crate) fn join(parts: &[&Self], axis: usize) -> Result<Self> {
        let [first, ..] = parts else {
            return Err(Error::invalid("nothing to join"));
        };
        let extent = parts.iter().map(|part| part.shape()[axis]).sum();
        let shape = first.shape().with_dim(axis, extent);
        if let Self::Tensor(literal) = first {
            let hosts = parts.iter().map(|part| Ok(part.tensor()?.host()));
            let hosts = hosts.collect::<Result<Vec<_>>>()?;
            let host = dispatch_dtype!(literal.host().dtype(), T => {
                let slices = hosts.iter().map(|host| host.as_slice::<T>()).collect::<Result<Vec<_>>>()?;
                HostTensor::new(shape, join(&slices, first.shape(), axis, shape.numel()))?
            });
            return Ok(Self::Tensor(Literal::new(literal.element(), host)?));
        }
        let strings = parts.iter().map(|part| match part {
            Self::Strings(strings) => Ok(strings.strings.as_slice()),
            Self::Tensor(_) => Err(Error::dtype("numbers where strings are wanted")),
        });
        let slices = strings.collect::<Result<Vec<_>>>()?;
        Ok(Self::Strings(Strings::new(
            shape,
            join(&slices, first.shape(), axis, shape.numel()),
        )?))
    }

    /// The part `rows` along `axis`. Shares the memory if the part is contiguous.
    pub(crate) fn rows(&self, axis: usize, rows: Range<usize>) -> Result<Self> {
        let shape = self.shape().with_dim(axis, rows.len());
        if rows.len() == self.shape()[axis] {
            return Ok(self.clone());
        }
        let pieces = Pieces::new(self.shape(), axis, rows);
        match self {
            Self::Strings(strings) => {
                let picked = pieces.ranges().flat_map(|range| strings.strings[range].iter().cloned());
                Ok(Self::Strings(Strings::new(shape, picked.collect())?))
            }
            Self::Tensor(literal) => {
                let host = literal.host();
                let host = match pieces.count {
                    1 => share(host, shape, pieces.first)?,
                    _ => dispatch_dtype!(host.dtype(), T => pick::<T>(host, shape, &pieces)?),
                };
                Ok(Self::Tensor(Literal::new(literal.element(), host)?))
            }
        }
    }

    /// Zeros, or empty strings.
    pub(crate) fn zeros(element: ElementType, shape: Shape) -> Result<Self> {
        match element {
            ElementType::String => Ok(Self::Strings(Strings::new(
                shape,
                repeated(Bytes::new(), shape.numel())?,
            )?)),
            _ => Self::full(element, shape, 0),
        }
    }

    /// A value filled with one number.
    ///
    /// # Errors
    /// If the elements are strings, or their type cannot represent the number.
    pub(crate) fn full(element: ElementType, shape: Shape, number: i64) -> Result<Self> {
        let host = HostTensor::new(shape, repeated(number, shape.numel())?)?.try_cast(element.dtype()?)?;
        Ok(Self::Tensor(Literal::new(element, host)?))
    }
}

/// A list whose length comes from a client, so that failure to allocate it is an error.
fn repeated<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    let lacking = |_| Error::new(ErrorKind::OutOfMemory, format!("there is no memory for {count} values"));
    list.try_reserve_exact(count).map_err(lacking)?;
    list.resize(count, value);
    Ok(list)
}

fn join<T: Clone>(slices: &[&[T]], shape: &Shape, axis: usize, total: usize) -> Vec<T> {
    let outer: usize = shape[..axis].iter().product();
    let mut all = Vec::with_capacity(total);
    for i in 0..outer {
        for slice in slices {
            let piece = slice.len() / outer.max(1);
            all.extend_from_slice(&slice[i * piece..(i + 1) * piece]);
        }
    }
    all
}

/// The memory ranges of a tensor's rows.
struct Pieces {
    first: Range<usize>,
    /// The distance between pieces.
    stride: usize,
    count: usize,
}

impl Pieces {
    fn new(shape: &Shape, axis: usize, rows: Range<usize>) -> Self {
        let inner: usize = shape[axis + 1..].iter().product();
        Self {
            first: rows.start * inner..rows.end * inner,
            stride: shape[axis] * inner,
            count: shape[..axis].iter().product(),
        }
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(|i| i * self.stride + self.first.start..i * self.stride + self.first.end)
    }
}

fn pick<T: Element>(host: &HostTensor, shape: Shape, pieces: &Pieces) -> Result<HostTensor> {
    let values = host.as_slice::<T>()?;
    let picked = pieces.ranges().flat_map(|range| values[range].iter().copied());
    HostTensor::new(shape, picked.collect())
}

/// A part of shared memory.
struct Part {
    whole: Arc<dyn HostBytes>,
    range: Range<usize>,
}

impl HostBytes for Part {
    fn bytes(&self) -> &[u8] {
        &self.whole.bytes()[self.range.clone()]
    }
}

fn share(host: &HostTensor, shape: Shape, elements: Range<usize>) -> Result<HostTensor> {
    let size = host.dtype().size();
    let part = Part {
        whole: Arc::clone(host.shared()),
        range: elements.start * size..elements.end * size,
    };
    HostTensor::from_shared(host.dtype(), shape, Arc::new(part))
}

/// The protocol's name of an element type, if it has one.
pub fn datatype_name(element: ElementType) -> Option<&'static str> {
    DATATYPES
        .iter()
        .find(|(found, _)| *found == element)
        .map(|&(_, name)| name)
}

/// The element type of a name in the protocol.
pub fn datatype(name: &str) -> Option<ElementType> {
    DATATYPES
        .iter()
        .find(|(_, found)| *found == name)
        .map(|&(element, _)| element)
}

/// The protocol's datatypes.
pub const DATATYPES: [(ElementType, &str); 14] = [
    (ElementType::Bool, "BOOL"),
    (ElementType::U8, "UINT8"),
    (ElementType::U16, "UINT16"),
    (ElementType::U32, "UINT32"),
    (ElementType::U64, "UINT64"),
    (ElementType::I8, "INT8"),
    (ElementType::I16, "INT16"),
    (ElementType::I32, "INT32"),
    (ElementType::I64, "INT64"),
    (ElementType::F16, "FP16"),
    (ElementType::BF16, "BF16"),
    (ElementType::F32, "FP32"),
    (ElementType::F64, "FP64"),
    (ElementType::String, "BYTES"),
];

/// The protocol's name of an element type, for messages.
pub(crate) fn shown(element: ElementType) -> &'static str {
    datatype_name(element).unwrap_or_else(|| element.name())
}

#[cfg(test)]
mod tests {
    use polygrad_core::DType;

    use super::*;

    fn value(shape: &[usize], values: Vec<f32>) -> Value {
        HostTensor::new(Shape::new(shape).unwrap(), values).unwrap().into()
    }

    fn numbers(value: &Value) -> Vec<f32> {
        value.tensor().unwrap().host().to_vec().unwrap()
    }

    #[test]
    fn joined_rows_come_apart_again_along_any_axis() {
        for axis in 0..3 {
            let part = |rows: usize, from: usize| {
                let mut dims = [2, 3, 2];
                dims[axis] = rows;
                let count: usize = dims.iter().product();
                value(&dims, (from..from + count).map(|v| v as f32).collect())
            };
            let parts = [part(1, 0), part(4, 100), part(2, 200)];
            let whole = Value::join(&parts.iter().collect::<Vec<_>>(), axis).unwrap();
            assert_eq!(whole.shape()[axis], 7);
            for (part, rows) in parts.iter().zip([0..1, 1..5, 5..7]) {
                let found = whole.rows(axis, rows).unwrap();
                assert_eq!(found.shape(), part.shape());
                assert_eq!(numbers(&found), numbers(part), "axis {axis}");
            }
        }
    }

    #[test]
    fn what_holds_nothing_is_joined_too() {
        let part = |rows: usize| value(&[0, rows], Vec::new());
        let whole = Value::join(&[&part(1), &part(2)], 1).unwrap();
        assert_eq!(whole.shape().dims(), [0, 3]);
        assert_eq!(whole.rows(1, 1..3).unwrap().shape().dims(), [0, 2]);
    }

    #[test]
    fn joined_strings_come_apart_again() {
        let strings = |texts: &[&'static str]| {
            let shape = Shape::new(&[texts.len(), 1]).unwrap();
            let texts = texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
            Value::Strings(Strings::new(shape, texts).unwrap())
        };
        let whole = Value::join(&[&strings(&["a", ""]), &strings(&["b"])], 0).unwrap();
        let Value::Strings(rows) = whole.rows(0, 1..3).unwrap() else {
            panic!("numbers")
        };
        assert_eq!(rows.strings(), ["", "b"]);
    }

    #[test]
    fn zeros_are_of_their_type() {
        let zeros = Value::zeros(ElementType::I8, Shape::new(&[2]).unwrap()).unwrap();
        assert_eq!(zeros.element(), ElementType::I8);
        assert_eq!(zeros.tensor().unwrap().host().dtype(), DType::I32);
    }
}
