//! Dropout.

use polygrad_tensor::{Backend, Error, Result, Tensor};

use crate::{Forward, Mode, Module, Visit, Visitor, watch};

/// In training, sets each element to 0 with probability `p` and divides the others by `1 − p`. In evaluation it does
/// nothing.
///
/// Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014).
#[derive(Clone, Debug)]
pub struct Dropout {
    p: f64,
    mode: Mode,
}

impl Dropout {
    /// Drops with probability `p`, in `[0, 1]`.
    ///
    /// # Errors
    /// When `p` is not a probability.
    pub fn new(p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::invalid(format!("p = {p:?} is no probability")).with_op("dropout"));
        }
        Ok(Self {
            p,
            mode: Mode::default(),
        })
    }

    /// Switches this layer to training.
    pub fn train(&self) {
        self.mode.set_training(true);
    }

    /// Switches this layer to evaluation.
    pub fn eval(&self) {
        self.mode.set_training(false);
    }

    /// The current dropout probability: 0 in evaluation.
    pub(crate) fn rate(&self) -> f64 {
        if self.mode.is_training() { self.p } else { 0.0 }
    }

    /// The input, with elements dropped in training.
    ///
    /// # Errors
    /// When the input is not a float.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || match self.rate() {
            0.0 => Ok(x.clone()),
            p => x.dropout(p),
        })
    }
}

impl<B: Backend> Visit<B> for Dropout {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        self.mode.visit(visitor);
    }
}

impl<B: Backend> Module<B> for Dropout {}

impl<B: Backend> Forward<B> for Dropout {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward(x)
    }
}
