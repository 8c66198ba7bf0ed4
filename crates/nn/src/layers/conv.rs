//! Convolutions.

use std::borrow::Cow;

use polygrad_tensor::{AnyBackend, Backend, ConvParams, Device, Error, PadMode, Result, Scalar, Tensor};

use super::extent::{Extent, batched, by_axes, padded};
use super::linear::{default_bias, default_weight};
use super::stateless::layer_of_tensors;
use crate::lora::{AdapterSlot, Kind, Layer, Weight, adapted};
use crate::options::options;
use crate::{Init, Param, Visit, Visitor, watch};

/// A convolution over `D` spatial axes, as [`Conv1d`], [`Conv2d`] and [`Conv3d`]: `[N, in, spatial…]` to `[N, out,
/// spatial…]`, or without `N`, with `weight [out, in / groups, kernel…]` and `bias [out]`. As in PyTorch, it is a
/// cross-correlation.
#[derive(Debug)]
pub struct Conv<const D: usize, B: Backend = AnyBackend> {
    /// `[out_channels, in_channels / groups, kernel…]`.
    pub weight: Param<B>,
    /// `[out_channels]`.
    pub bias: Option<Param<B>>,
    params: ConvParams,
    border: Option<Border<D>>,
    adapters: AdapterSlot<B>,
}

/// An explicit border around the input, for padding that the convolution op cannot do itself.
#[derive(Clone, Copy, Debug)]
struct Border<const D: usize> {
    widths: [(usize, usize); D],
    mode: PadMode,
}

/// A convolution over `[N, C, L]`.
pub type Conv1d<B = AnyBackend> = Conv<1, B>;
/// A convolution over `[N, C, H, W]`.
pub type Conv2d<B = AnyBackend> = Conv<2, B>;
/// A convolution over `[N, C, D, H, W]`.
pub type Conv3d<B = AnyBackend> = Conv<3, B>;

/// How many elements are added at both ends of each axis, or as many as keep the extents.
#[derive(Clone, Copy, Debug)]
pub(super) enum Padding<const D: usize> {
    Each([usize; D]),
    Same,
}

/// The default content of a border.
const ZEROS: PadMode = PadMode::Constant(Scalar::Float(0.0));

/// Options of [`Conv1d`].
pub type Conv1dConfig = ConvConfig<1>;
/// Options of [`Conv2d`].
pub type Conv2dConfig = ConvConfig<2>;
/// Options of [`Conv3d`].
pub type Conv3dConfig = ConvConfig<3>;

options! {
    /// Options of a convolution. Each size is one number for all spatial axes or an array.
    ///
    /// ```
    /// # use polygrad_nn::Conv2dConfig;
    /// let config = Conv2dConfig::new(16, 32, 3).stride(2).padding([1, 1]).groups(4).bias(false);
    /// ```
    #[derive(Clone, Copy, Debug)]
    pub struct ConvConfig<const D: usize> {
        /// A convolution with stride 1, no padding, no dilation, one group, and a bias.
        pub fn new(
            in_channels: usize,
            out_channels: usize,
            kernel_size: [usize; D] = |kernel_size: impl Extent<D>| kernel_size.extent()
        );
        /// Step between output positions. Default: 1.
        stride: [usize; D] = [1; D], from |stride: impl Extent<D>| stride.extent();
        /// How many elements are added at both ends of each axis. Default: 0.
        padding: Padding<D> = Padding::Each([0; D]), from |padding: impl Extent<D>| Padding::Each(padding.extent());
        /// The content of the padding. Default: zeros.
        padding_mode: PadMode = ZEROS;
        /// Distance between kernel elements. Default: 1.
        dilation: [usize; D] = [1; D], from |dilation: impl Extent<D>| dilation.extent();
        /// Channel groups, each with its own filters; must divide both channel counts.
        groups: usize = 1;
        /// Whether there is a bias.
        bias: bool = true;
        /// Initial weight. Default, as in PyTorch: uniform on `±1 / √(in_channels / groups · kernel)`.
        init: Option<Init> = None, from |init: Init| Some(init);
        /// Initial bias. Default, as in PyTorch: uniform on the same range as the weight.
        bias_init: Option<Init> = None, from |init: Init| Some(init);
    }
}

impl<const D: usize> ConvConfig<D> {
    /// Pads so that the extents stay the same; an odd element goes to the end. Needs a stride of 1.
    #[must_use]
    pub fn padding_same(mut self) -> Self {
        self.padding = Padding::Same;
        self
    }

