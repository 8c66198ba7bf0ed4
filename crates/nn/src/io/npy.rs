//! NumPy's file format for one array.
//!
//! Source: NumPy's documentation, "numpy.lib.format".

use std::io::{self, Read, Write};

use polygrad_core::printable;
use polygrad_tensor::{DType, Error, ErrorKind, HostTensor, Result, Shape};

use super::Stored;
use super::stored::strided;

/// What every file begins with.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Where values start is a multiple of this.
const ALIGNMENT: usize = 64;

/// The longest header that is read; NumPy's own limit is 10,000 bytes.
const MAX_HEADER: usize = 1 << 16;

/// What a `.npy` file says of its array before the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// The numbers.
    pub element: Stored,
    /// Whether their most significant byte is the first.
    pub big_endian: bool,
    /// The array's shape.
    pub shape: Shape,
    /// Whether the first axis is the fastest in the file, and not the last.
    pub column_major: bool,
    /// How many bytes stand before the values.
    pub length: usize,
}

impl NpyHeader {
    /// Reads a header, and no byte more.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] when it is none; [`ErrorKind::Unsupported`] when the array is not of numbers that a dtype holds.
    pub fn read(mut from: impl Read) -> Result<Self> {
        let ends = |_| damaged("it ends within its header, or cannot be read");
        let mut start = [0; 8];
        from.read_exact(&mut start).map_err(ends)?;
        let [.., version, _] = start;
        if !start.starts_with(MAGIC) {
            return Err(damaged("it does not begin as .npy files do"));
        }
        let width = match version {
            1 => 2,
            2 | 3 => 4,
            other => {
                return Err(damaged(format!(
                    "it is of version {other} of the format, and known are 1 to 3"
                )));
            }
        };
        let mut length = [0; 4];
        from.read_exact(&mut length[..width]).map_err(ends)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(damaged(format!(
                "its header is {length} bytes long, and at most {MAX_HEADER} are read"
            )));
        }
        let mut header = vec![0; length];
        from.read_exact(&mut header).map_err(ends)?;
        let header = std::str::from_utf8(&header).map_err(|_| damaged("its header is no text"))?;
        let descr = entry(header, "descr").ok_or_else(|| damaged("its header names no dtype"))?;
        let order = entry(header, "fortran_order").ok_or_else(|| damaged("its header does not say fortran_order"))?;
        let column_major = match order {
            "True" => true,
            "False" => false,
            other => {
                return Err(damaged(format!(
                    "its header has {} for fortran_order",
                    printable(other)
                )));
            }
        };
        let shape = shape(entry(header, "shape").ok_or_else(|| damaged("its header names no shape"))?)?;
        let (element, big_endian) = numbers(descr)?;
        Ok(Self {
            element,
            big_endian,
            shape,
            column_major,
            length: start.len() + width + length,
        })
    }

    /// The values, as which they are read; more of the file is not.
    ///
    /// # Errors
    /// As [`Stored::read`].
    pub fn values(&self, from: impl Read) -> Result<HostTensor> {
        if !self.column_major {
            return self.element.read(self.shape, self.big_endian, from);
        }
        let flat = self
            .element
            .read(Shape::from([self.shape.numel()]), self.big_endian, from)?;
        strided(&flat, 0, self.shape, &column_major(&self.shape))
    }
}

/// How far apart elements are along each axis where the first axis is the fastest.
pub fn column_major(shape: &Shape) -> Vec<usize> {
    let strides = shape.iter().scan(1, |next, &extent| {
        let stride = *next;
        *next *= extent.max(1);
        Some(stride)
    });
    strides.collect()
}

/// Writes an array as a `.npy` file. NumPy has no bf16, which becomes f32, exactly.
///
/// # Errors
/// Those of the writer.
pub fn write_npy(mut to: impl Write, host: &HostTensor) -> io::Result<()> {
    let widened;
    let host = match host.dtype() {
        DType::BF16 => {
            widened = host.try_cast(DType::F32).map_err(io::Error::other)?;
            &widened
        }
        _ => host,
    };
    to.write_all(&npy_header(host.dtype(), host.shape()))?;
    if cfg!(target_endian = "little") {
        return to.write_all(host.bytes());
    }
    let elements = host.bytes().chunks_exact(host.dtype().size());
    for element in elements {
        let reversed: Vec<u8> = element.iter().rev().copied().collect();
        to.write_all(&reversed)?;
    }
    Ok(())
}

/// What stands before the values of an array in a `.npy` file. NumPy has no bf16: it is taken for f32.
pub fn npy_header(dtype: DType, shape: &Shape) -> Vec<u8> {
    let descr = match dtype {
        DType::F32 | DType::BF16 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
    };
    let mut extents: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    if shape.rank() > 1 {
        extents.truncate(extents.len() - 2);
    }
    let mut header = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}",
        extents.trim_end()
    );
    let before = MAGIC.len() + 4;
    let padded = (before + header.len() + 1).next_multiple_of(ALIGNMENT) - before;
    header.extend(std::iter::repeat_n(' ', padded - 1 - header.len()));
    header.push('\n');
    [MAGIC, &[1, 0], &(padded as u16).to_le_bytes(), header.as_bytes()].concat()
}

fn damaged(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, what.into())
}

/// The value of an entry of the header, a Python dict on one line.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let quoted = [format!("'{key}'"), format!("\"{key}\"")];
    let (_, rest) = quoted.iter().find_map(|key| header.split_once(key.as_str()))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = match rest.as_bytes().first()? {
        b'(' => rest.find(')')? + 1,
        // The dtype of a record is a list.
        b'[' => rest.find(']')? + 1,
        _ => rest.find([',', '}'])?,
    };
    Some(rest[..end].trim())
}

fn shape(text: &str) -> Result<Shape> {
    let inner = text.trim_start_matches('(').trim_end_matches(')');
    let extents = inner.split(',').map(str::trim).filter(|extent| !extent.is_empty());
    let extents = extents.map(|extent| extent.trim_end_matches('L').parse::<usize>());
    let extents: Vec<usize> = extents
        .collect::<Result<_, _>>()
        .map_err(|_| damaged(format!("its header has {} for a shape", printable(text))))?;
    Shape::new(&extents).map_err(|e| damaged(e.to_string()))
}

/// The numbers that a dtype of NumPy means, and whether they are big-endian.
fn numbers(descr: &str) -> Result<(Stored, bool)> {
    let unknown = || {
        let known = "known are bool, floats of 16, 32 and 64 bits, and integers";
        let descr = printable(descr.trim_matches(['\'', '"']));
        Error::unsupported(format!("its values are {descr:?} to NumPy; {known}"))
    };
    let (order, kind) = descr
        .trim_matches(['\'', '"'])
        .split_at_checked(1)
        .ok_or_else(unknown)?;
    if !matches!(order, ">" | "<" | "|" | "=") {
        return Err(unknown());
    }
    let element = match kind {
        "b1" => Stored::Bool,
        "u1" => Stored::U8,
        "i1" => Stored::I8,
        "i2" => Stored::I16,
        "u2" => Stored::U16,
        "i4" => Stored::I32,
        "u4" => Stored::U32,
        "i8" => Stored::I64,
        "u8" => Stored::U64,
        "f2" => Stored::F16,
        "f4" => Stored::F32,
        "f8" => Stored::F64,
        _ => return Err(unknown()),
    };
    Ok((element, order == ">"))
}
