//! Several independent numbers as one value.

use std::marker::PhantomData;

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

use super::Distribution;

/// A distribution whose last axes form one value: log probabilities, entropies and divergences are summed over them. As
/// PyTorch's `Independent`.
#[derive(Clone, Debug)]
pub struct Independent<D, B: Backend = AnyBackend> {
    base: D,
    axes: usize,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend, D: Distribution<B>> Independent<D, B> {
    /// Treats the last `axes` axes as one value.
    pub fn new(base: D, axes: usize) -> Self {
        Self {
            base,
            axes,
            backend: PhantomData,
        }
    }

    /// The distribution of the individual numbers.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// Sums over the axes of a value.
    ///
    /// # Errors
    /// When there are fewer axes.
    pub fn sum(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        if x.rank() < self.axes {
            let text = format!("{} has no {} axes that belong to one value", x.shape(), self.axes);
            return Err(Error::shape(text).with_op("Independent"));
        }
        (0..self.axes).try_fold(x.clone(), |x, _| x.sum(-1))
    }
}

impl<B: Backend, D: Distribution<B>> Distribution<B> for Independent<D, B> {
    fn sample(&self) -> Result<Tensor<B>> {
        self.base.sample()
    }

    fn log_prob(&self, value: &Tensor<B>) -> Result<Tensor<B>> {
        self.sum(&self.base.log_prob(value)?)
    }

    fn entropy(&self) -> Result<Tensor<B>> {
        self.sum(&self.base.entropy()?)
    }

    fn mode(&self) -> Result<Tensor<B>> {
        self.base.mode()
    }

    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>> {
        self.sum(&self.base.kl_divergence(&other.base)?)
    }
}