    /// The layer, on a device.
    ///
    /// # Errors
    /// When a size is 0, groups do not divide the channels, `padding_same` is used with a stride, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<Conv<D, B>> {
        self.check().map_err(|e| e.with_op(name::<D>()))?;
        let per_group = self.in_channels / self.groups;
        let mut shape = vec![self.out_channels, per_group];
        shape.extend(self.kernel_size);
        let fan_in = shape[1..].iter().product();
        let weight = self.init.unwrap_or(default_weight());
        let bias = self.bias_init.unwrap_or(default_bias(fan_in));
        let (padding, border) = self.borders();
        Ok(Conv {
            weight: weight.param(shape, device)?,
            bias: bias.param_if(self.bias, [self.out_channels], device)?,
            params: ConvParams {
                stride: padded(self.stride, 1),
                padding: padded(padding, 0),
                dilation: padded(self.dilation, 1),
                groups: self.groups,
            },
            border,
            adapters: AdapterSlot::default(),
        })
    }

    fn check(&self) -> Result<()> {
        check_groups(self.groups, [self.in_channels, self.out_channels])?;
        check_window([self.kernel_size, self.stride, self.dilation])?;
        if matches!(self.padding, Padding::Same) && self.stride != [1; D] {
            return Err(
                Error::invalid(format!("padding_same needs a stride of 1, not {:?}", self.stride))
                    .with_hint("give the padding in numbers"),
            );
        }
        Ok(())
    }

    /// The padding done by the convolution op, or a border in its place. The op only pads with zeros, as many at both
    /// ends of an axis.
    fn borders(&self) -> ([usize; D], Option<Border<D>>) {
        let widths = std::array::from_fn(|i| {
            if let Padding::Each(padding) = self.padding {
                return (padding[i], padding[i]);
            }
            let total = self.dilation[i].saturating_mul(self.kernel_size[i] - 1);
            (total / 2, total - total / 2)
        });
        if self.padding_mode == ZEROS && widths.iter().all(|(before, after)| before == after) {
            return (widths.map(|(before, _)| before), None);
        }
        let mode = self.padding_mode;
        ([0; D], Some(Border { widths, mode }))
    }
}

pub(super) fn check_groups(groups: usize, channels: [usize; 2]) -> Result<()> {
    if groups > 0 && channels.iter().all(|count| count.is_multiple_of(groups)) {
        return Ok(());
    }
    let [inputs, outputs] = channels;
    Err(Error::invalid(format!(
        "{groups} groups do not divide {inputs} input and {outputs} output channels"
    )))
}

pub(super) fn check_window<const D: usize>([kernel, stride, dilation]: [[usize; D]; 3]) -> Result<()> {
    if ![kernel, stride, dilation].as_flattened().contains(&0) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "kernel {kernel:?}, stride {stride:?} and dilation {dilation:?} must each be at least 1"
    )))
}

fn name<const D: usize>() -> &'static str {
    by_axes::<D, _>(["Conv1d", "Conv2d", "Conv3d"])
}

impl<const D: usize, B: Backend> Conv<D, B> {
    /// A convolution with stride 1, no padding, and a bias; [`ConvConfig`] has the other options.
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
        ConvConfig::new(in_channels, out_channels, kernel_size).build(device)
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
        let x = match self.border {
            None => x,
            Some(Border { widths, mode }) => {
                let mut padding = vec![(0, 0); 2];
                padding.extend(widths.map(|(before, after)| (before as isize, after as isize)));
                Cow::Owned(x.pad_with(&padding, mode)?)
            }
        };
        let bias = self.bias.as_ref().map(Param::tensor);
        if let Some(quantizers) = self.adapters.quantizers() {
            let (x, weight) = quantizers.round(&x, &self.weight.tensor())?;
            return batch.restore(x.conv(&weight, bias.as_ref(), &self.params)?);
        }
        let y = x.conv(&self.weight.tensor(), bias.as_ref(), &self.params)?;
        batch.restore(match self.adapters.active() {
            None => y,
            Some(active) => adapted(&active, &self.layer(), &x, y)?,
        })
    }

    fn layer(&self) -> Layer<'_, B> {
        Layer {
            kind: Kind::Conv {
                params: self.params,
                zeros: self.border.is_none_or(|border| border.mode == ZEROS),
            },
            weight: Weight::Param(&self.weight),
            bias: self.bias.as_ref(),
        }
    }
}

impl<const D: usize, B: Backend> Visit<B> for Conv<D, B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        visitor.field("weight", &self.weight);
        visitor.field("bias", &self.bias);
        self.adapters.visit(self.layer(), visitor);
    }
}

layer_of_tensors!([const D: usize, B: Backend] Conv<D, B>);
