//! Rotary positions.

use polygrad_core::{Backend, Error, Op, Result, decompose};

use super::context;
use crate::Tensor;
use crate::graph::{needs_graph, record};
use crate::tracked::Tracked;

impl<B: Backend> Tensor<B> {
    /// Rotates the pairs of elements `i` and `i + D / 2` of each row of this tensor `[…, D]` by angles whose cosines
    /// and sines `[…, D / 2]` broadcast to the pairs: `(a, b)` becomes `(a cos - b sin, b cos + a sin)`.
    ///
    /// Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding" (2021), with the pairs of
    /// Hugging Face's Llama.
    ///
    /// # Errors
    /// When D is odd, or shapes, dtypes or devices do not fit.
    pub fn rotary(&self, cos: &Self, sin: &Self) -> Result<Self> {
        let operands = [self, cos, sin];
        self.check_rotary(cos, sin)
            .map_err(|e| context(e, "rotary", &operands))?;
        Self::in_wide(operands, |operands| {
            let [x, cos, sin] = operands;
            let fail = |e| context(e, "rotary", &operands);
            if needs_graph(&[cos, sin]) {
                return decompose::rotary::<Tracked<B>>(x, cos, sin).map_err(fail);
            }
            let value = B::rotary(&x.value, &cos.value, &sin.value).map_err(fail)?;
            Ok(record(value, &operands, || Op::Rotary))
        })
    }

    fn check_rotary(&self, cos: &Self, sin: &Self) -> Result<()> {
        let shape = self.shape();
        let width = shape.last().copied().unwrap_or(1);
        if !width.is_multiple_of(2) {
            return Err(Error::shape("takes rows of an even number of elements"));
        }
        let pairs = shape.with_dim(shape.rank() - 1, width / 2);
        for angles in [cos, sin] {
            if !angles.shape().broadcasts_to(&pairs) {
                return Err(Error::shape(format!("cosines and sines broadcast to {pairs}")));
            }
            if angles.dtype() != self.dtype() || !self.dtype().is_float() {
                let error = Error::dtype("takes three tensors of one float dtype");
                return Err(error.with_hint("convert them with to_dtype"));
            }
            self.check_device(angles)?;
        }
        Ok(())
    }
}
