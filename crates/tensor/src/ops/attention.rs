//! Scaled dot-product attention.

use polygrad_core::{AnyBackend, Backend, DType, Error, MAX_RANK, Op, Result, Shape, decompose};
use smallvec::SmallVec;

use super::context;
use crate::autocast::Lower;
use crate::graph::{needs_graph, record};
use crate::tracked::Tracked;
use crate::{Tensor, flops};

const NAME: &str = "scaled_dot_product_attention";

/// Options of [`Tensor::scaled_dot_product_attention`] and [`Tensor::attention_weights`].
///
/// ```
/// # use polygrad_tensor::{Attention, Backend, Result, Tensor};
/// # fn attend<B: Backend>(q: &Tensor<B>, k: &Tensor<B>, v: &Tensor<B>, mask: &Tensor<B>) -> Result<()> {
/// let plain = q.scaled_dot_product_attention(k, v, Attention::new())?;
/// let masked = q.scaled_dot_product_attention(k, v, Attention::new().causal(true).mask(mask).scale(0.5))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Attention<'a, B: Backend = AnyBackend> {
    mask: Option<&'a Tensor<B>>,
    causal: bool,
    scale: Option<f64>,
}

impl<B: Backend> Clone for Attention<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Attention<'_, B> {}

impl<B: Backend> Default for Attention<'_, B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, B: Backend> Attention<'a, B> {
    /// Attention of all queries to all keys, scaled by `1 / √D`.
    pub const fn new() -> Self {
        Self {
            mask: None,
            causal: false,
            scale: None,
        }
    }

    /// A bool mask is true for visible keys, a float mask is added to the scores; it broadcasts to `[…, S, T]`.
    /// Default: none.
    #[must_use]
    pub fn mask(mut self, mask: impl Into<Option<&'a Tensor<B>>>) -> Self {
        self.mask = mask.into();
        self
    }

    /// Whether query i sees only the keys up to i + T − S, which is aligned to the bottom right. Default: false.
    #[must_use]
    pub const fn causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }

    /// Factor of the products of queries and keys. Default: `None`, which means `1 / √D`.
    #[must_use]
    pub fn scale(mut self, scale: impl Into<Option<f64>>) -> Self {
        self.scale = scale.into();
        self
    }

    fn scale_of(&self, query: &Tensor<B>) -> f64 {
        let width = query.shape()[query.rank() - 1];
        self.scale.unwrap_or_else(|| 1.0 / (width as f64).sqrt())
    }
}

