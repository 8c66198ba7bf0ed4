//! The cache of keys and values.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor, is_grad_enabled};

/// The keys and values of the tokens that one attention layer has seen, `[N, heads, T, D]`, so that each further token
/// costs only its own work. Empty at first.
///
/// A model holds one for each layer. Cloning is cheap and keeps the tokens seen so far. If a forward pass fails, the
/// cache is as it was. Gradients flow through it like through any other tensor; generate within
/// [`no_grad`](polygrad_tensor::no_grad). Each further token copies the whole cache unless room was reserved for it:
/// see [`KvCache::reserve`].
#[derive(Debug)]
pub struct KvCache<B: Backend = AnyBackend> {
    /// Memory, of which the first `len` places along axis 2 are used.
    places: Option<(Tensor<B>, Tensor<B>)>,
    len: usize,
    room: usize,
}

impl<B: Backend> KvCache<B> {
    /// An empty cache.
    pub const fn new() -> Self {
        Self {
            places: None,
            len: 0,
            room: 0,
        }
    }

    /// Number of tokens in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the cache holds no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves room for `len` tokens at the next append, so that later tokens are written into it, in place if the
    /// backend can. This works within [`no_grad`](polygrad_tensor::no_grad) or for weights that need no gradient, and
    /// does nothing otherwise.
    pub fn reserve(&mut self, len: usize) {
        self.room = len;
    }

    /// Bytes of memory it holds, including reserved places that are still free.
    pub fn num_bytes(&self) -> usize {
        let of = |x: &Tensor<B>| x.numel() * x.dtype().size();
        self.places.as_ref().map_or(0, |(keys, values)| of(keys) + of(values))
    }

    /// Keys and values `[N, heads, T, D]` of all tokens so far; `None` at first.
    ///
    /// # Errors
    /// When the device fails.
    pub fn get(&self) -> Result<Option<(Tensor<B>, Tensor<B>)>> {
        let taken = |x: &Tensor<B>| match self.len {
            len if len == x.shape()[2] => Ok(x.clone()),
            len => x.narrow(2, 0, len),
        };
        match &self.places {
            Some((keys, values)) if self.len > 0 => Ok(Some((taken(keys)?, taken(values)?))),
            _ => Ok(None),
        }
    }

    /// Appends keys and values `[N, heads, S, D]` of further tokens, and returns those of all tokens.
    ///
    /// # Errors
    /// When they are not of rank 4, or differ from the cached ones in anything except the number of tokens.
    pub fn append(&mut self, key: &Tensor<B>, value: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        for x in [key, value] {
            if x.rank() != 4 {
                return Err(Error::shape("a cache takes keys and values [N, heads, S, D]")
                    .with_op("kv_cache")
                    .with_operands([(x.shape(), x.dtype())]));
            }
        }
        let old = self.places.as_ref().filter(|_| self.len > 0);
        let (old_keys, old_values) = (old.map(|(keys, _)| keys), old.map(|(_, values)| values));
        let count = key.shape()[2];
        check(key, old_keys, count)?;
        check(value, old_values, count)?;
        let end = self.len + count;
        let tracked = |x: &Tensor<B>| x.is_tracked();
        let flows = [Some(key), Some(value), old_keys, old_values]
            .into_iter()
            .flatten()
            .any(tracked);
        if flows && is_grad_enabled() || end > self.room {
            let all = match self.get()? {
                Some((keys, values)) => (Tensor::cat(&[&keys, key], 2)?, Tensor::cat(&[&values, value], 2)?),
                None => (key.clone(), value.clone()),
            };
            (self.places, self.len) = (Some(all.clone()), end);
            return Ok(all);
        }
        let holds = |places: &Tensor<B>, new: &Tensor<B>| {
            places.shape()[2] >= end && !tracked(places) && places.dtype().promote(new.dtype()) == places.dtype()
        };
        let there = |(keys, values): &(Tensor<B>, Tensor<B>)| self.len > 0 && holds(keys, key) && holds(values, value);
        if !self.places.as_ref().is_some_and(there) {
            let (keys, values) = self.get()?.unzip();
            let room = (self.roomy(key, keys.as_ref())?, self.roomy(value, values.as_ref())?);
            self.places = Some(room);
        }
        let Some((keys, values)) = &mut self.places else {
            return Err(Error::invalid("the cache has lost its memory").with_op("kv_cache"));
        };
        write(keys, key, self.len)?;
        write(values, value, self.len)?;
        self.len = end;
        Ok((keys.narrow(2, 0, end)?, values.narrow(2, 0, end)?))
    }

