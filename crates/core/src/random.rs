//! Counter-based random numbers: the same seed gives the same numbers on every backend.

use crate::host::room;
use crate::{DType, Element, Error, HostTensor, Result, Shape, bf16, f16};

/// The distribution of random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Uniform on `[low, high)`.
    Uniform {
        /// Smallest value.
        low: f64,
        /// Upper bound, not reached.
        high: f64,
    },
    /// Normal, by Box and Muller.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// 1 with probability `p`, else 0.
    Bernoulli {
        /// Probability of a 1.
        p: f64,
    },
    /// Integers, uniform on `low..high`; both within ±2^53.
    Integers {
        /// Smallest value.
        low: i64,
        /// Upper bound, not reached.
        high: i64,
    },
}

/// The beginning of a draw in the stream of a seed. Each element uses one counter, from `offset` up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomKey {
    /// The seed.
    pub seed: u64,
    /// The first counter.
    pub offset: u64,
}

/// Philox-4x32 with ten rounds: four random words for a counter under a key.
///
/// Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#[inline]
pub fn philox4x32(seed: u64, counter: u64) -> [u32; 4] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    let mut state = [counter as u32, (counter >> 32) as u32, 0, 0];
    for _ in 0..10 {
        let a = u64::from(state[0]) * 0xD251_1F53;
        let b = u64::from(state[2]) * 0xCD9E_8D57;
        state = [
            (b >> 32) as u32 ^ state[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ state[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    state
}

/// A number on `[0, 1)` from 53 random bits.
#[inline]
fn unit(high: u32, low: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The value for one counter.
#[inline]
pub fn draw(distribution: Distribution, seed: u64, counter: u64) -> f64 {
    let words = philox4x32(seed, counter);
    let u = unit(words[0], words[1]);
    match distribution {
        Distribution::Uniform { low, high } => low + u * (high - low),
        Distribution::Normal { mean, std } => {
            let v = unit(words[2], words[3]);
            let radius = (-2.0 * (1.0 - u).ln()).sqrt();
            mean + std * radius * (std::f64::consts::TAU * v).cos()
        }
        Distribution::Bernoulli { p } => f64::from(u < p),
        Distribution::Integers { low, high } => {
            let span = high.wrapping_sub(low) as u64;
            let bits = u64::from(words[0]) << 32 | u64::from(words[1]);
            let index = (u128::from(bits) * u128::from(span)) >> 64;
            low.wrapping_add(index as i64) as f64
        }
    }
}

/// Draws a tensor on the host. This is the reference, and the default for backends without a generator of their own.
///
/// A uniform draw that would round up to `high` in the dtype becomes the largest number below it.
///
/// # Errors
/// When the bounds are in the wrong order or not finite, `p` is not a probability, or memory runs out.
pub fn random_host(shape: Shape, distribution: Distribution, dtype: DType, key: RandomKey) -> Result<HostTensor> {
    check(distribution)?;
    let values = (0..shape.numel() as u64).map(|i| draw(distribution, key.seed, key.offset.wrapping_add(i)));
    let limit = match distribution {
        Distribution::Uniform { low, high } if high > low => high,
        _ => f64::INFINITY,
    };
    match dtype {
        DType::F32 => gathered(shape, values.map(|v| below(v as f32, limit, f32::next_down))),
        DType::F16 => gathered(
            shape,
            values.map(|v| below(<f16 as Element>::from_f64(v), limit, next_down_f16)),
        ),
        DType::BF16 => gathered(
            shape,
            values.map(|v| below(<bf16 as Element>::from_f64(v), limit, next_down_bf16)),
        ),
        DType::F64 => gathered(shape, values.map(|v| below(v, limit, f64::next_down))),
        DType::I64 => gathered(shape, values.map(|v| v as i64)),
        DType::I32 => gathered(shape, values.map(|v| v as i32)),
        DType::U8 => gathered(shape, values.map(|v| v as u8)),
        DType::Bool => gathered(shape, values.map(|v| v != 0.0)),
    }
}

/// Collects values into a tensor; fails if memory runs out.
fn gathered<T: Element>(shape: Shape, values: impl Iterator<Item = T>) -> Result<HostTensor> {
    let mut memory = room(shape.numel())?;
    memory.extend(values);
    HostTensor::new(shape, memory)
}

/// Integers are drawn through f64, which is exact up to this limit.
const EXACT: i64 = 1 << 53;

/// Checks that a distribution's parameters make sense.
///
/// # Errors
/// When the bounds are in the wrong order or not finite, or `p` is not a probability.
pub fn check(distribution: Distribution) -> Result<()> {
    let (fine, op) = match distribution {
        Distribution::Uniform { low, high } => (low <= high && low.is_finite() && high.is_finite(), "uniform"),
        Distribution::Normal { mean, std } => (std >= 0.0 && mean.is_finite() && std.is_finite(), "normal"),
        Distribution::Bernoulli { p } => ((0.0..=1.0).contains(&p), "bernoulli"),
        Distribution::Integers { low, high } => (low < high && low >= -EXACT && high <= EXACT, "randint"),
    };
    if fine {
        return Ok(());
    }
    let text = match distribution {
        Distribution::Uniform { low, high } => {
            format!("the bounds {low} and {high} must be finite, and the lower one come first")
        }
        Distribution::Normal { mean, std } => {
            format!("the mean {mean} and the standard deviation {std} must be finite, and the latter not negative")
        }
        Distribution::Bernoulli { p } => format!("{p:?} is no probability: it must be from 0 to 1"),
        Distribution::Integers { low, high } if low >= high => {
            format!("there is no integer from {low} up to, and not including, {high}")
        }
        Distribution::Integers { low, high } => format!("{low}..{high} goes beyond ±2^53"),
    };
    Err(Error::invalid(text).with_op(op))
}

fn below<T: Element>(value: T, limit: f64, next_down: fn(T) -> T) -> T {
    if value.to_f64() >= limit {
        next_down(T::from_f64(limit))
    } else {
        value
    }
}

/// The next smaller value; `value` is finite, as the bounds of a draw are.
fn next_down_f16(value: f16) -> f16 {
    let bits = value.to_bits();
    f16::from_bits(step_down(bits))
}

fn next_down_bf16(value: bf16) -> bf16 {
    bf16::from_bits(step_down(value.to_bits()))
}

/// One step towards minus infinity in the sign-and-magnitude order of IEEE numbers of 16 bits.
fn step_down(bits: u16) -> u16 {
    match bits {
        0 | 0x8000 => 0x8001,
        positive if positive < 0x8000 => positive - 1,
        negative => negative + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_vectors() {
        // Known answers of the authors' Random123 library (kat_vectors, philox4x32 10).
        assert_eq!(philox4x32(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn draws_have_the_right_moments() {
        let shape = Shape::from([100_000]);
        let key = RandomKey { seed: 7, offset: 3 };
        let moments = |distribution| {
            let values = random_host(shape, distribution, DType::F32, key).unwrap().to_f64_vec();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
            (mean, var)
        };
        let (mean, var) = moments(Distribution::Normal { mean: 2.0, std: 3.0 });
        assert!((mean - 2.0).abs() < 0.05 && (var - 9.0).abs() < 0.2, "{mean} {var}");
        let (mean, var) = moments(Distribution::Uniform { low: -1.0, high: 1.0 });
        assert!(mean.abs() < 0.01 && (var - 1.0 / 3.0).abs() < 0.01, "{mean} {var}");
        let (mean, _) = moments(Distribution::Bernoulli { p: 0.25 });
        assert!((mean - 0.25).abs() < 0.01, "{mean}");
        let (mean, _) = moments(Distribution::Integers { low: -3, high: 4 });
        assert!(mean.abs() < 0.03, "{mean}");
    }

    #[test]
    fn uniform_stays_below_its_bound_in_narrow_dtypes() {
        let distribution = Distribution::Uniform { low: 0.0, high: 1.0 };
        let key = RandomKey { seed: 1, offset: 0 };
        for dtype in [DType::F16, DType::BF16] {
            let values = random_host(Shape::from([20_000]), distribution, dtype, key)
                .unwrap()
                .to_f64_vec();
            assert!(values.iter().all(|&v| (0.0..1.0).contains(&v)));
        }
    }

    #[test]
    fn offsets_continue_the_stream() {
        let distribution = Distribution::Normal { mean: 0.0, std: 1.0 };
        let draw = |len, offset| {
            let key = RandomKey { seed: 5, offset };
            random_host(Shape::from([len]), distribution, DType::F64, key)
                .unwrap()
                .to_f64_vec()
        };
        assert_eq!(draw(10, 0)[4..], draw(6, 4));
    }
}
