//! The rectifier with a learned slope.

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor};

use crate::options::options;
use crate::{Init, Module, Param, watch};

/// `x` where it is positive, `weight · x` elsewhere.
///
/// Source: He et al., "Delving deep into rectifiers" (2015).
#[derive(Debug, Module)]
#[module(forward)]
pub struct PReLU<B: Backend = AnyBackend> {
    /// `[num_parameters]`.
    pub weight: Param<B>,
}

options! {
    /// Options of [`PReLU`].
    #[derive(Clone, Copy, Debug)]
    pub struct PReLUConfig {
        /// One weight, 0.25 at first.
        pub const fn new();
        /// How many weights: 1 for all elements, or one for each channel.
        num_parameters: usize = 1;
        /// Initial value of the weights.
        init: f64 = 0.25;
    }
}

impl PReLUConfig {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<PReLU<B>> {
        Ok(PReLU {
            weight: Init::Constant(self.init).param([self.num_parameters], device)?,
        })
    }
}

impl Default for PReLUConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> PReLU<B> {
    /// One weight, 0.25 at first; [`PReLUConfig`] has the options.
    ///
    /// # Errors
    /// As [`PReLUConfig::build`].
    #[track_caller]
    pub fn new(device: &Device<B>) -> Result<Self> {
        PReLUConfig::new().build(device)
    }

    /// The function of each element; channels are axis 1.
    ///
    /// # Errors
    /// When the number of weights is neither 1 nor the number of channels, or the devices differ.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || x.prelu(&self.weight.tensor()))
    }
}
