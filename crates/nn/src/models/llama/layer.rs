//! One block of Llama.

use polygrad_tensor::{Backend, DType, Device, HostTensor, Result, Shape, Tensor};

use super::LlamaConfig;
use crate::layers::{Attend, merge_heads, rotate_halves, split_heads};
use crate::models::ActivationFn;
use crate::{Dropout, KvCache, Linear, LinearConfig, Module, RMSNorm, RMSNormConfig, watch};

#[derive(Debug, Module)]
pub(super) struct DecoderLayer<B: Backend> {
    self_attn: Attention<B>,
    mlp: Mlp<B>,
    input_layernorm: RMSNorm<B>,
    post_attention_layernorm: RMSNorm<B>,
}

/// What the places of tokens are to all blocks of a forward pass.
pub(super) struct Turns<B: Backend> {
    cos: Tensor<B>,
    sin: Tensor<B>,
}

impl<B: Backend> Turns<B> {
    /// For positions `[S]` or `[N, S]` (i64) and vectors of this dtype.
    pub(super) fn new(config: &LlamaConfig, positions: &Tensor<B>, dtype: DType) -> Result<Self> {
        let frequencies = config.frequencies()?;
        let wide = dtype.wide();
        let frequencies = HostTensor::new(Shape::new(&[frequencies.len()])?, frequencies)?.cast(wide);
        let frequencies = Tensor::from_host(frequencies, &positions.device())?;
        let mut angles = positions.to_dtype(wide)?.unsqueeze(-1)?.mul(&frequencies)?;
        if positions.rank() == 2 {
            // For all heads.
            angles = angles.unsqueeze(1)?;
        }
        Ok(Self {
            cos: angles.cos()?,
            sin: angles.sin()?,
        })
    }

    fn turned(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        Tensor::in_wide([x], |[x]| rotate_halves(x, &self.cos, &self.sin))
    }
}

pub(super) fn norm<B: Backend>(config: &LlamaConfig, device: &Device<B>) -> Result<RMSNorm<B>> {
    RMSNormConfig::new([config.hidden_size])
        .eps(config.rms_norm_eps)
        .build(device)
}

fn linear<B: Backend>(
    config: &LlamaConfig,
    [inputs, outputs]: [usize; 2],
    bias: bool,
    device: &Device<B>,
) -> Result<Linear<B>> {
    LinearConfig::new(inputs, outputs)
        .bias(bias)
        .init(config.init())
        .bias_init(crate::Init::ZEROS)
        .build(device)
}

impl<B: Backend> DecoderLayer<B> {
    pub(super) fn new(config: &LlamaConfig, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            self_attn: Attention::new(config, device)?,
            mlp: Mlp::new(config, device)?,
            input_layernorm: norm(config, device)?,
            post_attention_layernorm: norm(config, device)?,
        })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor<B>,
        turns: &Turns<B>,
        cache: Option<&mut KvCache<B>>,
        mask: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let y = self
                .self_attn
                .forward(&self.input_layernorm.forward(x)?, turns, cache, mask)?;
            let x = x.add(&y)?;
            x.add(&self.mlp.forward(&self.post_attention_layernorm.forward(&x)?)?)
        })
    }
}

#[derive(Debug, Module)]
struct Attention<B: Backend> {
    q_proj: Linear<B>,
    k_proj: Linear<B>,
    v_proj: Linear<B>,
    o_proj: Linear<B>,
    heads: usize,
    key_value_heads: usize,
    dropout: Dropout,
}

impl<B: Backend> Attention<B> {
    fn new(config: &LlamaConfig, device: &Device<B>) -> Result<Self> {
        let (heads, shared) = (config.num_attention_heads, config.key_value_heads());
        let (width, inner, narrow) = (
            config.hidden_size,
            heads * config.head_dim(),
            shared * config.head_dim(),
        );
        let bias = config.qkv_bias();
        Ok(Self {
            q_proj: linear(config, [width, inner], bias, device)?,
            k_proj: linear(config, [width, narrow], bias, device)?,
            v_proj: linear(config, [width, narrow], bias, device)?,
            o_proj: linear(config, [inner, width], config.output_bias(), device)?,
            heads,
            key_value_heads: shared,
            dropout: Dropout::new(config.attention_dropout)?,
        })
    }

    fn forward(
        &self,
        x: &Tensor<B>,
        turns: &Turns<B>,
        cache: Option<&mut KvCache<B>>,
        mask: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let q = turns.turned(&split_heads(&self.q_proj.forward(x)?, self.heads)?)?;
            let mut k = turns.turned(&split_heads(&self.k_proj.forward(x)?, self.key_value_heads)?)?;
            let mut v = split_heads(&self.v_proj.forward(x)?, self.key_value_heads)?;
            if let Some(cache) = cache {
                (k, v) = cache.append(&k, &v)?;
            }
            if self.dropout.rate() > 0.0 {
                (k, v) = (self.for_each_query(&k)?, self.for_each_query(&v)?);
            }
            let attend = Attend {
                options: polygrad_tensor::Attention::new().causal(true).mask(mask),
                dropout: self.dropout.rate(),
            };
            self.o_proj.forward(&merge_heads(&attend.values(&q, &k, &v)?)?)
        })
    }

    /// Keys or values, once for each head of queries: the weights that dropout sees are as many.
    fn for_each_query(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let each = self.heads / self.key_value_heads;
        let shape = x.shape();
        let dims = [shape[0], shape[1], each, shape[2], shape[3]];
        x.unsqueeze(2)?.expand(dims)?.flatten(1, 2)
    }
}

#[derive(Debug, Module)]
struct Mlp<B: Backend> {
    gate_proj: Linear<B>,
    up_proj: Linear<B>,
    down_proj: Linear<B>,
    #[module(skip)]
    act: ActivationFn,
}

impl<B: Backend> Mlp<B> {
    fn new(config: &LlamaConfig, device: &Device<B>) -> Result<Self> {
        let (width, inner, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        Ok(Self {
            gate_proj: linear(config, [width, inner], bias, device)?,
            up_proj: linear(config, [width, inner], bias, device)?,
            down_proj: linear(config, [inner, width], bias, device)?,
            act: config.hidden_act,
        })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let gate = self.gate_proj.forward_with(x, self.act.function())?;
            self.down_proj.forward(&gate.mul(&self.up_proj.forward(x)?)?)
        })
    }
}
