//! The cache of the tokens that a model has seen.

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Result, Tensor};

use super::{Past, fits, sized};
use crate::KvCache;
use crate::layers::{Caches, all_or_nothing};

/// The tokens of a batch that a [`CausalLm`](super::CausalLm) has seen: the keys and values of each layer.
#[derive(Debug)]
pub struct CausalLmCache<B: Backend = AnyBackend> {
    layers: Vec<KvCache<B>>,
    /// `[N, 1]`, i64: number of padding tokens at the start of each sequence.
    padding: Option<Tensor<B>>,
}

/// The positions of further tokens, and the tokens that they see.
pub(in crate::models) struct Places<B: Backend> {
    /// The positions `[S]`, or `[N, S]`, i64.
    pub(in crate::models) positions: Tensor<B>,
    /// Which tokens are visible: `[N, 1, 1, T]`, or `[N, 1, S, T]` if it differs by query; `None` if all are.
    pub(in crate::models) mask: Option<Tensor<B>>,
}

impl<B: Backend> CausalLmCache<B> {
    /// An empty cache for `layers` layers.
    pub fn new(layers: usize) -> Self {
        Self {
            layers: (0..layers).map(|_| KvCache::new()).collect(),
            padding: None,
        }
    }

    /// For sequences of different lengths: how many of the first tokens of each are padding. No token sees the padding,
    /// and positions count from its end, so that each sequence is treated as if it were alone.
    ///
    /// # Errors
    /// When the device fails.
    pub fn with_left_padding(mut self, padding: &[usize], device: &Device<B>) -> Result<Self> {
        let counts: Vec<i64> = padding.iter().map(|&count| count as i64).collect();
        self.padding = match padding.iter().any(|&count| count > 0) {
            true => Some(Tensor::from_vec(counts, [padding.len(), 1], device)?),
            false => None,
        };
        Ok(self)
    }

    /// Number of tokens of each sequence in the cache, including padding.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, KvCache::len)
    }

    /// Whether the cache holds no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the keys and values of all layers: see [`KvCache::num_bytes`].
    pub fn num_bytes(&self) -> usize {
        self.layers.iter().map(KvCache::num_bytes).sum()
    }

    /// Reserves room for `len` tokens: see [`KvCache::reserve`].
    pub fn reserve(&mut self, len: usize) {
        self.layers.iter_mut().for_each(|layer| layer.reserve(len));
    }

    /// The cache of each layer, for direct use of [`KvCache`]'s methods.
    pub fn layers(&mut self) -> &mut [KvCache<B>] {
        &mut self.layers
    }

    /// Runs a forward pass over tokens `[N, S]` that appends to each layer; if it fails, the cache is as it was before.
    pub(in crate::models) fn extend<T>(
        &mut self,
        model: &'static str,
        layers: usize,
        (n, length): (usize, usize),
        device: &Device<B>,
        forward: impl FnOnce(&mut [KvCache<B>], Places<B>) -> Result<T>,
    ) -> Result<T> {
        self.check(model, layers)?;
        let start = self.len();
        let places = Places::new(model, (n, start, length), self.padding.as_ref(), device)?;
        all_or_nothing(self.layers.as_mut_slice(), |layers| forward(layers, places))
    }

    fn check(&self, model: &'static str, layers: usize) -> Result<()> {
        if self.layers.len() == layers {
            return Ok(());
        }
        let text = format!("a cache of {} layers for a model of {layers}", self.layers.len());
        Err(Error::invalid(text).with_op(model).with_hint("make it with new_cache"))
    }
}

impl<B: Backend> Caches<B> for CausalLmCache<B> {
    fn each(&mut self, f: &mut dyn FnMut(&mut KvCache<B>)) {
        self.layers.as_mut_slice().each(f);
    }
}

/// Further tokens of several sequences.
pub(in crate::models) struct Ragged<'a, B: Backend> {
    /// The tokens of all sequences concatenated, `[1, T]`, i64.
    pub(in crate::models) ids: &'a Tensor<B>,
    /// Number of tokens of each sequence.
    pub(in crate::models) lengths: &'a [usize],
}

