//! Batch normalisation.

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Result, Tensor};

use super::SyncSlot;
use super::extent::by_axes;
use crate::options::options;
use crate::{Buffer, Init, Mode, Module, Param, watch};

/// Batch normalisation with `D` spatial axes, as [`BatchNorm1d`], [`BatchNorm2d`] and [`BatchNorm3d`]: each channel of
/// `[N, C, …]` is brought to mean 0 and variance 1, then scaled by `weight [C]` and shifted by `bias [C]`.
///
/// In training, the batch's own mean and variance are used, and running ones are updated, with the unbiased variance;
/// in evaluation the running ones are used. Names and behaviour are PyTorch's.
/// [`sync_batch_norm`](crate::sync_batch_norm) normalises over the joined batch of several processes.
///
/// Source: Ioffe and Szegedy, "Batch normalization" (2015).
#[derive(Debug, Module)]
#[module(forward)]
pub struct BatchNorm<const D: usize, B: Backend = AnyBackend> {
    /// `[num_features]`, 1 at first.
    pub weight: Option<Param<B>>,
    /// `[num_features]`, 0 at first.
    pub bias: Option<Param<B>>,
    /// `[num_features]`, 0 at first.
    pub running_mean: Option<Buffer<B>>,
    /// `[num_features]`, 1 at first.
    pub running_var: Option<Buffer<B>>,
    /// Number of batches that the running statistics have seen, i64.
    pub num_batches_tracked: Option<Buffer<B>>,
    #[module(skip)]
    config: BatchNormConfig<D>,
    mode: Mode,
    sync: SyncSlot,
}

/// Batch normalisation of `[N, C]` or `[N, C, L]`.
pub type BatchNorm1d<B = AnyBackend> = BatchNorm<1, B>;
/// Batch normalisation of `[N, C, H, W]`.
pub type BatchNorm2d<B = AnyBackend> = BatchNorm<2, B>;
/// Batch normalisation of `[N, C, D, H, W]`.
pub type BatchNorm3d<B = AnyBackend> = BatchNorm<3, B>;

/// Options of [`BatchNorm1d`].
pub type BatchNorm1dConfig = BatchNormConfig<1>;
/// Options of [`BatchNorm2d`].
pub type BatchNorm2dConfig = BatchNormConfig<2>;
/// Options of [`BatchNorm3d`].
pub type BatchNorm3dConfig = BatchNormConfig<3>;

options! {
    /// Options of a batch normalisation.
    #[derive(Clone, Copy, Debug)]
    pub struct BatchNormConfig<const D: usize> {
        /// For `num_features` channels.
        pub const fn new(num_features: usize);
        /// Added to the variance.
        eps: f64 = 1e-5;
        /// Weight of a new batch in the running statistics; `None` takes the mean over all batches. Default: 0.1.
        momentum: Option<f64> = Some(0.1);
        /// Whether there are a weight and a bias.
        affine: bool = true;
        /// Whether there is a bias, if there is a weight.
        bias: bool = true;
        /// Whether running statistics are kept; without them evaluation also uses the batch's own.
        track_running_stats: bool = true;
    }
}

impl<const D: usize> BatchNormConfig<D> {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<BatchNorm<D, B>> {
        let channels = [self.num_features];
        let buffer = |tensor: Result<Tensor<B>>| tensor.map(|t| Buffer::new(&t));
        let tracked = self.track_running_stats;
        Ok(BatchNorm {
            weight: Init::ONES.param_if(self.affine, channels, device)?,
            bias: Init::ZEROS.param_if(self.affine && self.bias, channels, device)?,
            running_mean: tracked.then(|| buffer(Tensor::zeros(channels, device))).transpose()?,
            running_var: tracked.then(|| buffer(Tensor::ones(channels, device))).transpose()?,
            num_batches_tracked: tracked
                .then(|| buffer(Tensor::full((), 0i64, (device, DType::I64))))
                .transpose()?,
            config: self,
            mode: Mode::default(),
            sync: SyncSlot::default(),
        })
    }
}

