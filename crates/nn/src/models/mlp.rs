//! The multilayer perceptron.

use polygrad_tensor::{Activation, AnyBackend, Backend, Device, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use super::{ActivationFn, ModelConfig};
use crate::{Forward, Linear, LinearConfig, Module, Visit, Visitor, watch};

/// Options of [`Mlp`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MlpConfig {
    /// Features of the input, of each hidden layer, and of the output: at least two numbers. Default: `[784, 128, 10]`.
    pub sizes: Vec<usize>,
    /// The activation between two layers. Default: ReLU.
    pub activation: ActivationFn,
    /// Whether the layers have biases. Default: true.
    pub bias: bool,
}

impl Default for MlpConfig {
    fn default() -> Self {
        Self::new([784, 128, 10])
    }
}

impl ModelConfig for MlpConfig {}

impl MlpConfig {
    /// Layers of these sizes with ReLU between them.
    pub fn new(sizes: impl Into<Vec<usize>>) -> Self {
        Self {
            sizes: sizes.into(),
            activation: ActivationFn::Relu,
            bias: true,
        }
    }
}

/// Linear layers with an activation between them: `[…, sizes[0]]` to `[…, sizes[last]]`. Parameter names are those of
/// PyTorch's `nn.Sequential(Linear, ReLU, Linear, …)`: `0.weight`, `0.bias`, `2.weight`, …
///
/// ```
/// use polygrad_nn::{Module, models::{Mlp, MlpConfig}};
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let model = Mlp::new(&MlpConfig::new([4, 8, 2]), &device)?;
/// assert_eq!(model.forward(&Tensor::ones([3, 4], &device)?)?.dims(), [3, 2]);
/// assert_eq!(model.named_parameters()[2].0, "2.weight");
/// # Ok(())
/// # }
/// ```
pub struct Mlp<B: Backend = AnyBackend> {
    hidden: Vec<Linear<B>>,
    output: Linear<B>,
    activation: Activation,
}

impl<B: Backend> Mlp<B> {
    /// A perceptron with PyTorch's initial values.
    ///
    /// # Errors
    /// When there are fewer than two sizes, or memory runs out.
    pub fn new(config: &MlpConfig, device: &Device<B>) -> Result<Self> {
        if config.sizes.len() < 2 {
            let what = format!("sizes = {:?} has no input and output", config.sizes);
            return Err(Error::invalid(what).with_op("Mlp"));
        }
        let layer = |pair: &[usize]| LinearConfig::new(pair[0], pair[1]).bias(config.bias).build(device);
        let last = config.sizes.len() - 1;
        Ok(Self {
            hidden: config.sizes[..last].windows(2).map(layer).collect::<Result<_>>()?,
            output: layer(&config.sizes[last - 1..])?,
            activation: config.activation.function(),
        })
    }

    /// `[…, sizes[0]]` to `[…, sizes[last]]`.
    ///
    /// # Errors
    /// When the last extent, the dtype or the device does not fit.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let mut hidden = None;
            for layer in &self.hidden {
                hidden = Some(layer.forward_with(hidden.as_ref().unwrap_or(x), self.activation)?);
            }
            self.output.forward(hidden.as_ref().unwrap_or(x))
        })
    }
}

impl<B: Backend> Visit<B> for Mlp<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        // The activations between the layers also count.
        for (i, layer) in self.hidden.iter().chain([&self.output]).enumerate() {
            visitor.index(2 * i, layer);
        }
    }
}

impl<B: Backend> Module<B> for Mlp<B> {}

impl<B: Backend> Forward<B> for Mlp<B> {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward(x)
    }
}
