//! Multi-head attention.

use polygrad_tensor::{AnyBackend, Attention, Backend, Device, Error, Result, Tensor};

use super::{Attend, KvCache, Masks, all_or_nothing, merge_heads, split_heads};
use crate::options::options;
use crate::{Dropout, Init, Linear, LinearConfig, Module, Param, watch};

/// Attention with several heads, as in PyTorch's `nn.MultiheadAttention`: queries, keys and values are each projected,
/// attend in heads of `embed_dim / num_heads`, and are projected again.
///
/// Source: Vaswani et al., "Attention is all you need" (2017).
///
/// ```
/// use polygrad_nn::{Masks, MultiheadAttentionConfig};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let attention = MultiheadAttentionConfig::new(16, 4).batch_first(true).build(&device)?;
/// let x = Tensor::randn([2, 5, 16], &device)?;
/// let y = attention.forward(&x, &x, &x, Masks::causal())?;
/// assert_eq!(y.dims(), [2, 5, 16]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct MultiheadAttention<B: Backend = AnyBackend> {
    /// `[embed_dim, embed_dim]`, if keys or values have another width than queries.
    pub q_proj_weight: Option<Param<B>>,
    /// `[embed_dim, kdim]`.
    pub k_proj_weight: Option<Param<B>>,
    /// `[embed_dim, vdim]`.
    pub v_proj_weight: Option<Param<B>>,
    /// `[3 · embed_dim, embed_dim]`: the projections of queries, keys and values, if all have the same width.
    pub in_proj_weight: Option<Param<B>>,
    /// `[3 · embed_dim]`.
    pub in_proj_bias: Option<Param<B>>,
    /// `[1, 1, embed_dim]`: an additional key for all queries.
    pub bias_k: Option<Param<B>>,
    /// `[1, 1, embed_dim]`: the value of that key.
    pub bias_v: Option<Param<B>>,
    /// The last projection.
    pub out_proj: Linear<B>,
    embed_dim: usize,
    num_heads: usize,
    dropout: Dropout,
    batch_first: bool,
    add_zero_attn: bool,
}

options! {
    /// Options of [`MultiheadAttention`].
    #[derive(Clone, Copy, Debug)]
    pub struct MultiheadAttentionConfig {
        /// `num_heads` heads, which divide `embed_dim`.
        pub const fn new(embed_dim: usize, num_heads: usize);
        /// Probability with which each weight is dropped in training.
        dropout: f64 = 0.0;
        /// Whether the projections have biases.
        bias: bool = true;
        /// Width of the keys. Default: `embed_dim`.
        kdim: Option<usize> = None, from |kdim: usize| Some(kdim);
        /// Width of the values. Default: `embed_dim`.
        vdim: Option<usize> = None, from |vdim: usize| Some(vdim);
        /// Whether inputs are `[N, S, E]` instead of `[S, N, E]`.
        batch_first: bool = false;
        /// Whether there is an additional, learned key with its value, which all queries see.
        add_bias_kv: bool = false;
        /// Whether there is an additional key with its value, both 0, which all queries see.
        add_zero_attn: bool = false;
    }
}

impl MultiheadAttentionConfig {
    /// The layer, on a device. Initial values are PyTorch's: weights are Xavier uniform, those of `add_bias_kv` Xavier
    /// normal, biases 0.
    ///
    /// # Errors
    /// When the heads do not divide `embed_dim`, the dropout is not a probability, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<MultiheadAttention<B>> {
        let fail = |e: Error| e.with_op("MultiheadAttention");
        let width = self.embed_dim;
        if self.num_heads == 0 || !width.is_multiple_of(self.num_heads) {
            let error = Error::invalid(format!("{} heads do not divide embed_dim {width}", self.num_heads));
            return Err(fail(error));
        }
        let (kdim, vdim) = (self.kdim.unwrap_or(width), self.vdim.unwrap_or(width));
        let packed = (kdim, vdim) == (width, width);
        let (weight, row) = (Init::xavier_uniform(), Init::xavier_normal());
        let rows = width
            .checked_mul(3)
            .ok_or_else(|| fail(Error::invalid("embed_dim is too large")))?;
        Ok(MultiheadAttention {
            q_proj_weight: weight.param_if(!packed, [width, width], device)?,
            k_proj_weight: weight.param_if(!packed, [width, kdim], device)?,
            v_proj_weight: weight.param_if(!packed, [width, vdim], device)?,
            in_proj_weight: weight.param_if(packed, [rows, width], device)?,
            bias_k: row.param_if(self.add_bias_kv, [1, 1, width], device)?,
            bias_v: row.param_if(self.add_bias_kv, [1, 1, width], device)?,
            in_proj_bias: Init::ZEROS.param_if(self.bias, [rows], device)?,
            out_proj: LinearConfig::new(width, width)
                .bias(self.bias)
                .bias_init(Init::ZEROS)
                .build(device)?,
            embed_dim: width,
            num_heads: self.num_heads,
            dropout: Dropout::new(self.dropout).map_err(fail)?,
            batch_first: self.batch_first,
            add_zero_attn: self.add_zero_attn,
        })
    }
}

