//! Functions as layers.

use std::fmt;
use std::marker::PhantomData;

use polygrad_tensor::{AnyBackend, Backend, Result, Tensor};

use crate::{Forward, Module, Visit, Visitor, watch};

/// A function of one tensor as a layer without parameters, for functions that have no layer of their own.
///
/// ```
/// # use polygrad_nn::{Lambda, Linear, Sequential};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// let model = Sequential::new()
///     .push(Linear::new(4, 8, &device)?)
///     .push(Lambda::new(|x| x.sin()?.mul(0.5)))
///     .push(Linear::new(8, 2, &device)?);
/// # Ok(())
/// # }
/// ```
pub struct Lambda<F, B: Backend = AnyBackend> {
    function: F,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend, F: Fn(&Tensor<B>) -> Result<Tensor<B>>> Lambda<F, B> {
    /// A function as a layer.
    pub const fn new(function: F) -> Self {
        Self {
            function,
            backend: PhantomData,
        }
    }

    /// The function's value.
    ///
    /// # Errors
    /// Those of the function.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || (self.function)(x))
    }
}

impl<F, B: Backend> fmt::Debug for Lambda<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lambda")
    }
}

impl<F, B: Backend> Visit<B> for Lambda<F, B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
    }
}

impl<F, B: Backend> Module<B> for Lambda<F, B> {}

impl<B: Backend, F: Fn(&Tensor<B>) -> Result<Tensor<B>> + Send + Sync> Forward<B> for Lambda<F, B> {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward(x)
    }
}
