//! Attention over heads, as all models here compute it.

use polygrad_tensor::{Attention, Backend, Error, Result, Tensor};

/// `[N, S, H · D]` as `[N, H, S, D]`.
pub(crate) fn split_heads<B: Backend>(x: &Tensor<B>, heads: usize) -> Result<Tensor<B>> {
    let shape = x.shape();
    if shape.rank() != 3 || heads == 0 || !shape[2].is_multiple_of(heads) {
        return Err(
            Error::shape(format!("takes [N, S, E], where {heads} heads divide E")).with_operands([(shape, x.dtype())])
        );
    }
    x.reshape([shape[0], shape[1], heads, shape[2] / heads])?
        .transpose(1, 2)
}

/// `[N, H, S, D]` as `[N, S, H · D]`.
pub(crate) fn merge_heads<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    x.transpose(1, 2)?.flatten(2, 3)
}

/// Options of an attention computation.
pub(crate) struct Attend<'a, B: Backend> {
    pub(crate) options: Attention<'a, B>,
    /// Probability of dropping a weight; 0 in evaluation.
    pub(crate) dropout: f64,
}

impl<B: Backend> Attend<'_, B> {
    /// The attention output `[N, H, S, E]` for queries `[N, H, S, D]`.
    pub(crate) fn values(&self, query: &Tensor<B>, key: &Tensor<B>, value: &Tensor<B>) -> Result<Tensor<B>> {
        if self.dropout > 0.0 {
            return self.values_and_weights(query, key, value).map(|(values, _)| values);
        }
        query.scaled_dot_product_attention(key, value, self.options)
    }

    /// [`Attend::values`] and the weights `[N, H, S, T]`, after dropout, as PyTorch gives them.
    pub(crate) fn values_and_weights(
        &self,
        query: &Tensor<B>,
        key: &Tensor<B>,
        value: &Tensor<B>,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        let mut weights = query.attention_weights(key, self.options)?;
        if self.dropout > 0.0 {
            weights = weights.dropout(self.dropout)?;
        }
        Ok((weights.matmul(value)?, weights))
    }
}
