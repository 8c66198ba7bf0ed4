//! A Llama whose weights stay packed.

use std::collections::BTreeMap;

use polygrad_core::printable;
use polygrad_tensor::{Backend, BlockScheme, Error, ErrorKind, Result, Shape};

use super::Llama;
use crate::layers::{packed_in, put_packed};
use crate::{HostBlocks, Linear, Module, QuantizedEmbedding, QuantizedLinear, QuantizedWeight, Slot, StateDict};

const NAME: &str = "Llama::pack";

impl<B: Backend> Llama<B> {
    /// Replaces the layers at the paths in `schemes` by ones whose weights stay packed, with the packed weights in the
    /// state dict; [`llama_from_gguf_packed`](super::llama_from_gguf_packed) returns both. Packed layers are not
    /// trained, but can have [adapters](crate::lora). The other layers do not change;
    /// [`load_state_dict`](crate::Module::load_state_dict) loads them from the same state dict.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use polygrad_nn::Module;
    /// use polygrad_nn::models::{Llama, LlamaConfig};
    /// # use polygrad_reference::Reference;
    /// # use polygrad_tensor::{BlockScheme, Device, Result, Tensor};
    /// # fn main() -> Result<()> {
    /// # let device = Device::<Reference>::default();
    /// # let config = LlamaConfig {
    /// #     vocab_size: 11,
    /// #     hidden_size: 32,
    /// #     intermediate_size: 64,
    /// #     num_hidden_layers: 2,
    /// #     num_attention_heads: 2,
    /// #     ..LlamaConfig::default()
    /// # };
    /// let mut model = Llama::new(&config, &device)?;
    /// let schemes = BTreeMap::from([("model.layers.0.mlp.up_proj".to_owned(), BlockScheme::Q4)]);
    /// let state = model.packed_state(&schemes)?;
    /// model.pack(&state, &schemes)?;
    /// model.load_state_dict(&state, true)?;
    /// # assert_eq!(model.forward(&Tensor::new([[1i64, 5, 2]], &device)?)?.dims(), [1, 3, 11]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such layer, or the state dict has no packed weight for it or one of another shape; the layers
    /// before it have then changed.
    pub fn pack(&mut self, state: &StateDict, schemes: &BTreeMap<String, BlockScheme>) -> Result<()> {
        let device = match self.parameters().first() {
            Some(param) => param.device(),
            None => {
                return Err(Error::invalid("the model has no parameters of its own, and so no device").with_op(NAME));
            }
        };
        let (words, head) = ("model.embed_tokens", "lm_head");
        let tied = self.config().tie_word_embeddings && schemes.contains_key(words);
        for (path, &scheme) in schemes.iter().filter(|(path, _)| !(tied && *path == head)) {
            let packed = packed_in(state, path, scheme).and_then(|blocks| QuantizedWeight::from_host(&blocks, &device));
            let replaced = packed.and_then(|weight| match path == words {
                true => self.put_words(weight, tied),
                false => self.put_linear(path, weight),
            });
            replaced.map_err(|e| e.with_op(NAME).in_module(path.as_str()))?;
        }
        Ok(())
    }

    /// The model's state dict with the weights of the layers at these paths [quantized](HostBlocks::quantize): for
    /// [`Llama::pack`].
    ///
    /// # Errors
    /// When there is no such layer, or a row of its weight is not a whole number of blocks.
    pub fn packed_state(&self, schemes: &BTreeMap<String, BlockScheme>) -> Result<StateDict> {
        let mut state = self.state_dict()?;
        for (path, &scheme) in schemes {
            let weight = state.get(&format!("{path}.weight")).ok_or_else(|| unknown(path));
            let blocks = weight.and_then(|weight| HostBlocks::quantize(weight, scheme));
            put_packed(&mut state, path, &blocks.map_err(|e| e.in_module(path.as_str()))?);
        }
        Ok(state)
    }

    /// Replaces the token embedding and, if tied, the projection to the vocabulary.
    fn put_words(&mut self, weight: QuantizedWeight<B>, tied: bool) -> Result<()> {
        let embed = &mut self.model.embed_tokens;
        fits(embed.own().map(|layer| layer.weight.shape()), &weight)?;
        if tied {
            self.lm_head.set(QuantizedLinear::of(weight.clone(), None));
        }
        embed.set(QuantizedEmbedding::of(weight));
        Ok(())
    }

    fn put_linear(&mut self, path: &str, weight: QuantizedWeight<B>) -> Result<()> {
        let slot = self.linear_at(path).ok_or_else(|| unknown(path))?;
        let own = slot.own();
        fits(own.map(|layer| layer.weight.shape()), &weight)?;
        let bias = own.and_then(|layer| layer.bias.clone());
        slot.set(QuantizedLinear::of(weight, bias));
        Ok(())
    }

    /// The slot of a linear layer.
    fn linear_at(&mut self, path: &str) -> Option<&mut Slot<Linear<B>, B>> {
        if path == "lm_head" {
            return Some(&mut self.lm_head);
        }
        let (layer, name) = path.strip_prefix("model.layers.")?.split_once('.')?;
        let layer = self.model.layers.get_mut(layer.parse::<usize>().ok()?)?;
        Some(match name {
            "self_attn.q_proj" => &mut layer.self_attn.q_proj,
            "self_attn.k_proj" => &mut layer.self_attn.k_proj,
            "self_attn.v_proj" => &mut layer.self_attn.v_proj,
            "self_attn.o_proj" => &mut layer.self_attn.o_proj,
            "mlp.gate_proj" => &mut layer.mlp.gate_proj,
            "mlp.up_proj" => &mut layer.mlp.up_proj,
            "mlp.down_proj" => &mut layer.mlp.down_proj,
            _ => return None,
        })
    }
}

fn unknown(path: &str) -> Error {
    Error::invalid(format!(
        "there is no layer {} whose weight can be packed",
        printable(path)
    ))
    .with_hint("name embed_tokens or a linear layer by its whole path, without `.weight`")
}

/// Fails unless the weight has the same shape as that of the model's own layer.
fn fits<B: Backend>(own: Option<Shape>, weight: &QuantizedWeight<B>) -> Result<()> {
    let found = weight.dims();
    match own {
        Some(own) if own.dims() == found => Ok(()),
        Some(own) => Err(Error::new(
            ErrorKind::StateDict,
            format!("the packed weight has shape {found:?}, the layer's {own}"),
        )),
        None => Err(Error::invalid("the model's own layer is not there any more")),
    }
}
