//! One block of GPT-2.

use polygrad_tensor::{Backend, Device, Result, Tensor};

use super::super::ActivationFn;
use super::Gpt2Config;
use super::attention::Attention;
use crate::{Dropout, Init, KvCache, LayerNorm, LayerNormConfig, Module, Param, watch};

#[derive(Debug, Module)]
pub(super) struct Block<B: Backend> {
    ln_1: LayerNorm<B>,
    attn: Attention<B>,
    ln_2: LayerNorm<B>,
    mlp: Mlp<B>,
}

impl<B: Backend> Block<B> {
    pub(super) fn new(config: &Gpt2Config, layer: usize, device: &Device<B>) -> Result<Self> {
        let norm = || {
            LayerNormConfig::new([config.n_embd])
                .eps(config.layer_norm_epsilon)
                .build(device)
        };
        Ok(Self {
            ln_1: norm()?,
            attn: Attention::new(config, layer, device)?,
            ln_2: norm()?,
            mlp: Mlp::new(config, device)?,
        })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor<B>,
        cache: Option<&mut KvCache<B>>,
        mask: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let x = x.add(&self.attn.forward(&self.ln_1.forward(x)?, cache, mask)?)?;
            x.add(&self.mlp.forward(&self.ln_2.forward(&x)?)?)
        })
    }
}

#[derive(Debug, Module)]
struct Mlp<B: Backend> {
    c_fc: Conv1D<B>,
    c_proj: Conv1D<B>,
    #[module(skip)]
    act: ActivationFn,
    dropout: Dropout,
}

impl<B: Backend> Mlp<B> {
    fn new(config: &Gpt2Config, device: &Device<B>) -> Result<Self> {
        let (width, inner) = (config.n_embd, config.n_inner.unwrap_or(4 * config.n_embd));
        Ok(Self {
            c_fc: Conv1D::new(width, inner, config.init(), device)?,
            c_proj: Conv1D::new(inner, width, config.residual_init(), device)?,
            act: config.activation_function,
            dropout: Dropout::new(config.resid_pdrop)?,
        })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let inner = self.act.forward(&self.c_fc.forward(x)?)?;
            self.dropout.forward(&self.c_proj.forward(&inner)?)
        })
    }
}

/// A linear layer whose weight is stored as `[in, out]`, as GPT-2's files have it.
#[derive(Debug, Module)]
pub(super) struct Conv1D<B: Backend> {
    weight: Param<B>,
    bias: Param<B>,
}

impl<B: Backend> Conv1D<B> {
    pub(super) fn new(inputs: usize, outputs: usize, init: Init, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            weight: init.param([inputs, outputs], device)?,
            bias: Init::ZEROS.param([outputs], device)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            x.linear(&self.weight.tensor().t()?, Some(&self.bias.tensor()))
        })
    }
}
