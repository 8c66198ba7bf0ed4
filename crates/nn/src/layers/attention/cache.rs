//! Keys and values that are computed once.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

/// The keys and values of the tokens that one attention layer has seen, so that each further token costs its own work alone:
/// `[N, heads, T, D]`. Empty at first.
///
/// A model holds one for each layer. Cloning is cheap and keeps what was seen so far. Where a forward pass fails, the cache is as it was.
/// Gradients flow through it like through any other tensor; generate within
/// [`no_grad`](polygrad_tensor::no_grad).
#[derive(Debug)]
pub struct KvCache<B: Backend = AnyBackend> {
    seen: Option<(Tensor<B>, Tensor<B>)>,
}

impl<B: Backend> KvCache<B> {
    /// An empty one.
    pub const fn new() -> Self {
        Self { seen: None }
    }

    /// How many tokens it holds.
    pub fn len(&self) -> usize {
        self.seen.as_ref().map_or(0, |(key, _)| key.shape()[2])
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys and values `[N, heads, T, D]` of all tokens so far; `None` at first.
    pub fn get(&self) -> Option<(&Tensor<B>, &Tensor<B>)> {
        self.seen.as_ref().map(|(key, value)| (key, value))
    }

    /// Appends keys and values `[N, heads, S, D]` of further tokens, and gives those of all.
    ///
    /// # Errors
    /// When they are not of rank 4, or differ from what is there in anything but their number of tokens.
    pub fn append(&mut self, key: &Tensor<B>, value: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        for x in [key, value] {
            if x.rank() != 4 {
                return Err(Error::shape("a cache takes keys and values [N, heads, S, D]")
                    .with_op("kv_cache")
                    .with_operands([(x.shape(), x.dtype())]));
            }
        }
        let all = match &self.seen {
            None => (key.clone(), value.clone()),
            Some((keys, values)) => {
                let misfit = |e: Error| e.with_op("kv_cache").with_hint("start a new cache for another batch");
                (
                    Tensor::cat(&[keys, key], 2).map_err(misfit)?,
                    Tensor::cat(&[values, value], 2).map_err(misfit)?,
                )
            }
        };
        self.seen = Some(all.clone());
        Ok(all)
    }

    /// Forgets all but the first `len` tokens; does nothing where there are not more.
    ///
    /// # Errors
    /// When the device fails.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        self.change(|x| x.narrow(2, 0, len.min(x.shape()[2])))
    }

    /// Takes the sequences of these indices (i64) in place of those that are there, as beam search needs it.
    ///
    /// # Errors
    /// When an index is out of range.
    pub fn select(&mut self, sequences: &Tensor<B>) -> Result<()> {
        self.change(|x| x.index_select(0, sequences))
    }

    fn change(&mut self, f: impl Fn(&Tensor<B>) -> Result<Tensor<B>>) -> Result<()> {
        if let Some((key, value)) = &self.seen {
            self.seen = Some((f(key)?, f(value)?));
        }
        Ok(())
    }
}

/// Runs a part of a forward pass that adds to a cache; if it fails the cache is as it was.
pub(crate) fn all_or_nothing<C: Clone, T>(cache: &mut C, f: impl FnOnce(&mut C) -> Result<T>) -> Result<T> {
    let before = cache.clone();
    let outcome = f(cache);
    if outcome.is_err() {
        *cache = before;
    }
    outcome
}

impl<B: Backend> Clone for KvCache<B> {
    fn clone(&self) -> Self {
        Self {
            seen: self.seen.clone(),
        }
    }
}

impl<B: Backend> Default for KvCache<B> {
    fn default() -> Self {
        Self::new()
    }
}
