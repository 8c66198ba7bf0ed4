//! Shapes as operands: constants if they are known, else arithmetic on the shapes of inputs.

use polygrad_core::{DType, HostTensor, Result, Shape};

use super::call::Call;
use super::extent::Extent;
use super::recording::State;
use crate::graph::ValueId;

impl State {
    /// Integers as a constant vector.
    pub(super) fn ints(&mut self, values: &[i64]) -> Result<ValueId> {
        let host = HostTensor::new(Shape::from([values.len()]), values.to_vec())?;
        Ok(self.constant(host))
    }

    /// An extent as a vector of one element, i64.
    pub(super) fn extent(&mut self, extent: &Extent) -> Result<ValueId> {
        let mut sum = match extent.offset {
            0 if extent.is_symbolic() => None,
            offset => Some(self.ints(&[offset])?),
        };
        for (factor, symbols) in &extent.terms {
            let mut product = match factor {
                1 => None,
                factor => Some(self.ints(&[*factor])?),
            };
            for &symbol in symbols {
                let (value, axis) = self.source(symbol)?;
                let size = Call::new("Shape")
                    .input(value)
                    .int("start", axis as i64)
                    .int("end", axis as i64 + 1);
                let size = self.one(size.gives(Shape::from([1]), DType::I64))?;
                product = Some(self.combined("Mul", product, size)?);
            }
            if let Some(product) = product {
                sum = Some(self.combined("Add", sum, product)?);
            }
        }
        match sum {
            Some(sum) => Ok(sum),
            None => self.ints(&[0]),
        }
    }

    fn combined(&mut self, op: &'static str, a: Option<ValueId>, b: ValueId) -> Result<ValueId> {
        match a {
            None => Ok(b),
            Some(a) => self.one(Call::new(op).input(b).input(a).gives(Shape::from([1]), DType::I64)),
        }
    }

    /// Extents as a vector, i64.
    pub(super) fn extents(&mut self, extents: &[Extent]) -> Result<ValueId> {
        let mut parts = Vec::new();
        let mut known = Vec::new();
        for extent in extents {
            match extent.as_fixed() {
                Some(value) => known.push(value),
                None => {
                    if !known.is_empty() {
                        parts.push(self.ints(&std::mem::take(&mut known))?);
                    }
                    parts.push(self.extent(extent)?);
                }
            }
        }
        if !known.is_empty() || parts.is_empty() {
            parts.push(self.ints(&known)?);
        }
        if let [one] = parts[..] {
            return Ok(one);
        }
        let mut call = Call::new("Concat").int("axis", 0);
        call.inputs = parts.into_iter().map(Some).collect();
        self.one(call.gives(Shape::from([extents.len()]), DType::I64))
    }

    /// An extent as a scalar of a dtype.
    pub(super) fn scalar(&mut self, extent: &Extent, dtype: DType) -> Result<ValueId> {
        let (vector, axis) = (self.extent(extent)?, self.ints(&[0])?);
        let squeeze = Call::new("Squeeze").input(vector).input(axis);
        let scalar = self.one(squeeze.gives(Shape::SCALAR, DType::I64))?;
        self.cast(scalar, DType::I64, dtype)
    }

    /// A value in another dtype.
    pub(super) fn cast(&mut self, id: ValueId, from: DType, to: DType) -> Result<ValueId> {
        if from == to {
            return Ok(id);
        }
        let shape = self.values[id.index()].shape;
        let number = i64::from(crate::graph::ElementType::from(to).number());
        self.one(Call::new("Cast").input(id).int("to", number).gives(shape, to))
    }
}
