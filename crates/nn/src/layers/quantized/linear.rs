//! The fully connected layer whose weight stays packed.

use polygrad_tensor::{AnyBackend, Backend, BlockScheme, Result, Tensor};

use super::{HostBlocks, QuantizedWeight};
use crate::layers::layer_of_tensors;
use crate::lora::{AdapterSlot, Kind, Layer, Weight, adapted};
use crate::{Linear, Param, Visit, Visitor, watch};

/// A [`Linear`] whose weight stays packed and is not trained; adapters beside it can be trained, as in QLoRA.
///
/// Source: Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs" (2023).
///
/// ```
/// use polygrad_nn::{Linear, QuantizedLinear};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{BlockScheme, Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// let layer = Linear::new(64, 8, &device)?;
/// let packed = QuantizedLinear::pack(&layer, BlockScheme::Q8)?;
/// let x = Tensor::ones([1, 64], &device)?;
/// let off = packed.forward(&x)?.sub(&layer.forward(&x)?)?.abs()?.amax(())?.item()?;
/// assert!(off < 0.05);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct QuantizedLinear<B: Backend = AnyBackend> {
    /// `[out_features, in_features]`.
    pub weight: QuantizedWeight<B>,
    /// `[out_features]`.
    pub bias: Option<Param<B>>,
    adapters: AdapterSlot<B>,
}

impl<B: Backend> QuantizedLinear<B> {
    /// A layer of an existing weight, such as one that is tied to another layer's, and an optional bias
    /// `[out_features]`.
    pub fn of(weight: QuantizedWeight<B>, bias: Option<Param<B>>) -> Self {
        Self {
            weight,
            bias,
            adapters: AdapterSlot::default(),
        }
    }

    /// Packs another layer: its weight is [quantized](HostBlocks::quantize), its bias kept.
    ///
    /// # Errors
    /// As [`HostBlocks::quantize`], and when the device fails.
    pub fn pack(layer: &Linear<B>, scheme: BlockScheme) -> Result<Self> {
        let blocks = HostBlocks::quantize(&layer.weight.value().to_host()?, scheme)?;
        let weight = QuantizedWeight::from_host(&blocks, &layer.weight.device())?;
        Ok(Self::of(weight, layer.bias.clone()))
    }

    /// `[…, in_features]` to `[…, out_features]`.
    ///
    /// # Errors
    /// When the last extent is not `in_features`, or the device differs from the weight's.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let y = self.weight.product(x)?;
            let y = match &self.bias {
                Some(bias) => bias.with(|bias| y.add(bias))?,
                None => y,
            };
            match self.adapters.active() {
                None => Ok(y),
                Some(active) => adapted(&active, &self.layer(), x, y),
            }
        })
    }

    fn layer(&self) -> Layer<'_, B> {
        Layer {
            kind: Kind::Linear,
            weight: Weight::Packed(&self.weight),
            bias: self.bias.as_ref(),
        }
    }
}

impl<B: Backend> Visit<B> for QuantizedLinear<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        self.weight.visit(visitor);
        visitor.field("bias", &self.bias);
        self.adapters.visit(self.layer(), visitor);
    }
}

layer_of_tensors!([B: Backend] QuantizedLinear<B>);
