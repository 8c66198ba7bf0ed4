//! Number types in files.

use std::io::{self, Read};

use polygrad_core::{Element, bf16, dispatch_dtype, f16};
use polygrad_tensor::{DType, Error, ErrorKind, HostTensor, Result, Shape};

/// Bytes read at a time, a multiple of every element's size.
const PIECE: usize = 1 << 16;

/// A number type in files. Integer types that no dtype matches are read as wider ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// One byte, 0 or 1.
    Bool,
    /// 8 bits, unsigned.
    U8,
    /// 8 bits, signed: read as i32.
    I8,
    /// 16 bits, signed: read as i32.
    I16,
    /// 16 bits, unsigned: read as i32.
    U16,
    /// 32 bits, signed.
    I32,
    /// 32 bits, unsigned: read as i64.
    U32,
    /// 64 bits, signed.
    I64,
    /// 64 bits, unsigned: read as i64 if it is below 2⁶³.
    U64,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

impl Stored {
    /// Bytes of a number.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The dtype it is read as.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Bool => DType::Bool,
            Self::U8 => DType::U8,
            Self::I8 | Self::I16 | Self::U16 | Self::I32 => DType::I32,
            Self::U32 | Self::I64 | Self::U64 => DType::I64,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
        }
    }

    /// Its short name: `f32`, `u16` …
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            _ => self.dtype().name(),
        }
    }

    /// Reads the values of a shape in row-major order, and nothing after them. They are read in small pieces, so that a
    /// tensor needs only its own memory and not twice that.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] before anything is read; [`ErrorKind::Io`] if the reader fails or ends early;
    /// [`ErrorKind::Format`] at a bool that is neither 0 nor 1; [`ErrorKind::Unsupported`] at a u64 too large for i64.
    pub fn read(self, shape: Shape, big_endian: bool, from: impl Read) -> Result<HostTensor> {
        let values = Values {
            shape,
            big_endian,
            from,
        };
        match self {
            Self::Bool => values.read(must_be_bools, |[byte]: [u8; 1]| byte != 0),
            Self::U8 => values.read(any, |[byte]: [u8; 1]| byte),
            Self::I8 => values.read(any, |[byte]: [u8; 1]| i32::from(byte as i8)),
            Self::I16 => values.read(any, |bytes| i32::from(i16::from_le_bytes(bytes))),
            Self::U16 => values.read(any, |bytes| i32::from(u16::from_le_bytes(bytes))),
            Self::I32 => values.read(any, i32::from_le_bytes),
            Self::U32 => values.read(any, |bytes| i64::from(u32::from_le_bytes(bytes))),
            Self::I64 => values.read(any, i64::from_le_bytes),
            Self::U64 => values.read(must_be_below_2_63, i64::from_le_bytes),
            Self::F16 => values.read(any, |bytes| f16::from_bits(u16::from_le_bytes(bytes))),
            Self::BF16 => values.read(any, |bytes| bf16::from_bits(u16::from_le_bytes(bytes))),
            Self::F32 => values.read(any, f32::from_le_bytes),
            Self::F64 => values.read(any, f64::from_le_bytes),
        }
    }
}

fn any<const N: usize>(_: &[[u8; N]]) -> Result<()> {
    Ok(())
}

fn must_be_bools(bytes: &[[u8; 1]]) -> Result<()> {
    match bytes.iter().all(|[byte]| *byte <= 1) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Format, "it holds a bool that is neither 0 nor 1")),
    }
}

fn must_be_below_2_63(numbers: &[[u8; 8]]) -> Result<()> {
    match numbers.iter().find(|number| number[7] >= 128) {
        None => Ok(()),
        Some(&number) => {
            let number = u64::from_le_bytes(number);
            Err(
                Error::unsupported(format!("it holds the u64 {number}, and no i64 can hold that"))
                    .with_hint("convert it to i64 or f64 before saving"),
            )
        }
    }
}

struct Values<R> {
    shape: Shape,
    big_endian: bool,
    from: R,
}

impl<R: Read> Values<R> {
    fn read<T: Element, const N: usize>(
        mut self,
        check: impl Fn(&[[u8; N]]) -> Result<()>,
        number: impl Fn([u8; N]) -> T,
    ) -> Result<HostTensor> {
        let mut values: Vec<T> = reserved(self.shape.numel())?;
        let mut left = self.shape.numel() * N;
        let mut piece: Vec<u8> = reserved(left.min(PIECE))?;
        piece.resize(left.min(PIECE), 0);
        while left > 0 {
            let bytes = &mut piece[..left.min(PIECE)];
            self.from.read_exact(bytes).map_err(unreadable)?;
            left -= bytes.len();
            let (numbers, _) = bytes.as_chunks_mut::<N>();
            if self.big_endian {
                numbers.iter_mut().for_each(|number| number.reverse());
            }
            check(numbers)?;
            values.extend(numbers.iter().map(|&bytes| number(bytes)));
        }
        HostTensor::new(self.shape, values)
    }
}

