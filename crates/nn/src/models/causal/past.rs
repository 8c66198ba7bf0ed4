//! The earlier tokens that a layer attends to.

use polygrad_tensor::{Backend, Result, Tensor};

use crate::KvCache;

/// Keys and values of earlier tokens in one layer.
pub(in crate::models) enum Past<'a, B: Backend> {
    /// Nothing is cached.
    Nothing,
    /// Of all sequences `[N, S]`, in one cache.
    Batch(&'a mut KvCache<B>),
    /// Of sequences whose tokens are concatenated in one row `[1, T]`: each sequence's number of tokens and its cache.
    Each(Vec<(usize, &'a mut KvCache<B>)>),
}

impl<B: Backend> Past<'_, B> {
    /// The result of `attend` for queries, keys and values `[N, heads, S, D]` together with the cached ones.
    pub(in crate::models) fn attend(
        self,
        [q, k, v]: [&Tensor<B>; 3],
        attend: impl Fn(&Tensor<B>, &Tensor<B>, &Tensor<B>) -> Result<Tensor<B>>,
    ) -> Result<Tensor<B>> {
        match self {
            Self::Nothing => attend(q, k, v),
            Self::Batch(cache) => {
                let (k, v) = cache.append(k, v)?;
                attend(q, &k, &v)
            }
            Self::Each(caches) => {
                let (mut parts, mut start) = (Vec::with_capacity(caches.len()), 0);
                for (len, cache) in caches {
                    let own = |x: &Tensor<B>| x.narrow(2, start, len);
                    let (k, v) = cache.append(&own(k)?, &own(v)?)?;
                    parts.push(attend(&own(q)?, &k, &v)?);
                    start += len;
                }
                Tensor::cat(&parts.iter().collect::<Vec<_>>(), 2)
            }
        }
    }
}
