//! Reductions of the values of several ranks.

use super::HostSlice;
use crate::{DType, Element, Error, Result, bf16, f16};

/// How the values of several ranks are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; not defined for bools.
    Sum,
    /// The smallest value; for bools, whether all are true. NaN wins.
    Min,
    /// The largest value; for bools, whether any is true. NaN wins.
    Max,
}

impl Reduction {
    /// Its name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// Reduces `other` into `into`, element by element. This defines what a reduction means; engines without a
    /// reduction of their own call it.
    ///
    /// # Errors
    /// Two dtypes or lengths, or bytes that are not aligned.
    pub fn apply(self, into: &mut super::HostSliceMut<'_>, other: HostSlice<'_>) -> Result<()> {
        if (into.dtype(), into.len()) != (other.dtype(), other.len()) {
            return Err(Error::invalid(format!(
                "{} of {} cannot be reduced into {} of {}",
                other.len(),
                other.dtype(),
                into.len(),
                into.dtype()
            )));
        }
        match into.dtype() {
            DType::F32 => self.each::<f32>(into, other, |a, b| a + b),
            DType::F64 => self.each::<f64>(into, other, |a, b| a + b),
            DType::F16 => self.each::<f16>(into, other, |a, b| f16::from_f32(a.to_f32() + b.to_f32())),
            DType::BF16 => self.each::<bf16>(into, other, |a, b| bf16::from_f32(a.to_f32() + b.to_f32())),
            DType::I32 => self.each::<i32>(into, other, i32::wrapping_add),
            DType::I64 => self.each::<i64>(into, other, i64::wrapping_add),
            DType::U8 => self.each::<u8>(into, other, u8::wrapping_add),
            DType::Bool => self.each::<u8>(into, other, |a, b| a | b),
        }
    }

    /// Replaces `values` by the reduction of all ranks' values, which `gather` collects, in the order of the ranks. For
    /// engines whose own reduction means something else.
    ///
    /// # Errors
    /// Those of `gather`; [`OutOfMemory`](crate::ErrorKind::OutOfMemory) without room for the values of all.
    pub fn gathered(
        self,
        values: &mut super::HostSliceMut<'_>,
        size: usize,
        gather: impl FnOnce(HostSlice<'_>, super::HostSliceMut<'_>) -> Result<()>,
    ) -> Result<()> {
        let (dtype, bytes) = (values.dtype(), values.as_slice().bytes().len());
        let mut all = super::HostBuffer::new(bytes * size)?;
        gather(
            values.as_slice(),
            super::HostSliceMut::from_bytes(dtype, all.bytes_mut())?,
        )?;
        let mut ranks = all.bytes().chunks_exact(bytes.max(1));
        if let Some(first) = ranks.next() {
            values.bytes_mut().copy_from_slice(first);
        }
        ranks.try_for_each(|rank| self.apply(values, HostSlice::from_bytes(dtype, rank)?))
    }

    fn each<T: Element + bytemuck::Pod + PartialOrd>(
        self,
        into: &mut super::HostSliceMut<'_>,
        other: HostSlice<'_>,
        sum: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let unaligned = |e| Error::invalid(format!("memory that does not hold {}: {e}", T::DTYPE));
        let into: &mut [T] = bytemuck::try_cast_slice_mut(into.bytes_mut()).map_err(unaligned)?;
        let other: &[T] = bytemuck::try_cast_slice(other.bytes()).map_err(unaligned)?;
        let pairs = into.iter_mut().zip(other);
        #[expect(clippy::eq_op, reason = "NaN is not equal to itself")]
        let nan = |x: T| x != x;
        match self {
            Self::Sum => pairs.for_each(|(a, &b)| *a = sum(*a, b)),
            Self::Min => pairs.for_each(|(a, &b)| *a = if nan(b) || b < *a { b } else { *a }),
            Self::Max => pairs.for_each(|(a, &b)| *a = if nan(b) || b > *a { b } else { *a }),
        }
        Ok(())
    }
}