impl<const D: usize, B: Backend> BatchNorm<D, B> {
    /// For `num_features` channels; [`BatchNormConfig`] has the other options.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn new(num_features: usize, device: &Device<B>) -> Result<Self> {
        BatchNormConfig::new(num_features).build(device)
    }

    /// The normalised input, of the input's shape. In training it also updates the running statistics.
    ///
    /// # Errors
    /// When rank or channels do not fit, or a channel has a single value in training.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.compute(x)).map_err(|e| e.with_op("batch_norm"))
    }

    fn compute(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let shape = x.shape();
        let rank_fits = shape.rank() == D + 2 || (D == 1 && shape.rank() == 2);
        if !rank_fits || shape[1] != self.config.num_features {
            let form = by_axes::<D, _>(["[N, C] or [N, C, L]", "[N, C, H, W]", "[N, C, D, H, W]"]);
            return Err(
                Error::shape(format!("it takes {form} with {} channels", self.config.num_features))
                    .with_operands([(shape, x.dtype())]),
            );
        }
        match (&self.running_mean, &self.running_var) {
            (Some(mean), Some(var)) if !self.mode.is_training() => {
                let (mean, var) = (beside(mean, x)?, beside(var, x)?);
                let weight = self.weight.as_ref().map(Param::tensor);
                let bias = self.bias.as_ref().map(Param::tensor);
                x.batch_norm_running(&mean, &var, weight.as_ref(), bias.as_ref(), self.config.eps)
            }
            _ => self.by_batch(x),
        }
    }

    fn by_batch(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let weight = self.weight.as_ref().map(Param::tensor);
        let bias = self.bias.as_ref().map(Param::tensor);
        if let Some(group) = self.sync.get().filter(|_| self.mode.is_training()) {
            let (y, mean, unbiased) = group.batch_norm(x, weight.as_ref(), bias.as_ref(), self.config.eps)?;
            return self.track(&mean, &unbiased).map(|()| y);
        }
        let shape = x.shape();
        let count = shape.numel() / shape[1].max(1);
        if count < 2 && self.mode.is_training() {
            return Err(Error::shape("each channel needs more than one value in training")
                .with_operands([(shape, x.dtype())])
                .with_hint("take a larger batch, or switch the model to evaluation with eval()"));
        }
        let (y, mean, var) = x.batch_norm(weight.as_ref(), bias.as_ref(), self.config.eps)?;
        if self.mode.is_training() {
            let unbiased = (&var * (count as f64 / (count as f64 - 1.0)))?;
            self.track(&mean, &unbiased)?;
        }
        Ok(y)
    }

    /// Moves the running statistics towards the batch's. If the device fails, none of them change.
    fn track(&self, mean: &Tensor<B>, var: &Tensor<B>) -> Result<()> {
        let (Some(running_mean), Some(running_var), Some(count)) =
            (&self.running_mean, &self.running_var, &self.num_batches_tracked)
        else {
            return Ok(());
        };
        let counted = (count.tensor() + 1i64)?;
        let share = match self.config.momentum {
            Some(momentum) => momentum,
            None => 1.0 / counted.item()?,
        };
        let (new_mean, new_var) = (moved(running_mean, mean, share)?, moved(running_var, var, share)?);
        count.set(&counted)?;
        running_mean.set(&new_mean)?;
        running_var.set(&new_var)
    }
}

/// Running statistics as operands for `x`: unconverted if their dtype is the same, else in f32 for f16 and bf16, which
/// may not be able to hold them.
pub(super) fn beside<B: Backend>(running: &Buffer<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let running = running.tensor();
    if running.dtype() == x.dtype() {
        return Ok(running);
    }
    running.to_dtype(x.dtype().wide())
}

/// Running statistics moved by `share` towards new ones, rounded once.
pub(super) fn moved<B: Backend>(running: &Buffer<B>, new: &Tensor<B>, share: f64) -> Result<Tensor<B>> {
    let old = running.tensor();
    let wide = old.dtype().wide();
    let moved = (old.to_dtype(wide)? * (1.0 - share))?.add(&(new.to_dtype(wide)? * share)?)?;
    moved.to_dtype(old.dtype())
}