impl<B: Backend> MultiheadAttention<B> {
    /// `num_heads` heads, which divide `embed_dim`; [`MultiheadAttentionConfig`] has the other options.
    ///
    /// # Errors
    /// As [`MultiheadAttentionConfig::build`].
    #[track_caller]
    pub fn new(embed_dim: usize, num_heads: usize, device: &Device<B>) -> Result<Self> {
        MultiheadAttentionConfig::new(embed_dim, num_heads).build(device)
    }

    /// Attention of queries `[S, N, embed_dim]` to keys `[T, N, kdim]` and values `[T, N, vdim]`: `[S, N, embed_dim]`.
    /// The batch axis N is the first with `batch_first`, and may be left out.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn forward(
        &self,
        query: &Tensor<B>,
        key: &Tensor<B>,
        value: &Tensor<B>,
        masks: Masks<'_, B>,
    ) -> Result<Tensor<B>> {
        self.call(query, || {
            let [q, k, v] = self.batched([query, key, value])?;
            let [q, k, v] = self.project(&q, &k, &v)?;
            let mixed = self.attend([&q, &k, &v], masks, |attend, k, v| attend.values(&q, k, v))?;
            self.finish(&mixed, query)
        })
    }

    /// [`MultiheadAttention::forward`] that also returns the attention weights `[N, num_heads, S, T]`, of which PyTorch
    /// returns the mean over the heads. T includes the keys of `add_bias_kv` and `add_zero_attn`. Without a batch axis
    /// N is 1.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    pub fn forward_with_weights(
        &self,
        query: &Tensor<B>,
        key: &Tensor<B>,
        value: &Tensor<B>,
        masks: Masks<'_, B>,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        self.call(query, || {
            let [q, k, v] = self.batched([query, key, value])?;
            let [q, k, v] = self.project(&q, &k, &v)?;
            let (mixed, weights) =
                self.attend([&q, &k, &v], masks, |attend, k, v| attend.values_and_weights(&q, k, v))?;
            Ok((self.finish(&mixed, query)?, weights))
        })
    }

    /// Self-attention: [`MultiheadAttention::forward`] with `x` as queries, keys and values, in one projection.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    pub fn forward_self(&self, x: &Tensor<B>, masks: Masks<'_, B>) -> Result<Tensor<B>> {
        self.call(x, || {
            let [q, k, v] = self.project_self(x)?;
            let mixed = self.attend([&q, &k, &v], masks, |attend, k, v| attend.values(&q, k, v))?;
            self.finish(&mixed, x)
        })
    }

    /// Attention of further tokens of a sequence to the cached ones and to each other; the cache then holds them, too.
    /// With [`Masks::causal`] the result is what [`MultiheadAttention::forward_self`] gives for these tokens in the
    /// whole sequence.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`], and when the cache holds another batch.
    pub fn forward_cached(&self, x: &Tensor<B>, cache: &mut KvCache<B>, masks: Masks<'_, B>) -> Result<Tensor<B>> {
        self.call(x, || {
            let [q, k, v] = self.project_self(x)?;
            all_or_nothing(cache, |cache| {
                let (k, v) = cache.append(&k, &v)?;
                let mixed = self.attend([&q, &k, &v], masks, |attend, k, v| attend.values(&q, k, v))?;
                self.finish(&mixed, x)
            })
        })
    }

    /// Wraps every forward: hooks, and the layer's name in errors.
    fn call<T: watch::Output<B>>(&self, query: &Tensor<B>, forward: impl FnOnce() -> Result<T>) -> Result<T> {
        watch::layer(self, query, forward).map_err(|e| e.with_op("MultiheadAttention"))
    }

    /// The inputs with the batch axis first.
    fn batched<const K: usize>(&self, inputs: [&Tensor<B>; K]) -> Result<[Tensor<B>; K]> {
        let rank = inputs[0].rank();
        let mut out = inputs.map(Clone::clone);
        for x in &mut out {
            *x = match (x.rank(), rank) {
                (2, 2) => x.unsqueeze(0)?,
                (3, 3) if self.batch_first => continue,
                (3, 3) => x.transpose(0, 1)?,
                _ => {
                    let form = if self.batch_first { "[N, S, E]" } else { "[S, N, E]" };
                    return Err(Error::shape(format!(
                        "queries, keys and values are all {form}, or all [S, E] without a batch"
                    ))
                    .with_operands(inputs.map(|x| (x.shape(), x.dtype()))));
                }
            };
        }
        Ok(out)
    }

    /// Projects to queries, keys and values in heads, `[N, H, S, D]`.
    fn project(&self, query: &Tensor<B>, key: &Tensor<B>, value: &Tensor<B>) -> Result<[Tensor<B>; 3]> {
        let bias = self.in_proj_bias.as_ref().map(Param::tensor);
        let width = self.embed_dim;
        let part = |i: usize, x: &Tensor<B>, own: &Option<Param<B>>| {
            let weight = match (own, &self.in_proj_weight) {
                (Some(own), _) => own.tensor(),
                (None, Some(packed)) => packed.tensor().narrow(0, i * width, width)?,
                (None, None) => return Err(Error::invalid("the layer has lost its projections")),
            };
            let bias = bias.as_ref().map(|bias| bias.narrow(0, i * width, width)).transpose()?;
            split_heads(&x.linear(&weight, bias.as_ref())?, self.num_heads)
        };
        Ok([
            part(0, query, &self.q_proj_weight)?,
            part(1, key, &self.k_proj_weight)?,
            part(2, value, &self.v_proj_weight)?,
        ])
    }

    fn project_self(&self, x: &Tensor<B>) -> Result<[Tensor<B>; 3]> {
        let [x] = self.batched([x])?;
        let Some(weight) = &self.in_proj_weight else {
            return self.project(&x, &x, &x);
        };
        let bias = self.in_proj_bias.as_ref().map(Param::tensor);
        let packed = x.linear(&weight.tensor(), bias.as_ref())?;
        let part = |i: usize| split_heads(&packed.narrow(2, i * self.embed_dim, self.embed_dim)?, self.num_heads);
        Ok([part(0)?, part(1)?, part(2)?])
    }

    fn attend<T>(
        &self,
        [query, key, value]: [&Tensor<B>; 3],
        masks: Masks<'_, B>,
        f: impl FnOnce(Attend<'_, B>, &Tensor<B>, &Tensor<B>) -> Result<T>,
    ) -> Result<T> {
        let (q, k) = (query.shape(), key.shape());
        if q[0] != k[0] {
            return Err(Error::shape(format!("{} sequences of queries, {} of keys", q[0], k[0])));
        }
        let mut mask = masks.combined([q[0], self.num_heads, q[2], k[2]], query.dtype())?;
        let mut causal = masks.is_causal;
        let (mut added_key, mut added_value) = (None, None);
        if self.bias_k.is_some() || self.add_zero_attn {
            let key = added_key.insert(self.with_added(key, self.bias_k.as_ref())?);
            added_value = Some(self.with_added(value, self.bias_v.as_ref())?);
            mask = masks.with_added(mask, &query.device(), [q[2], k[2], key.shape()[2]])?;
            causal = false;
        }
        let attend = Attend {
            options: Attention::new().mask(mask.as_ref()).causal(causal),
            dropout: self.dropout.rate(),
        };
        f(
            attend,
            added_key.as_ref().unwrap_or(key),
            added_value.as_ref().unwrap_or(value),
        )
    }

    /// Appends the keys or values of `add_bias_kv` and `add_zero_attn` to `[N, H, T, D]`.
    fn with_added(&self, x: &Tensor<B>, bias: Option<&Param<B>>) -> Result<Tensor<B>> {
        let mut one = x.shape().to_vec();
        one[2] = 1;
        let mut parts = vec![x.clone()];
        if let Some(bias) = bias {
            parts.push(bias.tensor().reshape([1, one[1], 1, one[3]])?.expand(&one[..])?);
        }
        if self.add_zero_attn {
            parts.push(Tensor::zeros(&one[..], (&x.device(), x.dtype()))?);
        }
        Tensor::cat(&parts, 2)
    }

    /// The last projection, with the axes in the query's order.
    fn finish(&self, mixed: &Tensor<B>, query: &Tensor<B>) -> Result<Tensor<B>> {
        let out = self.out_proj.forward(&merge_heads(mixed)?)?;
        match (query.rank(), self.batch_first) {
            (2, _) => out.squeeze(0),
            (_, true) => Ok(out),
            (_, false) => out.transpose(0, 1),
        }
    }
}
