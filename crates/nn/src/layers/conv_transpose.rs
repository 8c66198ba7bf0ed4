//! Transposed convolutions.

use polygrad_tensor::{AnyBackend, Backend, ConvParams, Device, Error, Result, Tensor};

use super::conv::{check_groups, check_window};
use super::extent::{Extent, batched, by_axes, padded};
use super::linear::{default_bias, default_weight};
use crate::options::options;
use crate::{Init, Module, Param, watch};

/// A transposed convolution over `D` spatial axes, as [`ConvTranspose1d`], [`ConvTranspose2d`] and [`ConvTranspose3d`]:
/// `[N, in, spatial…]` to `[N, out, spatial…]`, or without `N`, with `weight [in, out / groups, kernel…]` and `bias
/// [out]`, as in PyTorch.
///
/// It is the gradient of a [`Conv`](super::Conv) of the same options wrt its input. An extent `L` becomes
/// `(L − 1) · stride − 2 · padding + dilation · (kernel − 1) + output_padding + 1`.
#[derive(Debug, Module)]
#[module(forward)]
pub struct ConvTranspose<const D: usize, B: Backend = AnyBackend> {
    /// `[in_channels, out_channels / groups, kernel…]`.
    pub weight: Param<B>,
    /// `[out_channels]`.
    pub bias: Option<Param<B>>,
    params: ConvParams,
    #[module(skip)]
    output_padding: [usize; 3],
}

/// A transposed convolution over `[N, C, L]`.
pub type ConvTranspose1d<B = AnyBackend> = ConvTranspose<1, B>;
/// A transposed convolution over `[N, C, H, W]`.
pub type ConvTranspose2d<B = AnyBackend> = ConvTranspose<2, B>;
/// A transposed convolution over `[N, C, D, H, W]`.
pub type ConvTranspose3d<B = AnyBackend> = ConvTranspose<3, B>;

/// Options of [`ConvTranspose1d`].
pub type ConvTranspose1dConfig = ConvTransposeConfig<1>;
/// Options of [`ConvTranspose2d`].
pub type ConvTranspose2dConfig = ConvTransposeConfig<2>;
/// Options of [`ConvTranspose3d`].
pub type ConvTranspose3dConfig = ConvTransposeConfig<3>;

options! {
    /// Options of a transposed convolution. Each size is one number for all spatial axes or an array.
    ///
    /// ```
    /// # use polygrad_nn::ConvTranspose2dConfig;
    /// // Doubles the extents.
    /// let config = ConvTranspose2dConfig::new(32, 16, 3).stride(2).padding(1).output_padding(1);
    /// ```
    #[derive(Clone, Copy, Debug)]
    pub struct ConvTransposeConfig<const D: usize> {
        /// A transposed convolution with stride 1, no padding, no dilation, one group, and a bias.
        pub fn new(
            in_channels: usize,
            out_channels: usize,
            kernel_size: [usize; D] = |kernel_size: impl Extent<D>| kernel_size.extent()
        );
        /// Distance between input elements in the output. Default: 1.
        stride: [usize; D] = [1; D], from |stride: impl Extent<D>| stride.extent();
        /// How many elements are cut off at both ends of each axis. Default: 0.
        padding: [usize; D] = [0; D], from |padding: impl Extent<D>| padding.extent();
        /// How many elements each axis gets at its end; below stride or dilation. Default: 0.
        output_padding: [usize; D] = [0; D], from |output_padding: impl Extent<D>| output_padding.extent();
        /// Distance between kernel elements. Default: 1.
        dilation: [usize; D] = [1; D], from |dilation: impl Extent<D>| dilation.extent();
        /// Channel groups, each with its own filters; must divide both channel counts.
        groups: usize = 1;
        /// Whether there is a bias.
        bias: bool = true;
        /// Initial weight. Default, as in PyTorch: uniform on `±1 / √(out_channels / groups · kernel)`.
        init: Option<Init> = None, from |init: Init| Some(init);
        /// Initial bias. Default, as in PyTorch: uniform on the same range as the weight.
        bias_init: Option<Init> = None, from |init: Init| Some(init);
    }
}

impl<const D: usize> ConvTransposeConfig<D> {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When a size is 0, groups do not divide the channels, `output_padding` is too large, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<ConvTranspose<D, B>> {
        self.check().map_err(|e| e.with_op(name::<D>()))?;
        let mut shape = vec![self.in_channels, self.out_channels / self.groups];
        shape.extend(self.kernel_size);
        let fan_in = shape[1..].iter().product();
        let weight = self.init.unwrap_or(default_weight());
        let bias = self.bias_init.unwrap_or(default_bias(fan_in));
        Ok(ConvTranspose {
            weight: weight.param(shape, device)?,
            bias: bias.param_if(self.bias, [self.out_channels], device)?,
            params: ConvParams {
                stride: padded(self.stride, 1),
                padding: padded(self.padding, 0),
                dilation: padded(self.dilation, 1),
                groups: self.groups,
            },
            output_padding: padded(self.output_padding, 0),
        })
    }

    fn check(&self) -> Result<()> {
        check_groups(self.groups, [self.in_channels, self.out_channels])?;
        check_window([self.kernel_size, self.stride, self.dilation])?;
        let larger = |axis: usize| self.stride[axis].max(self.dilation[axis]);
        if (0..D).any(|axis| self.output_padding[axis] >= larger(axis)) {
            return Err(Error::invalid(format!(
                "output_padding {:?} must be below stride {:?} or dilation {:?}",
                self.output_padding, self.stride, self.dilation
            )));
        }
        Ok(())
    }
}

fn name<const D: usize>() -> &'static str {
    by_axes::<D, _>(["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"])
}

impl<const D: usize, B: Backend> ConvTranspose<D, B> {
    /// A transposed convolution with stride 1, no padding, and a bias; [`ConvTransposeConfig`] has the other options.
    ///
    /// # Errors
    /// When a size is 0, or memory runs out.
    #[track_caller]
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel_size: impl Extent<D>,
        device: &Device<B>,
    ) -> Result<Self> {
        ConvTransposeConfig::new(in_channels, out_channels, kernel_size).build(device)
    }

    /// `[N, in_channels, spatial…]` to `[N, out_channels, spatial…]`, or both without `N`.
    ///
    /// # Errors
    /// When rank, channels or extents do not fit, or dtype or device differ from the weight's.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.compute(x))
    }

    fn compute(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let (x, batch) = batched::<D, B>(x, name::<D>())?;
        let y = x.conv_transpose(&self.weight.tensor(), &self.params, self.output_padding)?;
        let Some(bias) = self.bias.as_ref().map(Param::tensor) else {
            return batch.restore(y);
        };
        let mut channels = vec![1; y.rank()];
        channels[1] = bias.numel();
        batch.restore(y.add(&bias.reshape(channels)?)?)
    }
}
