//! The nuclear norm, without a singular value decomposition.

use polygrad_core::{Axes, Backend, Error, Result};

use super::reduce::with_and_without_axes;
use super::{IntoAxes, context};
use crate::autocast::in_mode;
use crate::{CustomOp, Tensor};

with_and_without_axes! {
    /// The sum of the singular values of each matrix that two axes span. Computed with the nearest matrix whose
    /// singular values are 1, which is also the gradient; singular values below 1e-12 of the matrix's norm do not count
    /// in full.
    ///
    /// Source: Björck and Bowie, "An iterative algorithm for computing the best estimate of an
    /// orthogonal matrix" (1971).
    ///
    /// # Errors
    /// When an axis is out of range, both are the same, or the dtype is not a float.
    nuclear_norm, nuclear_norm_keepdim = nuclear_norm_with(axes: [isize; 2]) -> Self;
}

impl<B: Backend> Tensor<B> {
    fn nuclear_norm_with(&self, axes: [isize; 2], keepdims: bool) -> Result<Self> {
        let fail = |e| context(e, "nuclear_norm", &[self]);
        let shape = self.shape();
        if !self.dtype().is_float() {
            let error = Error::dtype(format!("{} is no float", self.dtype()));
            return Err(fail(error.with_hint("convert it with to_dtype")));
        }
        let axes = axes.into_axes(&shape).map_err(fail)?;
        if axes.len() != 2 {
            return Err(fail(Error::shape(format!("shape {shape} has no two axes"))));
        }
        let others = (0..shape.rank()).filter(|&axis| !axes.contains(axis));
        let matrices = self.permute_axes(Axes::new(others.chain(axes.iter()))?)?;
        // Autocast must not run these products in 16 bits.
        in_mode(None, || {
            Self::in_wide([&matrices], |matrices| Self::custom(NuclearNorm, &matrices))
        })
        .and_then(|norms| norms.reshape(shape.reduced(axes, keepdims)))
        .map_err(fail)
    }
}

/// The nuclear norm over the last two axes.
struct NuclearNorm;

/// The factor `U Vᵀ` of matrices `U S Vᵀ`, by Newton's iteration: each step multiplies a small singular value by about
/// 1.5, until all are 1.
fn orthogonal_factor<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    const STEPS: usize = 80;
    let norm = x.norm_keepdim(2.0, [-2, -1])?;
    let is_zero = norm.eq(0.0)?;
    let mut out = x.div(&norm.masked_fill(&is_zero, 1.0)?)?;
    for _ in 0..STEPS {
        let gram = out.matrix_transposed()?.matmul(&out)?;
        out = ((&out * 1.5)? - (out.matmul(&gram)? * 0.5)?)?;
    }
    Ok(out)
}

impl<B: Backend> CustomOp<B> for NuclearNorm {
    fn name(&self) -> &str {
        "nuclear_norm"
    }

    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>> {
        let [x] = inputs else {
            return Err(Error::invalid("takes one operand"));
        };
        x.mul(&orthogonal_factor(x)?)?.sum([-2, -1])
    }

    fn backward(&self, inputs: &[Tensor<B>], _: &Tensor<B>, grad: &Tensor<B>) -> Result<Vec<Option<Tensor<B>>>> {
        let [x] = inputs else {
            return Err(Error::invalid("takes one operand"));
        };
        let grad = grad.unsqueeze(-1)?.unsqueeze(-1)?;
        Ok(vec![Some(orthogonal_factor(x)?.mul(&grad)?)])
    }
}
