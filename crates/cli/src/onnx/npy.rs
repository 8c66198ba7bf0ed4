//! NumPy's file format for one array.

use polygrad::backend::{DType, HostTensor, Shape, f16};

/// What every file begins with.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Where values start is a multiple of this.
const ALIGNMENT: usize = 64;

/// Reads an array. Integers that no dtype holds become wider ones: i32, or i64.
///
/// # Errors
/// Says what is wrong with the content.
pub(super) fn read(bytes: &[u8]) -> Result<HostTensor, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin as .npy files do")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or("it ends within its header")?;
    let (length, rest) = match version[0] {
        1 => rest
            .split_first_chunk::<2>()
            .map(|(n, rest)| (u16::from_le_bytes(*n).into(), rest)),
        2 | 3 => rest
            .split_first_chunk::<4>()
            .map(|(n, rest)| (u32::from_le_bytes(*n) as usize, rest)),
        other => return Err(format!("it is of version {other} of the format, and known are 1 to 3")),
    }
    .ok_or("it ends within its header")?;
    if rest.len() < length {
        return Err("it ends within its header".into());
    }
    let (header, values) = rest.split_at(length);
    let header = std::str::from_utf8(header).map_err(|_| "its header is no text")?;
    let descr = entry(header, "descr").ok_or("its header names no dtype")?;
    let descr = descr.trim_matches(['\'', '"']);
    let column_major = entry(header, "fortran_order").is_some_and(|order| order == "True");
    let mut dims = shape(entry(header, "shape").ok_or("its header names no shape")?)?;
    if column_major {
        dims.reverse();
    }
    let shape = Shape::new(&dims).map_err(|e| e.to_string())?;
    let host = decode(descr, shape, values)?;
    if column_major { transposed(&host) } else { Ok(host) }
}

/// Writes an array. NumPy has no bf16, which becomes f32, exactly.
pub(super) fn write(host: &HostTensor) -> Vec<u8> {
    let host = match host.dtype() {
        DType::BF16 => host.cast(DType::F32),
        _ => host.clone(),
    };
    let descr = match host.dtype() {
        DType::F32 | DType::BF16 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
    };
    let mut shape: String = host.shape().iter().map(|extent| format!("{extent}, ")).collect();
    if host.shape().rank() > 1 {
        shape.truncate(shape.len() - 2);
    }
    let mut header = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}",
        shape.trim_end()
    );
    let before = MAGIC.len() + 4;
    let padded = (before + header.len() + 1).next_multiple_of(ALIGNMENT) - before;
    header.extend(std::iter::repeat_n(' ', padded - 1 - header.len()));
    header.push('\n');
    let mut file = [MAGIC, &[1, 0], &(padded as u16).to_le_bytes(), header.as_bytes()].concat();
    file.extend(ordered(host.bytes(), host.dtype().size(), cfg!(target_endian = "big")));
    file
}

/// The value of an entry of the header, a Python dict on one line.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = [format!("'{key}':"), format!("\"{key}\":")]
        .iter()
        .find_map(|key| header.split_once(key.as_str()))?;
    let rest = rest.trim_start();
    let end = match rest.starts_with('(') {
        true => rest.find(')')? + 1,
        false => rest.find([',', '}'])?,
    };
    Some(rest[..end].trim())
}

fn shape(text: &str) -> Result<Vec<usize>, String> {
    let inner = text.trim_start_matches('(').trim_end_matches(')');
    let extents = inner.split(',').map(str::trim).filter(|extent| !extent.is_empty());
    let extents = extents.map(|extent| extent.trim_end_matches('L').parse::<usize>());
    extents
        .collect::<Result<_, _>>()
        .map_err(|_| format!("its header has {text} for a shape"))
}

fn decode(descr: &str, shape: Shape, bytes: &[u8]) -> Result<HostTensor, String> {
    let known = "known are bool, floats of 16, 32 and 64 bits, and integers";
    let unknown = || format!("its values are {descr:?} to NumPy; {known}");
    let (order, kind) = descr.split_at_checked(1).ok_or_else(unknown)?;
    let size: usize = kind.get(1..).and_then(|size| size.parse().ok()).ok_or_else(unknown)?;
    let wanted = shape.numel().checked_mul(size).filter(|&wanted| wanted <= bytes.len());
    let wanted = wanted.ok_or_else(|| {
        format!(
            "it has {} bytes of values, too few for {shape} of {size} each",
            bytes.len()
        )
    })?;
    let bytes = match order {
        ">" => ordered(&bytes[..wanted], size, true),
        "<" | "|" | "=" => bytes[..wanted].to_vec(),
        _ => return Err(unknown()),
    };
    let tensor = match kind {
        "f2" => fill(shape, &bytes, |b| f16::from_bits(u16::from_le_bytes(b))),
        "f4" => fill(shape, &bytes, f32::from_le_bytes),
        "f8" => fill(shape, &bytes, f64::from_le_bytes),
        "b1" => fill(shape, &bytes, |[b]: [u8; 1]| b != 0),
        "u1" => fill(shape, &bytes, |[b]: [u8; 1]| b),
        "i1" => fill(shape, &bytes, |[b]: [u8; 1]| i32::from(b as i8)),
        "i2" => fill(shape, &bytes, |b| i32::from(i16::from_le_bytes(b))),
        "u2" => fill(shape, &bytes, |b| i32::from(u16::from_le_bytes(b))),
        "i4" => fill(shape, &bytes, i32::from_le_bytes),
        "u4" => fill(shape, &bytes, |b| i64::from(u32::from_le_bytes(b))),
        "i8" => fill(shape, &bytes, i64::from_le_bytes),
        "u8" => {
            let large = bytes.chunks_exact(8).any(|chunk| chunk[7] >= 128);
            if large {
                return Err("it holds a uint64 that no i64 can hold".into());
            }
            fill(shape, &bytes, i64::from_le_bytes)
        }
        _ => return Err(unknown()),
    };
    tensor.map_err(|e| e.to_string())
}

