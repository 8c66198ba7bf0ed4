//! Values that every rank can compute for every rank, and their reductions.

use polygrad_core::communicator::{HostBuffer, HostSlice, HostSliceMut, Reduction};
use polygrad_core::{DType, HostTensor, Result, Shape};

/// The kind of values in a slice.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Small whole numbers, whose sum is exact in every dtype.
    Small,
    /// Floats of many magnitudes, whose sum depends on its order; integers that wrap.
    Wild,
}

/// The values of one rank.
pub(super) fn values(dtype: DType, len: usize, kind: Kind, seed: u64, rank: usize) -> Result<HostTensor> {
    let seed = mixed(seed ^ ((rank as u64) << 32));
    let bits = |i: usize| mixed(seed.wrapping_add(i as u64));
    let shape = Shape::new(&[len])?;
    if matches!(kind, Kind::Small) {
        let small = (0..len).map(|i| (bits(i) % 8) as i64).collect();
        return HostTensor::new(shape, small)?.try_cast(dtype);
    }
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
            let float = |i| {
                let bits = bits(i);
                let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
                (unit - 0.5) * f64::from(1u32 << (bits % 12)) / 32.0
            };
            HostTensor::new(shape, (0..len).map(float).collect())?.try_cast(dtype)
        }
        DType::I64 => HostTensor::new(shape, (0..len).map(|i| bits(i).cast_signed()).collect()),
        DType::I32 => HostTensor::new(shape, (0..len).map(|i| bits(i) as i32).collect()),
        DType::U8 => HostTensor::new(shape, (0..len).map(|i| bits(i) as u8).collect()),
        DType::Bool => HostTensor::new(shape, (0..len).map(|i| bits(i) % 2 == 1).collect()),
    }
}

/// SplitMix64.
pub(super) fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Mixes bytes into a number, so that ranks can compare what they have.
pub(super) fn digest(before: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(mixed(before ^ bytes.len() as u64), |sum, word| mixed(sum ^ word))
}

/// A tensor's values as a slice to send.
pub(super) fn slice(values: &HostTensor) -> Result<HostSlice<'_>> {
    HostSlice::from_bytes(values.dtype(), values.bytes())
}

/// The first error in values that should be the reduction of those of all ranks.
pub(super) fn wrong(got: &HostTensor, inputs: &[HostTensor], op: Reduction) -> Result<Option<String>> {
    let dtype = got.dtype();
    if op == Reduction::Sum && dtype.is_float() {
        return Ok(wrong_sum(got, inputs));
    }
    let mut buffer = HostBuffer::copied(inputs[0].bytes())?;
    for input in &inputs[1..] {
        op.apply(&mut HostSliceMut::from_bytes(dtype, buffer.bytes_mut())?, slice(input)?)?;
    }
    let expected = HostTensor::from_bytes(dtype, *got.shape(), buffer.bytes())?;
    Ok(different(got, &expected))
}

/// The first difference of two tensors: bit by bit, except for the sign of zero and the payload of NaN.
pub(super) fn different(got: &HostTensor, expected: &HostTensor) -> Option<String> {
    if got.bytes() == expected.bytes() {
        return None;
    }
    let size = got.dtype().size();
    let mut pairs = got.bytes().chunks(size).zip(expected.bytes().chunks(size));
    if !got.dtype().is_float() {
        let at = pairs.position(|(got, expected)| got != expected)?;
        let (got, expected) = (got.to_f64_vec()[at], expected.to_f64_vec()[at]);
        return Some(format!("value {at} is {got}, not {expected}"));
    }
    let (got, expected) = (got.to_f64_vec(), expected.to_f64_vec());
    let same = |(got, expected): (&f64, &f64)| got == expected || got.is_nan() && expected.is_nan();
    let at = got.iter().zip(&expected).position(|pair| !same(pair))?;
    Some(format!("value {at} is {}, not {}", got[at], expected[at]))
}

/// Sums may be computed in any order, with one rounding for each pair.
fn wrong_sum(got: &HostTensor, inputs: &[HostTensor]) -> Option<String> {
    let epsilon = match got.dtype() {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        DType::F32 => 2f64.powi(-24),
        // The sum used for comparison is rounded, too.
        _ => 2f64.powi(-52),
    };
    let got = got.to_f64_vec();
    let (mut sums, mut sizes) = (vec![0f64; got.len()], vec![0f64; got.len()]);
    for input in inputs {
        let mut at = 0;
        input.each_f64(|x| {
            sums[at] += x;
            sizes[at] += x.abs();
            at += 1;
        });
    }
    // One per cent more, since sums of half precision are rounded to f32 first.
    let bound = 1.01 * ((1.0 + epsilon).powi(inputs.len() as i32 - 1) - 1.0);
    let near = |i: usize| (got[i] - sums[i]).abs() <= bound * sizes[i];
    let at = (0..got.len()).find(|&i| !near(i))?;
    Some(format!("value {at} is {}, not {}", got[at], sums[at]))
}
