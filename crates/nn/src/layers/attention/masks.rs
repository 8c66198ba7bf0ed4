//! Masks: which keys a query sees.

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Result, Tensor};

/// Masks as PyTorch's attention layers take them. Note that **true hides** a key in a bool mask, unlike in
/// [`Tensor::scaled_dot_product_attention`]. A float mask is added to the scores. By default everything is visible.
///
/// A query that sees no key gives 0 (PyTorch: NaN).
#[derive(Debug)]
#[non_exhaustive]
pub struct Masks<'a, B: Backend = AnyBackend> {
    /// `[S, T]`, or `[N · heads, S, T]`.
    pub attn_mask: Option<&'a Tensor<B>>,
    /// `[N, T]`, or `[T]` for a single sequence.
    pub key_padding_mask: Option<&'a Tensor<B>>,
    /// Whether each query sees only the keys up to its own position; the last query sees all keys.
    pub is_causal: bool,
}

impl<'a, B: Backend> Masks<'a, B> {
    /// Each query sees only the keys up to its own position.
    pub fn causal() -> Self {
        Self::default().with_causal(true)
    }

    /// Sets [`Masks::attn_mask`].
    #[must_use]
    pub fn with_attn_mask(mut self, mask: &'a Tensor<B>) -> Self {
        self.attn_mask = Some(mask);
        self
    }

    /// Sets [`Masks::key_padding_mask`].
    #[must_use]
    pub fn with_key_padding_mask(mut self, mask: &'a Tensor<B>) -> Self {
        self.key_padding_mask = Some(mask);
        self
    }

    /// Sets [`Masks::is_causal`].
    #[must_use]
    pub fn with_causal(mut self, is_causal: bool) -> Self {
        self.is_causal = is_causal;
        self
    }

    /// Both masks combined into one for [`Tensor::scaled_dot_product_attention`], for sizes `[N, heads, S, T]`.
    pub(crate) fn combined(&self, sizes: [usize; 4], dtype: DType) -> Result<Option<Tensor<B>>> {
        let attn = self.attn_mask.map(|mask| attn_mask(mask, sizes)).transpose()?;
        let padding = (self.key_padding_mask.map(|mask| key_padding_mask(mask, sizes))).transpose()?;
        let (attn, padding) = match (attn, padding) {
            (Some(attn), Some(padding)) => (attn, padding),
            (Some(mask), None) | (None, Some(mask)) => {
                let seen = if mask.dtype() == DType::Bool {
                    mask.logical_not()?
                } else {
                    mask.to_dtype(dtype)?
                };
                return Ok(Some(seen));
            }
            (None, None) => return Ok(None),
        };
        if attn.dtype() == DType::Bool && padding.dtype() == DType::Bool {
            return attn.logical_or(&padding)?.logical_not().map(Some);
        }
        added(&attn, dtype)?.add(&added(&padding, dtype)?).map(Some)
    }

    /// Combines the result of [`Masks::combined`] for `[…, S, T]` with `is_causal`, and extends it by added keys that
    /// all queries see. The sizes are S, T, and the number of keys with the added ones.
    pub(crate) fn with_added(
        &self,
        mask: Option<Tensor<B>>,
        device: &Device<B>,
        [s, t, all]: [usize; 3],
    ) -> Result<Option<Tensor<B>>> {
        let mut mask = mask;
        if self.is_causal {
            let seen = Tensor::full([s, t], true, (device, DType::Bool))?.tril(t as isize - s as isize)?;
            mask = Some(match mask {
                None => seen,
                Some(mask) if mask.dtype() == DType::Bool => mask.logical_and(&seen)?,
                Some(mask) => mask.masked_fill(&seen.logical_not()?, f64::NEG_INFINITY)?,
            });
        }
        let Some(mask) = mask else {
            return Ok(None);
        };
        let mut border = vec![(0, 0); mask.rank()];
        border[mask.rank() - 1] = (0, all - t);
        if mask.dtype() == DType::Bool {
            return mask.pad(&border, true).map(Some);
        }
        mask.pad(&border, 0.0).map(Some)
    }
}

impl<B: Backend> Default for Masks<'_, B> {
    fn default() -> Self {
        Self {
            attn_mask: None,
            key_padding_mask: None,
            is_causal: false,
        }
    }
}

impl<B: Backend> Clone for Masks<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Masks<'_, B> {}

fn attn_mask<B: Backend>(mask: &Tensor<B>, [n, heads, s, t]: [usize; 4]) -> Result<Tensor<B>> {
    let dims = mask.dims();
    if dims == [s, t] {
        Ok(mask.clone())
    } else if dims == [n * heads, s, t] {
        mask.reshape([n, heads, s, t])
    } else {
        Err(misfit(
            "attn_mask",
            mask,
            format!("[{s}, {t}] or [{}, {s}, {t}]", n * heads),
        ))
    }
}

fn key_padding_mask<B: Backend>(mask: &Tensor<B>, [n, _, _, t]: [usize; 4]) -> Result<Tensor<B>> {
    let dims = mask.dims();
    if dims == [n, t] || n == 1 && dims == [t] {
        mask.reshape([n, 1, 1, t])
    } else {
        Err(misfit("key_padding_mask", mask, format!("[{n}, {t}]")))
    }
}

fn misfit<B: Backend>(name: &str, mask: &Tensor<B>, wanted: String) -> Error {
    Error::shape(format!("{name} has shape {}, not {wanted}", mask.shape()))
}

/// Converts a mask to the values that are added to the scores.
fn added<B: Backend>(mask: &Tensor<B>, dtype: DType) -> Result<Tensor<B>> {
    if mask.dtype() == DType::Bool {
        let zeros = Tensor::full(mask.shape(), 0.0, (&mask.device(), dtype))?;
        zeros.masked_fill(mask, f64::NEG_INFINITY)
    } else {
        mask.to_dtype(dtype)
    }
}