fn fill<T: polygrad::backend::Element, const N: usize>(
    shape: Shape,
    bytes: &[u8],
    read: impl Fn([u8; N]) -> T,
) -> polygrad::Result<HostTensor> {
    let (chunks, _) = bytes.as_chunks::<N>();
    HostTensor::new(shape, chunks.iter().map(|&chunk| read(chunk)).collect())
}

fn ordered(bytes: &[u8], size: usize, reverse: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if reverse {
        bytes.chunks_exact_mut(size.max(1)).for_each(<[u8]>::reverse);
    }
    bytes
}

/// Values whose axes stand in the reverse order.
fn transposed(host: &HostTensor) -> Result<HostTensor, String> {
    let dims: Vec<usize> = host.shape().iter().rev().copied().collect();
    let (size, from) = (host.dtype().size(), host.bytes());
    let mut bytes = Vec::with_capacity(from.len());
    let mut index = vec![0; dims.len()];
    for _ in 0..host.shape().numel() {
        // The first axis is the fastest in the file.
        let place = index
            .iter()
            .zip(&dims)
            .rev()
            .fold(0, |place, (i, extent)| place * extent + i);
        bytes.extend_from_slice(&from[place * size..][..size]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    let shape = Shape::new(&dims).map_err(|e| e.to_string())?;
    HostTensor::from_bytes(host.dtype(), shape, &bytes).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use polygrad::backend::bf16;

    use super::*;

    fn file(header: &str, values: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), values].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        for dtype in [
            DType::F32,
            DType::F64,
            DType::F16,
            DType::I32,
            DType::I64,
            DType::U8,
            DType::Bool,
        ] {
            for dims in [&[][..], &[3], &[2, 3], &[0, 4]] {
                let shape = Shape::new(dims).unwrap();
                let values = (0..shape.numel()).map(|i| i as f64).collect();
                let host = HostTensor::new(shape, values).unwrap().cast(dtype);
                let bytes = write(&host);
                assert_eq!((bytes.len() - host.bytes().len()) % ALIGNMENT, 0);
                let again = read(&bytes).unwrap();
                assert_eq!(
                    (again.dtype(), again.shape(), again.bytes()),
                    (dtype, host.shape(), host.bytes())
                );
            }
        }
        let half = HostTensor::scalar(bf16::from_f32(1.5));
        assert_eq!(read(&write(&half)).unwrap().to_f64_vec(), [1.5]);
    }

    #[test]
    fn other_orders_are_read() {
        let column_major = file(
            "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }",
            &[1, 4, 2, 5, 3, 6],
        );
        let host = read(&column_major).unwrap();
        assert_eq!(host.shape().dims(), [2, 3]);
        assert_eq!(host.to_f64_vec(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let big_endian = file(
            "{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }",
            &[0, 1, 255, 255],
        );
        assert_eq!(read(&big_endian).unwrap().to_f64_vec(), [1.0, -1.0]);
    }

    #[test]
    fn broken_files_are_refused() {
        let whole = write(&HostTensor::new(Shape::from([2]), vec![1f32, 2.0]).unwrap());
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{end}");
        }
        for (header, says) in [
            ("{'descr': 'O', 'shape': (1,)}", "\"O\""),
            ("{'descr': '<c8', 'shape': (1,)}", "<c8"),
            ("{'descr': '<f4', 'shape': (-1,)}", "(-1,)"),
            ("{'descr': '<f4', 'shape': (9999999999999999999,)}", "shape"),
            ("{'descr': '<f4', 'shape': (4294967296, 4294967296, 4)}", ""),
            ("{'descr': '<f4'}", "no shape"),
            ("{'descr': 'é4', 'shape': (1,)}", ""),
        ] {
            let error = read(&file(header, &[0; 8])).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
