//! NumPy's file format for one array.

use std::io::{self, Read, Write};

use polygrad::backend::{DType, Element, HostTensor, Shape, f16, printable};

/// What every file begins with.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Where values start is a multiple of this.
const ALIGNMENT: usize = 64;

/// The longest header that is read; NumPy's own limit is 10,000 bytes.
const MAX_HEADER: usize = 1 << 16;

/// Reads an array: its header, and then as many bytes as that says and no more. Integers that no dtype holds become wider ones: i32, or i64.
///
/// # Errors
/// Says what is wrong with the content, or that it would take more than `most` bytes.
pub(super) fn read(mut from: impl Read, most: usize) -> Result<HostTensor, String> {
    let ends = |_| "it ends within its header, or cannot be read".to_owned();
    let mut start = [0; 8];
    from.read_exact(&mut start).map_err(ends)?;
    let [.., version, _] = start;
    if !start.starts_with(MAGIC) {
        return Err("it does not begin as .npy files do".into());
    }
    let mut length = [0; 4];
    let width = match version {
        1 => 2,
        2 | 3 => 4,
        other => return Err(format!("it is of version {other} of the format, and known are 1 to 3")),
    };
    from.read_exact(&mut length[..width]).map_err(ends)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER {
        return Err(format!(
            "its header is {length} bytes long, and at most {MAX_HEADER} are read"
        ));
    }
    let mut header = vec![0; length];
    from.read_exact(&mut header).map_err(ends)?;
    let header = std::str::from_utf8(&header).map_err(|_| "its header is no text")?;
    let descr = entry(header, "descr").ok_or("its header names no dtype")?;
    let descr = descr.trim_matches(['\'', '"']);
    let order = entry(header, "fortran_order").ok_or("its header does not say fortran_order")?;
    let column_major = match order {
        "True" => true,
        "False" => false,
        other => return Err(format!("its header has {} for fortran_order", printable(other))),
    };
    let mut dims = shape(entry(header, "shape").ok_or("its header names no shape")?)?;
    if column_major {
        dims.reverse();
    }
    let shape = Shape::new(&dims).map_err(|e| e.to_string())?;
    let host = decode(descr, shape, from, most)?;
    if column_major { transposed(&host) } else { Ok(host) }
}

/// An empty list with room for so many elements.
fn room<T>(count: usize) -> Result<Vec<T>, String> {
    let mut list = Vec::new();
    let bytes = count.saturating_mul(size_of::<T>());
    list.try_reserve_exact(count)
        .map_err(|_| format!("{bytes} bytes of memory could not be had"))?;
    Ok(list)
}

/// Writes an array. NumPy has no bf16, which becomes f32, exactly.
///
/// # Errors
/// Those of the writer.
pub(super) fn write(to: &mut impl Write, host: &HostTensor) -> io::Result<()> {
    let host = match host.dtype() {
        DType::BF16 => host.try_cast(DType::F32).map_err(io::Error::other)?,
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
    to.write_all(&[MAGIC, &[1, 0], &(padded as u16).to_le_bytes(), header.as_bytes()].concat())?;
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

/// The value of an entry of the header, a Python dict on one line.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let quoted = [format!("'{key}'"), format!("\"{key}\"")];
    let (_, rest) = quoted.iter().find_map(|key| header.split_once(key.as_str()))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
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

fn decode(descr: &str, shape: Shape, from: impl Read, most: usize) -> Result<HostTensor, String> {
    let known = "known are bool, floats of 16, 32 and 64 bits, and integers";
    let unknown = || format!("its values are {descr:?} to NumPy; {known}");
    let (order, kind) = descr.split_at_checked(1).ok_or_else(unknown)?;
    let size: usize = kind.get(1..).and_then(|size| size.parse().ok()).ok_or_else(unknown)?;
    if !matches!(order, ">" | "<" | "|" | "=") || !matches!(size, 1 | 2 | 4 | 8) {
        return Err(unknown());
    }
    let wanted = shape.numel().checked_mul(size).filter(|&wanted| wanted <= most);
    let wanted = wanted.ok_or_else(|| {
        format!("{shape} of {size} bytes each are more than the limit of {most} bytes; --max-memory raises it")
    })?;
    let mut bytes = room(wanted)?;
    from.take(wanted as u64)
        .read_to_end(&mut bytes)
        .map_err(|e| e.to_string())?;
    if bytes.len() < wanted {
        return Err(format!(
            "it has {} bytes of values, too few for {shape} of {size} each",
            bytes.len()
        ));
    }
    if order == ">" {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    match kind {
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
        _ => Err(unknown()),
    }
}

fn fill<T: Element, const N: usize>(
    shape: Shape,
    bytes: &[u8],
    read: impl Fn([u8; N]) -> T,
) -> Result<HostTensor, String> {
    let (chunks, _) = bytes.as_chunks::<N>();
    let mut values = room(shape.numel())?;
    values.extend(chunks.iter().map(|&chunk| read(chunk)));
    HostTensor::new(shape, values).map_err(|e| e.to_string())
}

/// Values whose axes stand in the reverse order.
fn transposed(host: &HostTensor) -> Result<HostTensor, String> {
    let dims: Vec<usize> = host.shape().iter().rev().copied().collect();
    let (size, from) = (host.dtype().size(), host.bytes());
    // A second copy is made of what is put in order here.
    drop(room::<u8>(from.len().saturating_mul(2))?);
    let mut bytes = room(from.len())?;
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

    const MAX_BYTES: usize = 1 << 20;

    fn write(host: &HostTensor) -> Vec<u8> {
        let mut file = Vec::new();
        super::write(&mut file, host).unwrap();
        file
    }

    fn read(file: &[u8]) -> Result<HostTensor, String> {
        super::read(file, MAX_BYTES)
    }

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
        let spaced = file(
            "{'descr' : '|u1', 'fortran_order' : True, 'shape' : (2, 3), }",
            &[1, 4, 2, 5, 3, 6],
        );
        assert_eq!(read(&spaced).unwrap().bytes(), [1, 2, 3, 4, 5, 6]);
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
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (1048576,)}",
                "limit of 1048576 bytes",
            ),
            ("{'descr': 'é4', 'fortran_order': False, 'shape': (1,)}", ""),
        ] {
            let error = read(&file(header, &[0; 8])).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn no_more_is_read_than_the_header_says() {
        let whole = write(&HostTensor::new(Shape::from([2]), vec![1f32, 2.0]).unwrap());
        let endless = whole.as_slice().chain(io::repeat(0));
        assert_eq!(super::read(endless, MAX_BYTES).unwrap().to_f64_vec(), [1.0, 2.0]);
        assert!(super::read(io::repeat(0x93), MAX_BYTES).is_err());
        let mut long = [MAGIC, &[2, 0], &u32::MAX.to_le_bytes()].concat();
        long.extend([b' '; 100]);
        assert!(
            super::read(long.as_slice().chain(io::repeat(b' ')), MAX_BYTES)
                .unwrap_err()
                .contains("header is")
        );
    }
}
