//! Instance normalisation.

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Result, Tensor};

use super::batch_norm::{beside, moved};
use super::extent::batched;
use crate::options::options;
use crate::{Buffer, Init, Mode, Module, Param, watch};

/// Instance normalisation with `D` spatial axes, as [`InstanceNorm1d`], [`InstanceNorm2d`] and [`InstanceNorm3d`]: each
/// channel of each sample of `[N, C, spatial…]` (or of one sample `[C, spatial…]`) is brought to mean 0 and variance 1,
/// then scaled by `weight [C]` and shifted by `bias [C]` if the layer has them.
///
/// If it tracks running statistics, those of a batch are the means over its samples, with the unbiased variance; in
/// evaluation the running ones are used. Names and behaviour are PyTorch's.
///
/// Source: Ulyanov, Vedaldi and Lempitsky, "Instance normalization" (2016).
#[derive(Debug, Module)]
#[module(forward)]
pub struct InstanceNorm<const D: usize, B: Backend = AnyBackend> {
    /// `[num_features]`, 1 at first.
    pub weight: Option<Param<B>>,
    /// `[num_features]`, 0 at first.
    pub bias: Option<Param<B>>,
    /// `[num_features]`, 0 at first.
    pub running_mean: Option<Buffer<B>>,
    /// `[num_features]`, 1 at first.
    pub running_var: Option<Buffer<B>>,
    /// Always 0: it is there because PyTorch's state has it. i64.
    pub num_batches_tracked: Option<Buffer<B>>,
    #[module(skip)]
    config: InstanceNormConfig<D>,
    mode: Mode,
}

/// Instance normalisation of `[N, C, L]` or `[C, L]`.
pub type InstanceNorm1d<B = AnyBackend> = InstanceNorm<1, B>;
/// Instance normalisation of `[N, C, H, W]` or `[C, H, W]`.
pub type InstanceNorm2d<B = AnyBackend> = InstanceNorm<2, B>;
/// Instance normalisation of `[N, C, D, H, W]` or `[C, D, H, W]`.
pub type InstanceNorm3d<B = AnyBackend> = InstanceNorm<3, B>;

/// Options of [`InstanceNorm1d`].
pub type InstanceNorm1dConfig = InstanceNormConfig<1>;
/// Options of [`InstanceNorm2d`].
pub type InstanceNorm2dConfig = InstanceNormConfig<2>;
/// Options of [`InstanceNorm3d`].
pub type InstanceNorm3dConfig = InstanceNormConfig<3>;

options! {
    /// Options of an instance normalisation.
    #[derive(Clone, Copy, Debug)]
    pub struct InstanceNormConfig<const D: usize> {
        /// For `num_features` channels.
        pub const fn new(num_features: usize);
        /// Added to the variance.
        eps: f64 = 1e-5;
        /// Weight of a new batch in the running statistics.
        momentum: f64 = 0.1;
        /// Whether there are a weight and a bias.
        affine: bool = false;
        /// Whether there is a bias, if there is a weight.
        bias: bool = true;
        /// Whether running statistics are kept, and used in evaluation.
        track_running_stats: bool = false;
    }
}

impl<const D: usize> InstanceNormConfig<D> {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<InstanceNorm<D, B>> {
        let channels = [self.num_features];
        let tracked = self.track_running_stats;
        let buffer = |tensor: Result<Tensor<B>>| tensor.map(|t| Buffer::new(&t));
        Ok(InstanceNorm {
            weight: Init::ONES.param_if(self.affine, channels, device)?,
            bias: Init::ZEROS.param_if(self.affine && self.bias, channels, device)?,
            running_mean: tracked.then(|| buffer(Tensor::zeros(channels, device))).transpose()?,
            running_var: tracked.then(|| buffer(Tensor::ones(channels, device))).transpose()?,
            num_batches_tracked: tracked
                .then(|| buffer(Tensor::full((), 0i64, (device, DType::I64))))
                .transpose()?,
            config: self,
            mode: Mode::default(),
        })
    }
}

impl<const D: usize, B: Backend> InstanceNorm<D, B> {
    /// For `num_features` channels; [`InstanceNormConfig`] has the other options.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn new(num_features: usize, device: &Device<B>) -> Result<Self> {
        InstanceNormConfig::new(num_features).build(device)
    }

    /// The normalised input, of the input's shape. In training it also updates the running statistics, if it has them.
    ///
    /// # Errors
    /// When rank or channels do not fit, or a channel has a single value and the input's own statistics are used.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.compute(x)).map_err(|e| e.with_op("instance_norm"))
    }

    fn compute(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let (input, batch) = batched::<D, B>(x, "instance_norm")?;
        let channels = self.config.num_features;
        if input.shape()[1] != channels {
            let error = Error::shape(format!("it takes {channels} channels"));
            return Err(error.with_operands([(x.shape(), x.dtype())]));
        }
        batch.restore(self.of_batch(&input)?)
    }

    fn of_batch(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let weight = self.weight.as_ref().map(Param::tensor);
        let bias = self.bias.as_ref().map(Param::tensor);
        let (weight, bias, eps) = (weight.as_ref(), bias.as_ref(), self.config.eps);
        let running = self.running_mean.as_ref().zip(self.running_var.as_ref());
        if let Some((mean, var)) = running.filter(|_| !self.mode.is_training()) {
            let (mean, var) = (beside(mean, x)?, beside(var, x)?);
            return x.batch_norm_running(&mean, &var, weight, bias, eps);
        }
        if x.shape()[2..].iter().product::<usize>() < 2 {
            return Err(
                Error::shape("each channel needs more than one value to be normalised by its own statistics")
                    .with_operands([(x.shape(), x.dtype())]),
            );
        }
        if let Some((mean, var)) = running {
            self.track(x, mean, var)?;
        }
        x.instance_norm(weight, bias, eps)
    }

    /// Moves the running statistics towards the batch's. If the device fails, neither changes.
    fn track(&self, x: &Tensor<B>, mean: &Buffer<B>, var: &Buffer<B>) -> Result<()> {
        let x = x.detach().to_dtype(x.dtype().wide())?;
        let spatial: Vec<isize> = (2..x.rank() as isize).collect();
        let share = self.config.momentum;
        let new_mean = moved(mean, &x.mean(&spatial)?.mean(0)?, share)?;
        let new_var = moved(var, &x.variance(&spatial, 1.0)?.mean(0)?, share)?;
        mean.set(&new_mean)?;
        var.set(&new_var)
    }
}
