//! Arrays of NumPy, within a limit on memory.

use std::io::{self, Read, Write};

use polygrad::backend::HostTensor;
use polygrad::nn::files::{NpyHeader, write_npy};

/// Reads an array: its header, and then as many bytes as that says and no more. Integers that no dtype holds become wider ones: i32, or i64.
///
/// # Errors
/// Says what is wrong with the content, or that it would take more than `most` bytes.
pub(super) fn read(mut from: impl Read, most: usize) -> Result<HostTensor, String> {
    let header = NpyHeader::read(&mut from).map_err(|e| e.to_string())?;
    let (shape, size) = (header.shape, header.element.size());
    if shape.numel().checked_mul(size).is_none_or(|wanted| wanted > most) {
        return Err(format!(
            "{shape} of {size} bytes each are more than the limit of {most} bytes; --max-memory raises it"
        ));
    }
    header.values(from).map_err(|e| e.to_string())
}

/// Writes an array.
///
/// # Errors
/// Those of the writer.
pub(super) fn write(to: &mut impl Write, host: &HostTensor) -> io::Result<()> {
    write_npy(to, host)
}

#[cfg(test)]
mod tests {
    use polygrad::backend::{DType, Shape, bf16};

    use super::*;

    /// What every file begins with, and of what the place of the values is a multiple.
    const MAGIC: &[u8] = b"\x93NUMPY";
    const ALIGNMENT: usize = 64;

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
