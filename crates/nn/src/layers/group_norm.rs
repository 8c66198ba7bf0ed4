//! Group normalisation.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use crate::options::options;
use crate::{Init, Module, Param, watch};

/// Divides the channels of `[N, C, …]` into groups and brings each group of each sample to mean 0 and variance 1, then
/// scales by `weight [C]` and shifts by `bias [C]`.
///
/// Source: Wu and He, "Group normalization" (2018).
#[derive(Debug, Module)]
#[module(forward)]
pub struct GroupNorm<B: Backend = AnyBackend> {
    /// `[num_channels]`, 1 at first.
    pub weight: Option<Param<B>>,
    /// `[num_channels]`, 0 at first.
    pub bias: Option<Param<B>>,
    #[module(skip)]
    config: GroupNormConfig,
}

options! {
    /// Options of [`GroupNorm`].
    #[derive(Clone, Copy, Debug)]
    pub struct GroupNormConfig {
        /// For `num_channels` channels in `num_groups` groups.
        pub const fn new(num_groups: usize, num_channels: usize);
        /// Added to the variance.
        eps: f64 = 1e-5;
        /// Whether there are a weight and a bias.
        affine: bool = true;
        /// Whether there is a bias, if there is a weight.
        bias: bool = true;
    }
}

impl GroupNormConfig {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When the groups do not divide the channels, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<GroupNorm<B>> {
        if self.num_groups == 0 || !self.num_channels.is_multiple_of(self.num_groups) {
            return Err(Error::invalid(format!(
                "num_groups = {} does not divide num_channels = {}",
                self.num_groups, self.num_channels
            ))
            .with_op("group_norm"));
        }
        let channels = [self.num_channels];
        Ok(GroupNorm {
            weight: Init::ONES.param_if(self.affine, channels, device)?,
            bias: Init::ZEROS.param_if(self.affine && self.bias, channels, device)?,
            config: self,
        })
    }
}

impl<B: Backend> GroupNorm<B> {
    /// For `num_channels` channels in `num_groups` groups; [`GroupNormConfig`] has the other options.
    ///
    /// # Errors
    /// As [`GroupNormConfig::build`].
    #[track_caller]
    pub fn new(num_groups: usize, num_channels: usize, device: &Device<B>) -> Result<Self> {
        GroupNormConfig::new(num_groups, num_channels).build(device)
    }

    /// The normalised input, of the input's shape.
    ///
    /// # Errors
    /// When the input is not `[N, num_channels, …]`, or dtype or device differ from the weight's.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.compute(x))
    }

    fn compute(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let channels = self.config.num_channels;
        if x.dims().get(1) != Some(&channels) {
            return Err(Error::shape(format!("it takes [N, C, …] with {channels} channels"))
                .with_op("group_norm")
                .with_operands([(x.shape(), x.dtype())]));
        }
        let weight = self.weight.as_ref().map(Param::tensor);
        let bias = self.bias.as_ref().map(Param::tensor);
        x.group_norm(self.config.num_groups, weight.as_ref(), bias.as_ref(), self.config.eps)
    }
}
