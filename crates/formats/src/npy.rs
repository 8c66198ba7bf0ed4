//! NumPy's file format for one array.
//!
//! Source: NumPy's documentation, "numpy.lib.format".

use std::io::Read;

use polygrad_core::printable;
use polygrad_nn::files::Stored;
use polygrad_tensor::{DType, Error, Result, Shape};

use crate::source::damaged;

/// The first bytes of every file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Alignment of the values, in bytes.
const ALIGNMENT: usize = 64;

/// The longest header that is read; NumPy's own limit is 10,000 bytes.
const MAX_HEADER: usize = 1 << 16;

/// The header of a `.npy` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    /// The number type.
    pub(crate) element: Stored,
    /// Whether the most significant byte comes first.
    pub(crate) big_endian: bool,
    /// The array's shape.
    pub(crate) shape: Shape,
    /// Whether the first axis is the fastest in the file, instead of the last.
    pub(crate) column_major: bool,
    /// Number of bytes before the values.
    pub(crate) length: usize,
}

impl NpyHeader {
    /// Reads a header, and nothing after it. If no dtype can hold the array's numbers, the error has its own kind,
    /// `Unsupported`.
    pub(crate) fn read(mut from: impl Read) -> Result<Self> {
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
}

/// The strides, in elements, of a layout in which the first axis is the fastest.
pub(crate) fn column_major(shape: &Shape) -> Vec<usize> {
    let strides = shape.iter().scan(1, |next, &extent| {
        let stride = *next;
        *next *= extent.max(1);
        Some(stride)
    });
    strides.collect()
}

/// NumPy's name of a dtype. bf16, which NumPy lacks, is written as by `ml_dtypes`: two bytes.
pub const fn npy_descr(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
    }
}

/// The header of an array in a `.npy` file.
pub(crate) fn npy_header(descr: &str, shape: &Shape) -> Vec<u8> {
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

/// The value of an entry of the header, which is a Python dict on one line.
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

/// The number type of a NumPy dtype, and whether it is big-endian.
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
        // As NumPy writes `ml_dtypes`'s bfloat16.
        "V2" => Stored::BF16,
        _ => return Err(unknown()),
    };
    Ok((element, order == ">"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str) -> Result<NpyHeader> {
        let length = (header.len() as u16).to_le_bytes();
        NpyHeader::read([MAGIC, &[1, 0], &length, header.as_bytes()].concat().as_slice())
    }

    #[test]
    fn what_is_written_is_read() {
        for dtype in [
            DType::F32,
            DType::F64,
            DType::F16,
            DType::BF16,
            DType::I32,
            DType::I64,
            DType::U8,
            DType::Bool,
        ] {
            for dims in [&[][..], &[3], &[2, 3], &[0, 4]] {
                let shape = Shape::new(dims).unwrap();
                let bytes = npy_header(npy_descr(dtype), &shape);
                assert!(bytes.len().is_multiple_of(ALIGNMENT));
                let header = NpyHeader::read(bytes.as_slice()).unwrap();
                assert_eq!((header.shape, header.length), (shape, bytes.len()));
                assert_eq!((header.element.dtype(), header.column_major), (dtype, false));
                assert!((0..bytes.len()).all(|end| NpyHeader::read(&bytes[..end]).is_err()));
            }
        }
    }

    #[test]
    fn other_headers_are_read() {
        let spaced = read("{'descr' : '>i2', 'fortran_order' : True, 'shape' : (2, 3L), }").unwrap();
        assert_eq!(spaced.shape.dims(), [2, 3]);
        assert!(spaced.big_endian && spaced.column_major && spaced.element == Stored::I16);
        assert_eq!(column_major(&spaced.shape), [1, 2]);
        let endless = npy_header(npy_descr(DType::F32), &Shape::from([2]));
        assert!(NpyHeader::read(endless.as_slice().chain(std::io::repeat(0))).is_ok());
    }

    #[test]
    fn broken_headers_are_refused() {
        for (header, says) in [
            ("{'descr': 'O', 'fortran_order': False, 'shape': (1,)}", "\"O\""),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "<c8"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "(-1,)"),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999,)}",
                "shape",
            ),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4)}",
                "",
            ),
            ("{'descr': '<f4', 'fortran_order': False}", "no shape"),
            ("{'descr': '<f4', 'shape': (1,)}", "fortran_order"),
            ("{'descr': '<f4', 'fortran_order': Tru, 'shape': (1,)}", "Tru"),
            ("{'descr': '<f4', 'fortran_order': , 'shape': (1,)}", "fortran_order"),
            ("{'descr': 'é4', 'fortran_order': False, 'shape': (1,)}", ""),
        ] {
            let error = read(header).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(NpyHeader::read(std::io::repeat(0x93)).is_err());
        let long = [MAGIC, &[2, 0], &u32::MAX.to_le_bytes()].concat();
        let error = NpyHeader::read(long.as_slice().chain(std::io::repeat(b' '))).unwrap_err();
        assert!(error.to_string().contains("header is"), "{error}");
    }
}
