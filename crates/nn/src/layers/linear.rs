//! The fully connected layer.

use polygrad_tensor::{Activation, AnyBackend, Backend, Device, Result, Tensor, inference};

use super::stateless::layer_of_tensors;
use crate::lora::{AdapterSlot, Kind, Layer, Weight, adapted};
use crate::options::options;
use crate::{Fan, Init, Param, Visit, Visitor, watch};

/// `y = x Wᵀ + b` for `x […, in]`: `weight [out, in]` and `bias [out]`, as in PyTorch.
#[derive(Debug)]
pub struct Linear<B: Backend = AnyBackend> {
    /// `[out_features, in_features]`.
    pub weight: Param<B>,
    /// `[out_features]`.
    pub bias: Option<Param<B>>,
    adapters: AdapterSlot<B>,
}

options! {
    /// Options of [`Linear`].
    #[derive(Clone, Copy, Debug)]
    pub struct LinearConfig {
        /// A layer from `in_features` to `out_features`, with bias.
        pub const fn new(in_features: usize, out_features: usize);
        /// Whether there is a bias.
        bias: bool = true;
        /// Initial weight. Default, as in PyTorch: uniform on `±1 / √in_features`.
        init: Option<Init> = None, from |init: Init| Some(init);
        /// Initial bias. Default, as in PyTorch: uniform on `±1 / √in_features`.
        bias_init: Option<Init> = None, from |init: Init| Some(init);
    }
}

impl LinearConfig {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When memory runs out, or an initialisation does not fit.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<Linear<B>> {
        let weight = self.init.unwrap_or(default_weight());
        let bias = self.bias_init.unwrap_or(default_bias(self.in_features));
        Ok(Linear::of(
            weight.param([self.out_features, self.in_features], device)?,
            bias.param_if(self.bias, [self.out_features], device)?,
        ))
    }
}

/// PyTorch's default: Kaiming for a leaky ReLU of slope √5, which amounts to `±1 / √fan_in`.
pub(crate) fn default_weight() -> Init {
    Init::KaimingUniform {
        gain: Init::gain_leaky_relu(5f64.sqrt()),
        fan: Fan::In,
    }
}

/// PyTorch's default: uniform on `±1 / √fan_in`.
pub(super) fn default_bias(fan_in: usize) -> Init {
    match fan_in {
        0 => Init::ZEROS,
        _ => {
            let bound = 1.0 / (fan_in as f64).sqrt();
            Init::Uniform {
                low: -bound,
                high: bound,
            }
        }
    }
}

impl<B: Backend> Linear<B> {
    /// A layer from `in_features` to `out_features`, with bias; [`LinearConfig`] has the other options.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn new(in_features: usize, out_features: usize, device: &Device<B>) -> Result<Self> {
        LinearConfig::new(in_features, out_features).build(device)
    }

    /// A layer of existing parameters: a weight `[out_features, in_features]`, such as one that is tied to another
    /// layer's, and an optional bias `[out_features]`.
    pub fn of(weight: Param<B>, bias: Option<Param<B>>) -> Self {
        Self {
            weight,
            bias,
            adapters: AdapterSlot::default(),
        }
    }

    /// `[…, in_features]` to `[…, out_features]`.
    ///
    /// # Errors
    /// When the last extent is not `in_features`, or dtype or device differ from the weight's.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.compute(x, None)
    }

    /// [`Linear::forward`] and then an activation function, fused into one op if that op has a gradient or none is
    /// needed.
    ///
    /// # Errors
    /// As [`Linear::forward`].
    pub fn forward_with(&self, x: &Tensor<B>, activation: Activation) -> Result<Tensor<B>> {
        self.compute(x, Some(activation))
    }

    fn compute(&self, x: &Tensor<B>, activation: Option<Activation>) -> Result<Tensor<B>> {
        let of = |x: &Tensor<B>, weight: &Tensor<B>, activation| match &self.bias {
            Some(bias) => bias.with(|bias| inference::linear(x, weight, Some(bias), activation)),
            None => inference::linear(x, weight, None, activation),
        };
        let linear = |activation| self.weight.with(|weight| of(x, weight, activation));
        watch::layer(self, x, || match (self.adapters.active(), self.adapters.quantizers()) {
            (None, None) => linear(activation),
            (_, Some(quantizers)) => {
                let (x, weight) = quantizers.round(x, &self.weight.tensor())?;
                of(&x, &weight, activation)
            }
            (Some(active), None) => {
                let y = adapted(&active, &self.layer(), x, linear(None)?)?;
                match activation {
                    Some(activation) => y.activation(activation),
                    None => Ok(y),
                }
            }
        })
    }

    fn layer(&self) -> Layer<'_, B> {
        Layer {
            kind: Kind::Linear,
            weight: Weight::Param(&self.weight),
            bias: self.bias.as_ref(),
        }
    }
}

impl<B: Backend> Visit<B> for Linear<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        visitor.field("weight", &self.weight);
        visitor.field("bias", &self.bias);
        self.adapters.visit(self.layer(), visitor);
    }
}

layer_of_tensors!([B: Backend] Linear<B>);
