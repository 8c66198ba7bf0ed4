//! Encodings of values for MPI's reductions.
//!
//! MPI has no half precision, does not define its minimum and maximum for NaN, and does not define overflow of signed
//! integers; in Open MPI 5, sums of bytes saturate. So half precision is sent as f32, floats for minimum and maximum as
//! integers with the same order, integers for sums as unsigned integers, and bytes for sums as wider integers.

use polygrad_core::communicator::Reduction;
use polygrad_core::{DType, bf16, f16};

use crate::ffi::{Datatype, Operation};

/// The encoding of a dtype for a reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    dtype: DType,
    op: Reduction,
    pub(crate) datatype: Datatype,
}

impl Wire {
    pub(crate) fn new(dtype: DType, op: Reduction) -> Self {
        let datatype = match (dtype, op) {
            (DType::U8 | DType::I32, Reduction::Sum) => Datatype::U32,
            (DType::U8 | DType::Bool, _) => Datatype::U8,
            (DType::I64, Reduction::Sum) => Datatype::U64,
            (DType::F16 | DType::BF16 | DType::F32, Reduction::Sum) => Datatype::F32,
            (DType::F64, Reduction::Sum) => Datatype::F64,
            (DType::I32 | DType::F16 | DType::BF16 | DType::F32, _) => Datatype::I32,
            (DType::I64 | DType::F64, _) => Datatype::I64,
        };
        Self { dtype, op, datatype }
    }

    pub(crate) fn operation(self) -> Operation {
        match self.op {
            Reduction::Sum => Operation::Sum,
            Reduction::Min => Operation::Min,
            Reduction::Max => Operation::Max,
        }
    }

    /// Encodes values to send.
    pub(crate) fn encode(self, values: &[u8], to: &mut [u8]) {
        let sum = self.op == Reduction::Sum;
        match self.dtype {
            DType::U8 if sum => each(values, to, |x: u8| u32::from(x)),
            DType::F16 if sum => each(values, to, f16::to_f32),
            DType::BF16 if sum => each(values, to, bf16::to_f32),
            DType::F16 => each(values, to, |x: f16| self.key(x.to_f32())),
            DType::BF16 => each(values, to, |x: bf16| self.key(x.to_f32())),
            DType::F32 if !sum => each(values, to, |x| self.key(x)),
            DType::F64 if !sum => each(values, to, |x| self.long_key(x)),
            _ => to.copy_from_slice(values),
        }
    }

    /// Decodes received values.
    pub(crate) fn decode(self, values: &[u8], to: &mut [u8]) {
        let sum = self.op == Reduction::Sum;
        match self.dtype {
            DType::U8 if sum => each(values, to, |x: u32| x as u8),
            DType::F16 if sum => each(values, to, f16::from_f32),
            DType::BF16 if sum => each(values, to, bf16::from_f32),
            DType::F16 => each(values, to, |key| f16::from_f32(self.float(key))),
            DType::BF16 => each(values, to, |key| bf16::from_f32(self.float(key))),
            DType::F32 if !sum => each(values, to, |key| self.float(key)),
            DType::F64 if !sum => each(values, to, |key| self.long_float(key)),
            _ => to.copy_from_slice(values),
        }
    }

    /// The key of NaN, which wins against every other.
    fn nan(self) -> i32 {
        if self.op == Reduction::Min { i32::MIN } else { i32::MAX }
    }

    fn long_nan(self) -> i64 {
        if self.op == Reduction::Min { i64::MIN } else { i64::MAX }
    }

    fn key(self, x: f32) -> i32 {
        if x.is_nan() {
            self.nan()
        } else {
            flipped(x.to_bits().cast_signed())
        }
    }

    fn float(self, key: i32) -> f32 {
        if key == self.nan() {
            f32::NAN
        } else {
            f32::from_bits(flipped(key).cast_unsigned())
        }
    }

    fn long_key(self, x: f64) -> i64 {
        if x.is_nan() {
            self.long_nan()
        } else {
            long_flipped(x.to_bits().cast_signed())
        }
    }

    fn long_float(self, key: i64) -> f64 {
        if key == self.long_nan() {
            f64::NAN
        } else {
            f64::from_bits(long_flipped(key).cast_unsigned())
        }
    }
}

/// Maps the bits of a float to an integer with the same order, by flipping the lower bits of negative numbers, whose
/// order would else be reversed. It is its own inverse.
fn flipped(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

fn long_flipped(bits: i64) -> i64 {
    bits ^ ((bits >> 63) & i64::MAX)
}

fn each<T: bytemuck::AnyBitPattern, U: bytemuck::NoUninit + bytemuck::AnyBitPattern>(
    from: &[u8],
    to: &mut [u8],
    f: impl Fn(T) -> U,
) {
    let (from, to) = (from.chunks_exact(size_of::<T>()), to.chunks_exact_mut(size_of::<U>()));
    for (from, to) in from.zip(to) {
        to.copy_from_slice(bytemuck::bytes_of(&f(bytemuck::pod_read_unaligned(from))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_floats_are() {
        let floats = [
            f64::NEG_INFINITY,
            -2.5,
            -1e-320,
            -0.0,
            0.0,
            1e-320,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        for op in [Reduction::Min, Reduction::Max] {
            let (long, short) = (Wire::new(DType::F64, op), Wire::new(DType::F32, op));
            let keys = floats.map(|x| long.long_key(x));
            assert!(keys.is_sorted() && keys[0] > i64::MIN && keys[8] < i64::MAX);
            let keys = floats.map(|x| short.key(x as f32));
            assert!(keys.is_sorted() && keys[0] > i32::MIN && keys[8] < i32::MAX);
            for x in floats {
                assert_eq!(long.long_float(long.long_key(x)).to_bits(), x.to_bits());
                assert_eq!(short.float(short.key(x as f32)).to_bits(), (x as f32).to_bits());
            }
            assert!(long.long_float(long.long_key(f64::NAN)).is_nan());
            assert!(short.float(short.key(-f32::NAN)).is_nan());
        }
    }
}
