//! The attention of GPT-2.

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor};

use super::Gpt2Config;
use super::block::Conv1D;
use crate::layers::{Attend, merge_heads, split_heads};
use crate::models::causal::Past;
use crate::{Dropout, Module, Slot, watch};

/// The attention of GPT-2.
#[derive(Clone, Debug, Module)]
#[module(unused = "bias", unused = "masked_bias")]
pub struct Attention<B: Backend = AnyBackend> {
    /// Maps `[…, n_embd]` to concatenated queries, keys and values, `[…, 3 · n_embd]`.
    pub c_attn: Slot<Conv1D<B>, B>,
    /// Projects the heads' output for the residual sum.
    pub c_proj: Slot<Conv1D<B>, B>,
    /// Dropout after that projection.
    pub resid_dropout: Dropout,
    width: usize,
    heads: usize,
    scale: f64,
    /// Dropout of the attention weights.
    pub attn_dropout: Dropout,
}

impl<B: Backend> Attention<B> {
    pub(super) fn new(config: &Gpt2Config, layer: usize, device: &Device<B>) -> Result<Self> {
        let width = config.n_embd;
        let mut scale = 1.0;
        if config.scale_attn_weights {
            scale /= ((width / config.n_head) as f64).sqrt();
        }
        if config.scale_attn_by_inverse_layer_idx {
            scale /= (layer + 1) as f64;
        }
        Ok(Self {
            c_attn: Conv1D::new(width, 3 * width, config.init(), device)?.into(),
            c_proj: Conv1D::new(width, width, config.residual_init(), device)?.into(),
            resid_dropout: Dropout::new(config.resid_pdrop)?,
            width,
            heads: config.n_head,
            scale,
            attn_dropout: Dropout::new(config.attn_pdrop)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor<B>, past: Past<'_, B>, mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let packed = self.c_attn.forward(x)?;
            let part = |i: usize| split_heads(&packed.narrow(2, i * self.width, self.width)?, self.heads);
            let (q, k, v) = (part(0)?, part(1)?, part(2)?);
            let attend = Attend {
                options: polygrad_tensor::Attention::new()
                    .causal(true)
                    .mask(mask)
                    .scale(self.scale),
                dropout: self.attn_dropout.rate(),
            };
            let values = past.attend([&q, &k, &v], |q, k, v| attend.values(q, k, v))?;
            self.resid_dropout
                .forward(&self.c_proj.forward(&merge_heads(&values)?)?)
        })
    }
}
