//! The building blocks of BERT.

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor};

use super::super::ActivationFn;
use super::BertConfig;
use crate::layers::{Attend, merge_heads, split_heads};
use crate::{Dropout, LayerNorm, Linear, Module, Slot, watch};

/// One layer of BERT: attention, then two linear layers.
#[derive(Debug, Module)]
pub struct Layer<B: Backend = AnyBackend> {
    /// Attention between tokens.
    pub attention: Attention<B>,
    /// The first linear layer, applied to each token.
    pub intermediate: Intermediate<B>,
    /// The second linear layer, with the residual connection.
    pub output: Output<B>,
    #[module(skip)]
    act: ActivationFn,
}

/// Attention and its output projection.
#[derive(Debug, Module)]
pub struct Attention<B: Backend = AnyBackend> {
    /// The heads; "self" in names.
    #[module(rename = "self")]
    pub heads: Heads<B>,
    /// The output projection, with the residual connection.
    pub output: Output<B>,
}

/// The heads of attention.
#[derive(Debug, Module)]
pub struct Heads<B: Backend = AnyBackend> {
    /// `[…, hidden_size]` to the queries of all heads, of the same shape.
    pub query: Slot<Linear<B>, B>,
    /// The same for the keys.
    pub key: Slot<Linear<B>, B>,
    /// The same for the values.
    pub value: Slot<Linear<B>, B>,
    count: usize,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
}

/// The first of a layer's two linear layers.
#[derive(Debug, Module)]
pub struct Intermediate<B: Backend = AnyBackend> {
    /// `[…, hidden_size]` to `[…, intermediate_size]`.
    pub dense: Slot<Linear<B>, B>,
}

/// The end of a block: a projection, then the residual sum, which is normalised.
#[derive(Debug, Module)]
pub struct Output<B: Backend = AnyBackend> {
    /// Projects to `[…, hidden_size]`.
    pub dense: Slot<Linear<B>, B>,
    /// Normalises the sum; "LayerNorm" in names.
    #[module(rename = "LayerNorm")]
    pub layer_norm: Slot<LayerNorm<B>, B>,
    /// Dropout before the sum.
    pub dropout: Dropout,
}

impl<B: Backend> Layer<B> {
    /// A layer with random weights.
    ///
    /// # Errors
    /// When memory runs out, or the config's dropout is not a probability.
    pub fn new(config: &BertConfig, device: &Device<B>) -> Result<Self> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let linear = || config.linear(width, width, device).map(Slot::new);
        Ok(Self {
            attention: Attention {
                heads: Heads {
                    query: linear()?,
                    key: linear()?,
                    value: linear()?,
                    count: config.num_attention_heads,
                    dropout: Dropout::new(config.attention_probs_dropout_prob)?,
                },
                output: Output::new(config, width, device)?,
            },
            intermediate: Intermediate {
                dense: config.linear(width, inner, device)?.into(),
            },
            output: Output::new(config, inner, device)?,
            act: config.hidden_act,
        })
    }

    pub(super) fn forward(&self, x: &Tensor<B>, mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let attended = self.attention.heads.forward(x, mask)?;
            let x = self.attention.output.forward(&attended, x)?;
            let inner = self.act.forward(&self.intermediate.dense.forward(&x)?)?;
            self.output.forward(&inner, &x)
        })
    }
}

impl<B: Backend> Heads<B> {
    fn forward(&self, x: &Tensor<B>, mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let part = |linear: &Slot<Linear<B>, B>| split_heads(&linear.forward(x)?, self.count);
            let attend = Attend {
                options: polygrad_tensor::Attention::new().mask(mask),
                dropout: self.dropout.rate(),
            };
            merge_heads(&attend.values(&part(&self.query)?, &part(&self.key)?, &part(&self.value)?)?)
        })
    }
}

impl<B: Backend> Output<B> {
    fn new(config: &BertConfig, inputs: usize, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            dense: config.linear(inputs, config.hidden_size, device)?.into(),
            layer_norm: config.norm(device)?.into(),
            dropout: Dropout::new(config.hidden_dropout_prob)?,
        })
    }

    fn forward(&self, part: &Tensor<B>, stream: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, part, || {
            let part = self.dropout.forward(&self.dense.forward(part)?)?;
            self.layer_norm.forward(&part.add(stream)?)
        })
    }
}