impl<B: Backend> Ragged<'_, B> {
    /// Runs a forward pass that appends to each sequence's cache, and returns the vectors `[1, N, width]` of the last
    /// tokens. If it fails, the caches are as they were before.
    pub(in crate::models) fn extend(
        &self,
        model: &'static str,
        (layers, positions): (usize, usize),
        caches: &mut [&mut CausalLmCache<B>],
        forward: impl FnOnce(Vec<Past<'_, B>>, Places<B>) -> Result<Tensor<B>>,
    ) -> Result<Tensor<B>> {
        let (rows, total) = sized(model, self.ids, 0, usize::MAX)?;
        let sum: usize = self.lengths.iter().sum();
        if rows != 1 || total != sum || self.lengths.len() != caches.len() || self.lengths.contains(&0) {
            let text = format!(
                "ids {} and {} caches for sequences of {:?} tokens",
                self.ids.shape(),
                caches.len(),
                self.lengths
            );
            let hint = "give ids [1, T], where T is the sum of the lengths, each of which is at least 1";
            return Err(Error::shape(text).with_op(model).with_hint(hint));
        }
        let (mut places, mut last) = (Vec::with_capacity(total), Vec::with_capacity(caches.len()));
        for (cache, &length) in caches.iter().zip(self.lengths) {
            cache.check(model, layers)?;
            if cache.padding.is_some() {
                return Err(
                    Error::invalid("a cache with padding, which is for sequences of equal lengths")
                        .with_op(model)
                        .with_hint("start a cache without it for each sequence"),
                );
            }
            let (start, end) = (cache.len(), cache.len().saturating_add(length));
            fits(model, end, positions)?;
            places.extend(start as i64..end as i64);
            last.push(places.len() as i64 - 1);
        }
        let device = self.ids.device();
        let places = Places {
            positions: Tensor::from_vec(places, [total], &device)?,
            mask: None,
        };
        let last = Tensor::from_vec(last, [caches.len()], &device)?;
        all_or_nothing(caches, |caches| {
            let mut rows: Vec<_> = caches.iter_mut().map(|cache| cache.layers.iter_mut()).collect();
            let layer = |_| {
                let own = rows.iter_mut().zip(self.lengths);
                Past::Each(own.filter_map(|(row, &len)| Some((len, row.next()?))).collect())
            };
            let pasts = (0..layers).map(layer).collect();
            forward(pasts, places)?.index_select(1, &last)
        })
    }
}

impl<B: Backend> Places<B> {
    /// Places of `ids [N, S]` without earlier tokens. If rows contain several sequences, `starts [N, S]` has, for each
    /// token, the place where its sequence begins.
    pub(in crate::models) fn first(
        model: &'static str,
        ids: &Tensor<B>,
        starts: Option<&Tensor<B>>,
        positions: usize,
    ) -> Result<Self> {
        let (n, length) = sized(model, ids, 0, positions)?;
        let mut places = Self::new(model, (n, 0, length), None, &ids.device())?;
        let Some(starts) = starts else { return Ok(places) };
        if starts.shape() != ids.shape() || starts.dtype() != DType::I64 {
            return Err(Error::shape("each token has a start")
                .with_op(model)
                .with_operands([(ids.shape(), ids.dtype()), (starts.shape(), starts.dtype())])
                .with_hint("give starts [N, S] (i64), as ids are"));
        }
        places.positions = places.positions.sub(starts)?;
        places.mask = Some(starts.unsqueeze(2)?.eq(&starts.unsqueeze(1)?)?.unsqueeze(1)?);
        Ok(places)
    }

    /// Places of `length` tokens of `n` sequences, after `start` earlier tokens.
    pub(in crate::models) fn new(
        model: &'static str,
        (n, start, length): (usize, usize, usize),
        padding: Option<&Tensor<B>>,
        device: &Device<B>,
    ) -> Result<Self> {
        let end = start.saturating_add(length);
        let positions = Tensor::arange(start as i64, end as i64, 1, device)?;
        let Some(padding) = padding else {
            return Ok(Self { positions, mask: None });
        };
        let rows = padding.shape()[0];
        if rows != n {
            return Err(
                Error::shape(format!("{n} sequences, but the cache has the padding of {rows}"))
                    .with_op(model)
                    .with_hint("start a new cache for another batch"),
            );
        }
        let counted = Tensor::arange(0, end as i64, 1, device)?.ge(padding)?;
        Ok(Self {
            positions: positions.sub(padding)?.clamp(Some(0), None)?,
            mask: Some(counted.reshape([rows, 1, 1, end])?),
        })
    }
}
