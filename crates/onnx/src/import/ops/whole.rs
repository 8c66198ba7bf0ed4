//! Products of whole numbers, exactly, on devices that multiply real ones: in f64, and in f32 where
//! a device has no f64.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::{RoundingMode, Tensor};

use crate::import::call::Call;

/// An operand of a product: i32, none of them further from zero than `most`.
pub(super) struct Whole {
    pub(super) values: Tensor,
    most: u64,
}

impl Whole {
    /// Operand `i`, minus a zero point that broadcasts against it.
    pub(super) fn read(c: &Call<'_>, i: usize, zero: Option<Tensor>) -> Result<Self> {
        let element = c.element(i)?;
        let Some((low, high)) = element.range().filter(|_| element.bits() <= 16) else {
            let message = format!("operand {i} is {element}, not integers of 8 bits");
            return Err(Error::dtype(message).with_hint("MatMul and Conv multiply numbers of other types"));
        };
        let mut values = c.x(i)?.to_dtype(DType::I32)?;
        let mut most = high.max(-low);
        if let Some(zero) = zero {
            values = (values - zero.to_dtype(DType::I32)?)?;
            most = high - low;
        }
        let most = most.unsigned_abs();
        Ok(Self { values, most })
    }

    /// Two operands of about half as many bits each, and what the first is to be multiplied by before
    /// the second is added.
    fn halves(&self) -> Result<(Self, Self, i64)> {
        let step = 1i64 << (self.most.ilog2() + 1).div_ceil(2);
        let divisor = self.values.full_like(step)?;
        let values = self.values.div_rounded(&divisor, RoundingMode::Trunc)?;
        let low = Self {
            values: (&self.values - (&values * step)?)?,
            most: step.unsigned_abs() - 1,
        };
        let most = self.most / step.unsigned_abs();
        Ok((Self { values, most }, low, step))
    }
}

/// What `multiply` makes of two operands in a float dtype, where each result is a sum of `terms` products: exactly,
/// but that it is i32 with its overflow if the sums do not fit the dtype. Where they do not, one operand is split in
/// two halves of its bits.
pub(super) fn products(
    (a, b): (&Whole, &Whole),
    terms: usize,
    float: DType,
    multiply: &impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let room = if float == DType::F64 { 1u64 << 53 } else { 1 << 24 };
    let sum = a.most.saturating_mul(b.most).saturating_mul(terms as u64);
    if sum <= room || a.most.max(b.most) <= 1 {
        let y = multiply(&a.values.to_dtype(float)?, &b.values.to_dtype(float)?)?;
        // Some devices convolve in ways that round.
        return if float == DType::F64 { Ok(y) } else { y.round() };
    }
    let part = |a: &Whole, b: &Whole| wrapped(&products((a, b), terms, float, multiply)?);
    let (high, low, step) = if a.most >= b.most {
        let (high, low, step) = a.halves()?;
        (part(&high, b)?, part(&low, b)?, step)
    } else {
        let (high, low, step) = b.halves()?;
        (part(a, &high)?, part(a, &low)?, step)
    };
    (high * step)? + low
}

/// Exact whole numbers as i32, which wraps where a cast of floats would stop at the largest.
pub(super) fn wrapped(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(DType::I64)?.to_dtype(DType::I32)
}

#[cfg(test)]
mod tests {
    use polygrad_cpu::Cpu;
    use polygrad_tensor::Device;

    use super::*;

    fn tensor<T: polygrad_core::Element>(values: Vec<T>, dims: &[usize]) -> Result<Tensor> {
        Tensor::from_vec(values, dims, &Device::<Cpu>::default().into_any())
    }

    fn whole(values: Vec<i32>, dims: [usize; 2], most: u64) -> Result<Whole> {
        let values = tensor(values, &dims)?;
        Ok(Whole { values, most })
    }

    #[test]
    fn sums_that_f32_does_not_hold_are_exact() -> Result<()> {
        for (most, terms) in [(255, 256), (255, 257), (255, 5000), (128, 30_000), (30_000, 2)] {
            let value = |i: usize| {
                let most = most as i64;
                (most - (i as i64 * 37) % (2 * most + 1)) as i32
            };
            let (a, b): (Vec<i32>, Vec<i32>) = (
                (0..2 * terms).map(value).collect(),
                (0..3 * terms).map(|i| -value(7 * i + 1)).collect(),
            );
            let wanted = (0..6).map(|i| {
                let products = (0..terms).map(|k| i64::from(a[i / 3 * terms + k]) * i64::from(b[k * 3 + i % 3]));
                products.sum::<i64>() as i32
            });
            let wanted: Vec<i32> = wanted.collect();
            let (a, b) = (whole(a, [2, terms], most)?, whole(b, [terms, 3], most)?);
            for float in [DType::F32, DType::F64] {
                let y = products((&a, &b), terms, float, &|a, b| a.matmul(b))?.to_dtype(DType::I32)?;
                assert_eq!(y.to_vec::<i32>()?, wanted, "{terms} terms up to {most} in {float}");
            }
        }
        Ok(())
    }
}