impl<B: Backend> Tensor<B> {
    /// Scaled dot-product attention, `softmax(scale · Q Kᵀ + mask) V`, for queries `[…, S, D]`, keys `[…, T, D]`,
    /// values `[…, T, E]`, whose leading axes broadcast. A row that sees no key is 0.
    ///
    /// Queries `[…, H, S, D]` whose number of heads is a multiple of the keys' (grouped-query attention) share heads of
    /// keys: with 8 heads of queries and 2 of keys, the first 4 use the first. Source: Ainslie et al., "GQA: training
    /// generalized multi-query transformer models from multi-head checkpoints" (2023).
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn scaled_dot_product_attention(&self, key: &Self, value: &Self, options: Attention<'_, B>) -> Result<Self> {
        if let Some(lower) = Lower::wanted() {
            let (query, key, value) = (lower.cast(self)?, lower.cast(key)?, lower.cast(value)?);
            let mask = lower.cast_option(options.mask)?;
            return lower.run(|| query.scaled_dot_product_attention(&key, &value, options.mask(mask.as_ref())));
        }
        let (query, Attention { mask, causal, .. }) = (self, options);
        let fail = |e| context(e, NAME, &[query, key, value]);
        let (k, v) = (key.shape(), value.shape());
        if let Some(group) = Group::find(query.shape(), k)
            && v.rank() >= 3
            && v[v.rank() - 3] == group.key_heads
        {
            if query.shape()[query.rank() - 2] == 1 && mask.is_none_or(|mask| group.is_of_rows(mask)) {
                let rows = group.rows(query).map_err(fail)?;
                let mask = mask.map(|mask| group.row_mask(mask)).transpose().map_err(fail)?;
                let attended = rows.scaled_dot_product_attention(key, value, options.mask(mask.as_ref()).causal(false));
                return attended.and_then(|y| group.single(&y)).map_err(fail);
            }
            let mask = mask.map(|mask| group.mask(mask)).transpose().map_err(fail)?;
            let grouped = group.queries(query).map_err(fail)?.scaled_dot_product_attention(
                &key.unsqueeze(-3).map_err(fail)?,
                &value.unsqueeze(-3).map_err(fail)?,
                options.mask(mask.as_ref()),
            );
            return group.merged(&grouped.map_err(fail)?);
        }
        let &[.., values, out] = v.dims() else {
            return Err(fail(misfit()));
        };
        if values != keys(k).map_err(fail)? || value.dtype() != query.dtype() {
            return Err(fail(misfit()));
        }
        query.check_device(value).map_err(fail)?;
        let batch = leading(&v).map_err(fail)?;
        let (query, key, batch) = query.aligned(key, mask, batch).map_err(fail)?;
        let value = value
            .expand(matrices(&batch, values, out).map_err(fail)?)
            .map_err(fail)?;
        let scale = options.scale_of(&query);
        // The fused gradient does not include the mask's.
        if mask.is_some_and(|mask| needs_graph(&[mask])) {
            return decompose::attention::<Tracked<B>>(&query, &key, &value, mask, scale, causal).map_err(fail);
        }
        let (q, k, v) = (&query.value, &key.value, &value.value);
        let attended = B::attention(q, k, v, mask.map(|m| &m.value), scale, causal).map_err(fail)?;
        let width = query.shape()[query.rank() - 1];
        flops::add_products(B::shape(&attended).numel() / out.max(1) * values, width + out);
        let inputs: SmallVec<[&Self; 4]> = [&query, &key, &value].into_iter().chain(mask).collect();
        Ok(record(attended, &inputs, || Op::Attention { scale, causal }))
    }

    /// The weight of each value for each query in [`Tensor::scaled_dot_product_attention`]:
    /// `softmax(scale · Q Kᵀ + mask)`, `[…, S, T]`.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn attention_weights(&self, key: &Self, options: Attention<'_, B>) -> Result<Self> {
        if let Some(lower) = Lower::wanted() {
            let (query, key, mask) = (lower.cast(self)?, lower.cast(key)?, lower.cast_option(options.mask)?);
            return lower.run(|| query.attention_weights(&key, options.mask(mask.as_ref())));
        }
        let (query, Attention { mask, causal, .. }) = (self, options);
        let fail = |e| context(e, "attention_weights", &[query, key]);
        if let Some(group) = Group::find(query.shape(), key.shape()) {
            let mask = mask.map(|mask| group.mask(mask)).transpose().map_err(fail)?;
            let (queries, key) = (group.queries(query).map_err(fail)?, key.unsqueeze(-3).map_err(fail)?);
            let grouped = queries.attention_weights(&key, options.mask(mask.as_ref()));
            return group.merged(&grouped.map_err(fail)?);
        }
        let (query, key, _) = query.aligned(key, mask, Shape::SCALAR).map_err(fail)?;
        let scale = options.scale_of(&query);
        decompose::attention_weights::<Tracked<B>>(&query, &key, mask, scale, causal).map_err(fail)
    }

    /// Checks the operands, and broadcasts queries and keys to common leading axes, also with those of `others`.
    /// Returns both, and these axes.
    fn aligned(&self, key: &Self, mask: Option<&Self>, others: Shape) -> Result<(Self, Self, Shape)> {
        let (q, k) = (self.shape(), key.shape());
        let (&[.., rows, width], &[.., keys, key_width]) = (q.dims(), k.dims()) else {
            return Err(misfit());
        };
        if width != key_width {
            return Err(misfit());
        }
        if !self.dtype().is_float() || key.dtype() != self.dtype() {
            return Err(Error::dtype("queries, keys and values must have one float dtype"));
        }
        self.check_device(key)?;
        let batch = leading(&q)?.broadcast(&leading(&k)?)?.broadcast(&others)?;
        if let Some(mask) = mask {
            self.check_device(mask)?;
            if mask.dtype() != DType::Bool && mask.dtype() != self.dtype() {
                return Err(Error::dtype(format!(
                    "the mask is {}, neither bool nor {}",
                    mask.dtype(),
                    self.dtype()
                )));
            }
            let scores = matrices(&batch, rows, keys)?;
            if !mask.shape().broadcasts_to(&scores) {
                return Err(Error::shape(format!(
                    "the mask's shape {} does not broadcast to {scores}",
                    mask.shape()
                )));
            }
        }
        Ok((
            self.expand(matrices(&batch, rows, width)?)?,
            key.expand(matrices(&batch, keys, width)?)?,
            batch,
        ))
    }
}

