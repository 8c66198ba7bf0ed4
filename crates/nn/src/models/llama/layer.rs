//! The building blocks of Llama.

use polygrad_tensor::{
    AnyBackend, Backend, DType, Device, HostTensor, Result, Shape, Tensor, checkpoint, is_grad_enabled,
};

use super::LlamaConfig;
use crate::layers::{Attend, merge_heads, split_heads};
use crate::models::ActivationFn;
use crate::models::causal::Past;
use crate::{Dropout, Linear, LinearConfig, Module, RMSNorm, RMSNormConfig, Slot, watch};

/// One block of Llama. A clone has the same layers.
#[derive(Clone, Debug, Module)]
pub struct DecoderLayer<B: Backend = AnyBackend> {
    /// Attention between tokens.
    pub self_attn: Attention<B>,
    /// The feed-forward part, applied to each token.
    pub mlp: Mlp<B>,
    /// The norm before attention.
    pub input_layernorm: Slot<RMSNorm<B>, B>,
    /// The norm before the feed-forward part.
    pub post_attention_layernorm: Slot<RMSNorm<B>, B>,
}

/// The rotations for the positions of a forward pass, shared by all blocks.
pub(super) struct Turns<B: Backend> {
    cos: Tensor<B>,
    sin: Tensor<B>,
}

impl<B: Backend> Turns<B> {
    /// Rotations for positions `[S]` or `[N, S]` (i64) and vectors of this dtype.
    pub(super) fn new(config: &LlamaConfig, positions: &Tensor<B>, dtype: DType) -> Result<Self> {
        let frequencies = config.frequencies()?;
        let wide = dtype.wide();
        let frequencies = HostTensor::new(Shape::new(&[frequencies.len()])?, frequencies)?.cast(wide);
        let frequencies = Tensor::from_host(frequencies, &positions.device())?;
        let mut angles = positions.to_dtype(wide)?.unsqueeze(-1)?.mul(&frequencies)?;
        if positions.rank() == 2 {
            // Adds an axis for the heads.
            angles = angles.unsqueeze(1)?;
        }
        Ok(Self {
            cos: angles.cos()?,
            sin: angles.sin()?,
        })
    }

    fn turned(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        Tensor::in_wide([x], |[x]| x.rotary(&self.cos, &self.sin))
    }
}

pub(super) fn norm<B: Backend>(config: &LlamaConfig, device: &Device<B>) -> Result<Slot<RMSNorm<B>, B>> {
    RMSNormConfig::new([config.hidden_size])
        .eps(config.rms_norm_eps)
        .build(device)
        .map(Slot::new)
}

fn linear<B: Backend>(
    config: &LlamaConfig,
    [inputs, outputs]: [usize; 2],
    bias: bool,
    device: &Device<B>,
) -> Result<Slot<Linear<B>, B>> {
    LinearConfig::new(inputs, outputs)
        .bias(bias)
        .init(config.init())
        .bias_init(crate::Init::ZEROS)
        .build(device)
        .map(Slot::new)
}

impl<B: Backend> DecoderLayer<B> {
    /// A block with random weights.
    ///
    /// # Errors
    /// When memory runs out, or the config's dropout is not a probability.
    pub fn new(config: &LlamaConfig, device: &Device<B>) -> Result<Self> {
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
        past: Past<'_, B>,
        mask: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let y = self
                .self_attn
                .forward(&self.input_layernorm.forward(x)?, turns, past, mask)?;
            let x = x.add(&y)?;
            x.add(&self.mlp.forward(&self.post_attention_layernorm.forward(&x)?)?)
        })
    }
}

/// The attention of Llama, with rotary positions.
#[derive(Clone, Debug, Module)]
#[module(unused = "rotary_emb.inv_freq")]
pub struct Attention<B: Backend = AnyBackend> {
    /// `[…, hidden_size]` to the queries of all heads.
    pub q_proj: Slot<Linear<B>, B>,
    /// The same for the keys.
    pub k_proj: Slot<Linear<B>, B>,
    /// The same for the values.
    pub v_proj: Slot<Linear<B>, B>,
    /// Projects the heads' output for the residual sum.
    pub o_proj: Slot<Linear<B>, B>,
    heads: usize,
    key_value_heads: usize,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
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
        past: Past<'_, B>,
        mask: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let q = turns.turned(&split_heads(&self.q_proj.forward(x)?, self.heads)?)?;
            let k = turns.turned(&split_heads(&self.k_proj.forward(x)?, self.key_value_heads)?)?;
            let v = split_heads(&self.v_proj.forward(x)?, self.key_value_heads)?;
            let attend = Attend {
                options: polygrad_tensor::Attention::new().causal(true).mask(mask),
                dropout: self.dropout.rate(),
            };
            let values = past.attend([&q, &k, &v], |q, k, v| match attend.dropout > 0.0 {
                true => attend.values(q, &self.for_each_query(k)?, &self.for_each_query(v)?),
                false => attend.values(q, k, v),
            })?;
            self.o_proj.forward(&merge_heads(&values)?)
        })
    }

    /// Repeats keys or values for each query head, since dropout needs the attention weights of all of them.
    fn for_each_query(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let each = self.heads / self.key_value_heads;
        let shape = x.shape();
        let dims = [shape[0], shape[1], each, shape[2], shape[3]];
        x.unsqueeze(2)?.expand(dims)?.flatten(1, 2)
    }
}

/// The gated feed-forward part of a block: the output of one linear layer gates that of another.
#[derive(Clone, Debug, Module)]
pub struct Mlp<B: Backend = AnyBackend> {
    /// `[…, hidden_size]` to `[…, intermediate_size]`, before the activation.
    pub gate_proj: Slot<Linear<B>, B>,
    /// `[…, hidden_size]` to `[…, intermediate_size]`, the vectors that are gated.
    pub up_proj: Slot<Linear<B>, B>,
    /// `[…, intermediate_size]` to `[…, hidden_size]`.
    pub down_proj: Slot<Linear<B>, B>,
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
            let act = self.act.function();
            if !is_grad_enabled() {
                let gate = self.gate_proj.forward_with(x, act)?;
                return self.down_proj.forward(&gate.mul(&self.up_proj.forward(x)?)?);
            }
            // The gradient needs what the activation is computed from, and up's vectors. The activation itself would
            // take half as much memory again, and is computed in little time.
            let gate = self.gate_proj.forward(x)?;
            let gated = checkpoint(
                move |x| x[0].activation(act)?.mul(&x[1]),
                &[&gate, &self.up_proj.forward(x)?],
            )?;
            self.down_proj.forward(&gated)
        })
    }
}
