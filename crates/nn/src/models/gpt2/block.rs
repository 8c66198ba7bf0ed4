//! One block of GPT-2.

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor};

use super::super::ActivationFn;
use super::super::causal::Past;
use super::Gpt2Config;
use super::attention::Attention;
use crate::layers::layer_of_tensors;
use crate::lora::{AdapterSlot, Kind, Layer, Weight, adapted};
use crate::{Dropout, Init, LayerNorm, LayerNormConfig, Module, Param, Slot, Visit, Visitor, watch};

/// One block of GPT-2. A clone has the same layers.
#[derive(Clone, Debug, Module)]
pub struct Block<B: Backend = AnyBackend> {
    /// The norm before attention.
    pub ln_1: Slot<LayerNorm<B>, B>,
    /// Attention between tokens.
    pub attn: Attention<B>,
    /// The norm before the linear layers.
    pub ln_2: Slot<LayerNorm<B>, B>,
    /// The linear layers, applied to each token.
    pub mlp: Mlp<B>,
}

impl<B: Backend> Block<B> {
    /// Block number `layer`, with random weights.
    ///
    /// # Errors
    /// When memory runs out, or the config's dropout is not a probability.
    pub fn new(config: &Gpt2Config, layer: usize, device: &Device<B>) -> Result<Self> {
        let norm = || {
            LayerNormConfig::new([config.n_embd])
                .eps(config.layer_norm_epsilon)
                .build(device)
                .map(Slot::new)
        };
        Ok(Self {
            ln_1: norm()?,
            attn: Attention::new(config, layer, device)?,
            ln_2: norm()?,
            mlp: Mlp::new(config, device)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor<B>, past: Past<'_, B>, mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let x = x.add(&self.attn.forward(&self.ln_1.forward(x)?, past, mask)?)?;
            x.add(&self.mlp.forward(&self.ln_2.forward(&x)?)?)
        })
    }
}

/// The linear layers of a block.
#[derive(Clone, Debug, Module)]
pub struct Mlp<B: Backend = AnyBackend> {
    /// `[…, n_embd]` to `[…, n_inner]`.
    pub c_fc: Slot<Conv1D<B>, B>,
    /// The same in the other direction.
    pub c_proj: Slot<Conv1D<B>, B>,
    #[module(skip)]
    act: ActivationFn,
    /// Dropout after that.
    pub dropout: Dropout,
}

impl<B: Backend> Mlp<B> {
    fn new(config: &Gpt2Config, device: &Device<B>) -> Result<Self> {
        let (width, inner) = (config.n_embd, config.n_inner.unwrap_or(4 * config.n_embd));
        Ok(Self {
            c_fc: Conv1D::new(width, inner, config.init(), device)?.into(),
            c_proj: Conv1D::new(inner, width, config.residual_init(), device)?.into(),
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

/// A linear layer whose weight is stored as `[in, out]`, as in GPT-2's files.
#[derive(Debug)]
pub struct Conv1D<B: Backend = AnyBackend> {
    /// `[in, out]`.
    pub weight: Param<B>,
    /// `[out]`.
    pub bias: Param<B>,
    adapters: AdapterSlot<B>,
}

impl<B: Backend> Conv1D<B> {
    /// A layer with this initial weight and a bias of 0.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new(inputs: usize, outputs: usize, init: Init, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            weight: init.param([inputs, outputs], device)?,
            bias: Init::ZEROS.param([outputs], device)?,
            adapters: AdapterSlot::default(),
        })
    }

    /// `[…, in]` to `[…, out]`.
    ///
    /// # Errors
    /// When the last extent is not `in`, or dtype or device differ from the weight's.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            if let Some(quantizers) = self.adapters.quantizers() {
                let (x, weight) = quantizers.round(x, &self.weight.tensor())?;
                return x.linear(&weight.t()?, Some(&self.bias.tensor()));
            }
            let y = x.linear(&self.weight.tensor().t()?, Some(&self.bias.tensor()))?;
            match self.adapters.active() {
                None => Ok(y),
                Some(active) => adapted(&active, &self.layer(), x, y),
            }
        })
    }

    fn layer(&self) -> Layer<'_, B> {
        Layer {
            kind: Kind::Transposed,
            weight: Weight::Param(&self.weight),
            bias: Some(&self.bias),
        }
    }
}

impl<B: Backend> Visit<B> for Conv1D<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        visitor.field("weight", &self.weight);
        visitor.field("bias", &self.bias);
        self.adapters.visit(self.layer(), visitor);
    }
}

layer_of_tensors!([B: Backend] Conv1D<B>);
