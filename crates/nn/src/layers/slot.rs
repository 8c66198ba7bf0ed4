//! Layers that can be replaced.

use std::fmt;
use std::sync::Arc;

use polygrad_tensor::{Activation, AnyBackend, Backend, Result, Tensor};

use crate::{Forward, Linear, Module, Visit, Visitor};

/// A replaceable layer: the models of [`models`](crate::models) have their layers in such slots, and any other layer
/// can take their place. The model's own layer is called directly, without dynamic dispatch. Parameter names are those
/// of the current layer.
///
/// Cloning gives a second handle to the current layer, so that its replacement can contain it. (LoRA does not need
/// this: see [`lora`](crate::lora).)
///
/// ```
/// use polygrad_nn::models::{Bert, BertConfig};
/// use polygrad_nn::{Init, Linear, LinearConfig, Module, Slot};
/// use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// /// Source: Houlsby et al., "Parameter-efficient transfer learning for NLP" (2019).
/// #[derive(Module)]
/// #[module(forward)]
/// struct Bottleneck {
///     base_layer: Slot<Linear>,
///     down: Linear,
///     up: Linear,
/// }
///
/// impl Bottleneck {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         let y = self.base_layer.forward(x)?;
///         y.add(self.up.forward(&self.down.forward(&y)?.relu()?)?)
///     }
/// }
///
/// # let device = Device::<polygrad_reference::Reference>::default().into_any();
/// # let config = BertConfig {
/// #     vocab_size: 20,
/// #     hidden_size: 8,
/// #     num_hidden_layers: 2,
/// #     num_attention_heads: 2,
/// #     intermediate_size: 16,
/// #     ..BertConfig::default()
/// # };
/// let mut model = Bert::new(&config, &device)?;
/// model.requires_grad(false);
/// for layer in &mut model.encoder.layer {
///     let dense = &mut layer.output.dense;
///     dense.set(Bottleneck {
///         base_layer: dense.clone(),
///         down: LinearConfig::new(8, 2).bias(false).build(&device)?,
///         up: LinearConfig::new(2, 8).bias(false).init(Init::ZEROS).build(&device)?,
///     });
/// }
/// let trained: Vec<_> = model.named_parameters().into_iter().filter(|(_, param)| param.is_trainable()).collect();
/// assert_eq!(trained[0].0, "encoder.layer.0.output.dense.down.weight");
/// assert_eq!(trained.len(), 4);
/// # Ok(())
/// # }
/// ```
pub struct Slot<L, B: Backend = AnyBackend>(Held<L, B>);

enum Held<L, B: Backend> {
    Own(Arc<L>),
    Other(Arc<dyn Forward<B>>),
}

impl<L: Forward<B>, B: Backend> Slot<L, B> {
    /// A slot with the model's own layer.
    pub fn new(layer: L) -> Self {
        Self(Held::Own(Arc::new(layer)))
    }

    /// Puts another layer here. It must have the same inputs and outputs as the layer before.
    pub fn set(&mut self, layer: impl Forward<B> + 'static) {
        self.0 = Held::Other(Arc::new(layer));
    }

    /// The model's own layer; `None` if it was replaced.
    pub fn own(&self) -> Option<&L> {
        match &self.0 {
            Held::Own(layer) => Some(layer),
            Held::Other(_) => None,
        }
    }

    /// The output of the current layer.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        match &self.0 {
            Held::Own(layer) => Forward::forward(&**layer, x),
            Held::Other(layer) => layer.forward(x),
        }
    }
}

impl<B: Backend> Slot<Linear<B>, B> {
    /// [`Slot::forward`] and then an activation function, as one op if the layer is a [`Linear`].
    pub(crate) fn forward_with(&self, x: &Tensor<B>, activation: Activation) -> Result<Tensor<B>> {
        match &self.0 {
            Held::Own(layer) => layer.forward_with(x, activation),
            Held::Other(layer) => layer.forward(x)?.activation(activation),
        }
    }
}

impl<L: Forward<B>, B: Backend> From<L> for Slot<L, B> {
    fn from(layer: L) -> Self {
        Self::new(layer)
    }
}

impl<L, B: Backend> Clone for Slot<L, B> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Held::Own(layer) => Held::Own(Arc::clone(layer)),
            Held::Other(layer) => Held::Other(Arc::clone(layer)),
        })
    }
}

impl<L: Visit<B>, B: Backend> Visit<B> for Slot<L, B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        match &self.0 {
            Held::Own(layer) => layer.visit(visitor),
            Held::Other(layer) => layer.visit(visitor),
        }
    }
}

impl<L: Visit<B>, B: Backend> Module<B> for Slot<L, B> {}

impl<L: Forward<B>, B: Backend> Forward<B> for Slot<L, B> {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward(x)
    }
}

impl<L: fmt::Debug, B: Backend> fmt::Debug for Slot<L, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Held::Own(layer) => layer.fmt(f),
            Held::Other(_) => f.write_str("another layer"),
        }
    }
}
