//! One layer of BERT.

use polygrad_tensor::{Backend, Device, Result, Tensor};

use super::super::ActivationFn;
use super::BertConfig;
use crate::layers::{Attend, merge_heads, split_heads};
use crate::{Dropout, LayerNorm, Linear, Module, watch};

#[derive(Debug, Module)]
pub(super) struct Layer<B: Backend> {
    attention: Attention<B>,
    intermediate: Intermediate<B>,
    output: Output<B>,
    #[module(skip)]
    act: ActivationFn,
}

#[derive(Debug, Module)]
struct Attention<B: Backend> {
    #[module(rename = "self")]
    heads: Heads<B>,
    output: Output<B>,
}

#[derive(Debug, Module)]
struct Heads<B: Backend> {
    query: Linear<B>,
    key: Linear<B>,
    value: Linear<B>,
    count: usize,
    dropout: Dropout,
}

#[derive(Debug, Module)]
struct Intermediate<B: Backend> {
    dense: Linear<B>,
}

/// The end of a part: back into the stream, whose sum is normalised.
#[derive(Debug, Module)]
struct Output<B: Backend> {
    dense: Linear<B>,
    #[module(rename = "LayerNorm")]
    layer_norm: LayerNorm<B>,
    dropout: Dropout,
}

impl<B: Backend> Layer<B> {
    pub(super) fn new(config: &BertConfig, device: &Device<B>) -> Result<Self> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let linear = || config.linear(width, width, device);
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
                dense: config.linear(width, inner, device)?,
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
            let part = |linear: &Linear<B>| split_heads(&linear.forward(x)?, self.count);
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
            dense: config.linear(inputs, config.hidden_size, device)?,
            layer_norm: config.norm(device)?,
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