    /// Memory for `room` tokens, with the cached ones copied to its start.
    fn roomy(&self, like: &Tensor<B>, seen: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        let shape = like.shape();
        // The dtype that joining them would give.
        let dtype = seen.map_or(like.dtype(), |seen| seen.dtype().promote(like.dtype()));
        let mut places = Tensor::zeros([shape[0], shape[1], self.room, shape[3]], (&like.device(), dtype))?;
        if let Some(seen) = seen {
            write(&mut places, seen, 0)?;
        }
        Ok(places)
    }

    /// Forgets all tokens except the first `len`; does nothing if there are no more than that.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if self.len == 0 {
            self.places = None;
        }
    }

    /// Replaces the batch by the sequences with these indices (i64), as beam search needs it.
    ///
    /// # Errors
    /// When an index is out of range.
    pub fn select(&mut self, sequences: &Tensor<B>) -> Result<()> {
        if let Some((keys, values)) = self.get()? {
            self.places = Some((keys.index_select(0, sequences)?, values.index_select(0, sequences)?));
        }
        Ok(())
    }
}

/// Fails unless the new keys or values differ from the cached ones only in the number of tokens, which must be `count`.
fn check<B: Backend>(new: &Tensor<B>, old: Option<&Tensor<B>>, count: usize) -> Result<()> {
    // Dtypes may differ: autocast may have begun or ended meanwhile.
    let same = |old: &Tensor<B>| [0, 1, 3].iter().all(|&axis| old.shape()[axis] == new.shape()[axis]);
    if new.shape()[2] == count && old.is_none_or(same) {
        return Ok(());
    }
    let operands = [old, Some(new)].into_iter().flatten();
    Err(
        Error::shape("keys and values differ from those that are there, or from each other, in more than their number")
            .with_op("kv_cache")
            .with_operands(operands.map(|x| (x.shape(), x.dtype())))
            .with_hint("start a new cache for another batch"),
    )
}

fn write<B: Backend>(places: &mut Tensor<B>, tokens: &Tensor<B>, start: usize) -> Result<()> {
    let tokens = tokens.detach().to_dtype(places.dtype())?;
    places.set_i((.., .., start..start + tokens.shape()[2]), tokens)
}

/// The caches that one forward pass adds to.
pub(crate) trait Caches<B: Backend> {
    /// Calls `f` with each cache, always in the same order.
    fn each(&mut self, f: &mut dyn FnMut(&mut KvCache<B>));
}

impl<B: Backend> Caches<B> for KvCache<B> {
    fn each(&mut self, f: &mut dyn FnMut(&mut KvCache<B>)) {
        f(self);
    }
}

impl<B: Backend, C: Caches<B>> Caches<B> for &mut C {
    fn each(&mut self, f: &mut dyn FnMut(&mut KvCache<B>)) {
        (**self).each(f);
    }
}

impl<B: Backend, C: Caches<B>> Caches<B> for [C] {
    fn each(&mut self, f: &mut dyn FnMut(&mut KvCache<B>)) {
        self.iter_mut().for_each(|caches| caches.each(f));
    }
}

impl<B: Backend, C: Caches<B>, const N: usize> Caches<B> for [C; N] {
    fn each(&mut self, f: &mut dyn FnMut(&mut KvCache<B>)) {
        self.as_mut_slice().each(f);
    }
}

/// Runs a part of a forward pass that appends to caches; if it fails, the caches are as they were before.
pub(crate) fn all_or_nothing<B: Backend, C: Caches<B> + ?Sized, T>(
    caches: &mut C,
    f: impl FnOnce(&mut C) -> Result<T>,
) -> Result<T> {
    // Not clones of the caches, which would share their memory and prevent writing to it in place.
    let mut lens = Vec::new();
    caches.each(&mut |cache| lens.push(cache.len()));
    let outcome = f(caches);
    if outcome.is_err() {
        let mut lens = lens.into_iter();
        caches.each(&mut |cache| cache.truncate(lens.next().unwrap_or(0)));
    }
    outcome
}

impl<B: Backend> Clone for KvCache<B> {
    fn clone(&self) -> Self {
        Self {
            places: self.places.clone(),
            ..*self
        }
    }
}

impl<B: Backend> Default for KvCache<B> {
    fn default() -> Self {
        Self::new()
    }
}