/// Queries whose heads are a multiple of the keys' heads.
struct Group {
    key_heads: usize,
    /// Heads of queries for each head of keys.
    each: usize,
}

impl Group {
    fn find(query: Shape, key: Shape) -> Option<Self> {
        let (&[.., heads, _, _], &[.., key_heads, _, _]) = (query.dims(), key.dims()) else {
            return None;
        };
        // One head of keys broadcasts anyway.
        // `then_some` would divide by 0 heads.
        (key_heads > 1 && heads > key_heads && heads.is_multiple_of(key_heads)).then(|| Self {
            key_heads,
            each: heads / key_heads,
        })
    }

    /// `[…, H, S, D]` as `[…, K, H / K, S, D]`.
    fn queries<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut dims = x.dims();
        let axis = dims.len() - 3;
        dims[axis] = self.each;
        dims.insert(axis, self.key_heads);
        x.reshape(dims)
    }

    /// A single query of each head, `[…, H, 1, D]`, as `[…, K, H / K, D]`: it sees all keys, so that those of a group
    /// are rows of one product, which reads the keys once.
    fn rows<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut dims = x.dims();
        let axis = dims.len() - 3;
        dims[axis..=axis + 1].copy_from_slice(&[self.key_heads, self.each]);
        x.reshape(dims)
    }

    /// `[…, K, H / K, E]` as `[…, H, 1, E]`.
    fn single<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut dims = x.dims();
        let axis = dims.len() - 3;
        dims[axis..=axis + 1].copy_from_slice(&[self.key_heads * self.each, 1]);
        x.reshape(dims)
    }

    /// Reshapes a mask, for all heads or for each, so that it fits the grouped queries.
    fn mask<B: Backend>(&self, mask: &Tensor<B>) -> Result<Tensor<B>> {
        match mask.dims()[..] {
            [.., heads, _, _] if heads == self.key_heads * self.each => self.queries(mask),
            [.., _, _, _] => mask.unsqueeze(-3),
            _ => Ok(mask.clone()),
        }
    }

    /// Whether a mask fits a single query, for all heads or for each. Any other might fit its rows by chance.
    fn is_of_rows<B: Backend>(&self, mask: &Tensor<B>) -> bool {
        match *mask.shape().dims() {
            [] | [_] | [1, _] | [.., 1, 1, _] => true,
            [.., heads, 1, _] => heads == self.key_heads * self.each,
            _ => false,
        }
    }

    /// Reshapes a mask of a single query, for all heads or for each, so that it fits [`Group::rows`].
    fn row_mask<B: Backend>(&self, mask: &Tensor<B>) -> Result<Tensor<B>> {
        match mask.dims()[..] {
            [.., heads, _, _] if heads == self.key_heads * self.each => self.rows(mask),
            _ => Ok(mask.clone()),
        }
    }

    /// `[…, K, H / K, S, E]` as `[…, H, S, E]`.
    fn merged<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.flatten(-4, -3)
    }
}

fn misfit() -> Error {
    Error::shape("takes queries […, S, D], keys […, T, D] and values […, T, E] of one float dtype")
}

/// The number of keys.
fn keys(key: Shape) -> Result<usize> {
    match key.dims() {
        &[.., keys, _] => Ok(keys),
        _ => Err(misfit()),
    }
}

/// The shape of a stack of matrices.
fn matrices(batch: &Shape, rows: usize, columns: usize) -> Result<Shape> {
    let mut dims = SmallVec::<[usize; MAX_RANK]>::from_slice(batch);
    dims.extend([rows, columns]);
    Shape::new(&dims)
}

/// The axes before the last two.
fn leading(shape: &Shape) -> Result<Shape> {
    match shape.dims() {
        [leading @ .., _, _] => Shape::new(leading),
        _ => Err(misfit()),
    }
}
