//! An encoder and a decoder.

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor};

use super::{TransformerDecoder, TransformerEncoder, TransformerLayerConfig};
use crate::options::options;
use crate::{Init, Masks, Module, watch};

/// An encoder and a decoder, each with a final norm, as PyTorch's `nn.Transformer`.
#[derive(Debug, Module)]
pub struct Transformer<B: Backend = AnyBackend> {
    /// The encoder.
    pub encoder: TransformerEncoder<B>,
    /// The decoder.
    pub decoder: TransformerDecoder<B>,
}

options! {
    /// Options of [`Transformer`].
    #[derive(Clone, Copy, Debug)]
    pub struct TransformerConfig {
        /// Six layers of this kind on each side.
        pub const fn new(layer: TransformerLayerConfig);
        /// Layers of the encoder.
        num_encoder_layers: usize = 6;
        /// Layers of the decoder.
        num_decoder_layers: usize = 6;
    }
}

impl TransformerConfig {
    /// The model, on a device. Matrices are initialised as in PyTorch: Xavier uniform.
    ///
    /// # Errors
    /// When the heads do not divide `d_model`, the dropout is not a probability, or memory runs out.
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<Transformer<B>> {
        let layer = self.layer;
        let model = Transformer {
            encoder: TransformerEncoder::new(layer, self.num_encoder_layers, device)?.with_norm(layer.norm(device)?),
            decoder: TransformerDecoder::new(layer, self.num_decoder_layers, device)?.with_norm(layer.norm(device)?),
        };
        let mut outcome = Ok(());
        crate::Visitor::walk(&model, |_, item| {
            if let crate::Item::Param(param) = item
                && param.shape().rank() > 1
                && outcome.is_ok()
            {
                outcome = Init::xavier_uniform()
                    .tensor(param.shape(), param.dtype(), device)
                    .and_then(|value| param.set(&value));
            }
        });
        outcome.map(|()| model)
    }
}

impl<B: Backend> Transformer<B> {
    /// The decoder's output for `tgt` and the encoder's output for `src`. `masks` are those of the encoder, of the
    /// decoder's self-attention, and of its attention to the encoder's output.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn forward(&self, src: &Tensor<B>, tgt: &Tensor<B>, masks: [Masks<'_, B>; 3]) -> Result<Tensor<B>> {
        let [src_masks, tgt_masks, memory_masks] = masks;
        watch::layer(self, src, || {
            let memory = self.encoder.forward(src, src_masks)?;
            self.decoder.forward(tgt, &memory, tgt_masks, memory_masks)
        })
    }
}