/// An error of a reader as [`ErrorKind::Io`].
#[cold]
pub fn unreadable(error: io::Error) -> Error {
    let what = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
        _ => error.to_string(),
    };
    Error::new(ErrorKind::Io, what).with_source(error)
}

/// An empty vector with room for `count` values, allocated before they are read.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`].
pub fn reserved<T>(count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|e| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::new(
            ErrorKind::OutOfMemory,
            format!("its {bytes} bytes do not fit into memory"),
        )
        .with_source(e)
    })?;
    Ok(values)
}

/// The tensor whose elements lie in `flat` from `offset` on, with the given strides in elements, copied to memory of
/// its own.
///
/// # Errors
/// [`ErrorKind::Format`] if an element would lie outside `flat`; [`ErrorKind::OutOfMemory`].
pub fn strided(flat: &HostTensor, offset: usize, shape: Shape, strides: &[usize]) -> Result<HostTensor> {
    let extents = || shape.iter().zip(strides);
    let last = extents().try_fold(offset, |last, (&extent, &stride)| {
        last.checked_add(extent.saturating_sub(1).checked_mul(stride)?)
    });
    let empty = shape.numel() == 0;
    if strides.len() != shape.rank() || !empty && last.is_none_or(|last| last >= flat.shape().numel()) {
        let message = format!(
            "a view of {shape} with strides {strides:?} from {offset} on is not within its {} values",
            flat.shape().numel()
        );
        return Err(Error::new(ErrorKind::Format, message));
    }
    dispatch_dtype!(flat.dtype(), T => {
        let from = flat.as_slice::<T>()?;
        let mut values: Vec<T> = reserved(shape.numel())?;
        let (outer, row) = shape.split_at(shape.rank().saturating_sub(1));
        let (extent, stride) = (row.first().copied().unwrap_or(1), strides.last().copied().unwrap_or(1));
        let mut index = vec![0; outer.len()];
        let rows: usize = if empty { 0 } else { outer.iter().product() };
        for _ in 0..rows {
            let start = index.iter().zip(strides).fold(offset, |start, (i, stride)| start + i * stride);
            values.extend((0..extent).map(|i| from[start + i * stride]));
            for axis in (0..outer.len()).rev() {
                index[axis] += 1;
                if index[axis] < outer[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        HostTensor::new(shape, values)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_orders_are_read_and_widened() {
        let read = |stored: Stored, bytes: &[u8], big_endian| {
            let shape = Shape::from([bytes.len() / stored.size()]);
            stored
                .read(shape, big_endian, bytes)
                .map(|host| (host.dtype(), host.to_f64_vec()))
        };
        assert_eq!(
            read(Stored::I8, &[255, 1], false).unwrap(),
            (DType::I32, vec![-1.0, 1.0])
        );
        assert_eq!(
            read(Stored::U16, &[255, 255], false).unwrap(),
            (DType::I32, vec![65535.0])
        );
        assert_eq!(
            read(Stored::I16, &[0, 1, 255, 255], true).unwrap(),
            (DType::I32, vec![1.0, -1.0])
        );
        assert_eq!(
            read(Stored::U32, &[255; 4], false).unwrap(),
            (DType::I64, vec![4294967295.0])
        );
        assert_eq!(
            read(Stored::BF16, &[0x3f, 0xc0], true).unwrap(),
            (DType::BF16, vec![1.5])
        );
        let refused = |stored, bytes| read(stored, bytes, false).unwrap_err().to_string();
        assert!(refused(Stored::U64, &[255; 8]).contains("no i64"));
        assert!(refused(Stored::Bool, &[0, 2]).contains("neither 0 nor 1"));
        let short = Stored::F32.read(Shape::from([2]), false, &[0u8; 7][..]).unwrap_err();
        assert_eq!((short.kind(), short.message()), (ErrorKind::Io, "it ends too early"));
    }

    #[test]
    fn views_are_gathered() {
        let flat = HostTensor::new(Shape::from([6]), vec![0i32, 1, 2, 3, 4, 5]).unwrap();
        let view = |offset, dims: &[usize], strides: &[usize]| {
            strided(&flat, offset, Shape::new(dims).unwrap(), strides).map(|host| host.to_f64_vec())
        };
        assert_eq!(view(0, &[3, 2], &[1, 3]).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(view(4, &[], &[]).unwrap(), [4.0]);
        assert_eq!(view(5, &[2, 2], &[0, 0]).unwrap(), [5.0; 4]);
        assert_eq!(view(9, &[0, 2], &[1, 1]).unwrap(), [0.0; 0]);
        for (offset, dims, strides) in [
            (5, &[2][..], &[1][..]),
            (6, &[], &[]),
            (0, &[2, 2], &[1]),
            (1, &[2, 2], &[usize::MAX, 1]),
            (0, &[3], &[usize::MAX]),
        ] {
            assert!(view(offset, dims, strides).is_err(), "{offset} {dims:?} {strides:?}");
        }
    }
}
