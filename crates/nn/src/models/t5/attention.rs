//! The attention of T5, and its relative positions.

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Result, Tensor};

use super::T5Config;
use crate::layers::{Attend, merge_heads, split_heads};
use crate::{Dropout, Embedding, EmbeddingConfig, Init, KvCache, Linear, Module, Slot, watch};

/// The attention of T5.
#[derive(Debug, Module)]
pub struct Attention<B: Backend = AnyBackend> {
    /// `[…, d_model]` to the queries of all heads.
    pub q: Slot<Linear<B>, B>,
    /// The same for the keys.
    pub k: Slot<Linear<B>, B>,
    /// The same for the values.
    pub v: Slot<Linear<B>, B>,
    /// Projects the heads' output for the residual sum.
    pub o: Slot<Linear<B>, B>,
    /// The bias of each distance, stored in the first block and used by all blocks of a stack.
    pub relative_attention_bias: Option<Embedding<B>>,
    heads: usize,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
}

/// The tokens attended to.
pub(super) enum Source<'a, B: Backend> {
    /// The input itself.
    Input,
    /// The cached tokens and then the input; each token attends to itself and earlier ones.
    Past(&'a mut KvCache<B>),
    /// An encoded text, whose keys and values are cached.
    Text(&'a Tensor<B>, &'a mut KvCache<B>),
}

impl<B: Backend> Attention<B> {
    pub(super) fn new(config: &T5Config, with_bias: bool, device: &Device<B>) -> Result<Self> {
        let (width, inner) = (config.d_model, config.num_heads * config.d_kv);
        let std = |fan: f64| fan.sqrt().recip();
        let bias = EmbeddingConfig::new(config.relative_attention_num_buckets, config.num_heads).init(Init::Normal {
            mean: 0.0,
            std: config.initializer_factor * std(width as f64),
        });
        Ok(Self {
            q: config.linear([width, inner], std(width as f64 * config.d_kv as f64), device)?,
            k: config.linear([width, inner], std(width as f64), device)?,
            v: config.linear([width, inner], std(width as f64), device)?,
            o: config.linear([inner, width], std(inner as f64), device)?,
            relative_attention_bias: with_bias.then(|| bias.build(device)).transpose()?,
            heads: config.num_heads,
            dropout: Dropout::new(config.dropout_rate)?,
        })
    }

    /// Scores are not scaled; instead the weights of queries are initialised smaller.
    pub(super) fn forward(&self, x: &Tensor<B>, source: Source<'_, B>, mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let split = |linear: &Slot<Linear<B>, B>, x: &Tensor<B>| split_heads(&linear.forward(x)?, self.heads);
            let both = |x: &Tensor<B>| Ok::<_, polygrad_tensor::Error>((split(&self.k, x)?, split(&self.v, x)?));
            let q = split(&self.q, x)?;
            let causal = matches!(source, Source::Past(_));
            let (k, v) = match source {
                Source::Input => both(x)?,
                Source::Past(cache) => {
                    let (k, v) = both(x)?;
                    cache.append(&k, &v)?
                }
                Source::Text(text, cache) => match cache.get()? {
                    Some(both) => both,
                    None => {
                        let (k, v) = both(text)?;
                        cache.append(&k, &v)?
                    }
                },
            };
            let attend = Attend {
                options: polygrad_tensor::Attention::new().mask(mask).causal(causal).scale(1.0),
                dropout: self.dropout.rate(),
            };
            self.o.forward(&merge_heads(&attend.values(&q, &k, &v)?)?)
        })
    }
}

/// T5's buckets of distances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    count: usize,
    max_distance: usize,
    bidirectional: bool,
}

impl Buckets {
    pub(super) fn new(config: &T5Config, bidirectional: bool) -> Self {
        Self {
            count: config.relative_attention_num_buckets,
            max_distance: config.relative_attention_max_distance,
            bidirectional,
        }
    }

    /// The bias `[1, H, S, T]` added to the scores, for the last `queries` of `keys` positions.
    pub(super) fn bias<B: Backend>(&self, table: &Embedding<B>, queries: usize, keys: usize) -> Result<Tensor<B>> {
        let device = table.weight.device();
        let places = |from: usize, to: usize| Tensor::arange(from as i64, to as i64, 1, &device);
        let queries = places(keys.saturating_sub(queries), keys)?.unsqueeze(1)?;
        // All distances from `max_distance` on are in one bucket, so a short table covers all lengths.
        let far = self.max_distance as i64;
        let bound = |at: i64| Tensor::full((), at, (&device, DType::I64));
        let distances = places(0, keys)?.sub(&queries)?;
        let distances = distances.maximum(&bound(-far)?)?.minimum(&bound(far)?)?;
        let buckets: Vec<i64> = (-far..=far).map(|distance| self.of(distance)).collect();
        let buckets = Tensor::from_vec(buckets, [2 * self.max_distance + 1], &device)?;
        let shape = distances.shape();
        let buckets = buckets
            .index_select(0, &(distances + far)?.flatten(0, 1)?)?
            .reshape(shape)?;
        table.forward(&buckets)?.permute([2, 0, 1])?.unsqueeze(0)
    }

    /// The bucket of a distance, key minus query: half of the buckets are for small distances, the others in
    /// logarithmic steps. Source: section 2.1 of the T5 paper and its code. It is computed in f32 as there, since the
    /// limits of the steps depend on rounding.
    fn of(&self, distance: i64) -> i64 {
        let mut count = self.count as i64;
        let mut bucket = 0;
        let distance = if self.bidirectional {
            count /= 2;
            if distance > 0 {
                bucket = count;
            }
            distance.abs()
        } else {
            (-distance).max(0)
        };
        let exact = count / 2;
        if distance < exact {
            return bucket + distance;
        }
        let share = (distance as f32 / exact as f32).ln() / (self.max_distance as f64 / exact as f64).ln() as f32;
        bucket + (exact + (share * (count - exact) as f32) as i64).min(count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of `T5Attention._relative_position_bucket` of transformers 5.23.0 for each distance from 0 on: the
    /// distances at which the bucket changes, with the buckets.
    fn changes(bidirectional: bool, sign: i64) -> Vec<(i64, i64)> {
        let buckets = Buckets::new(&T5Config::default(), bidirectional);
        let mut out: Vec<(i64, i64)> = Vec::new();
        for distance in 0..1000 {
            let bucket = buckets.of(sign * distance);
            if out.last().is_none_or(|&(_, last)| last != bucket) {
                out.push((distance, bucket));
            }
        }
        out
    }

    #[test]
    fn distances_fall_into_the_buckets_of_the_original() {
        let near = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8)];
        let far = [(12, 9), (16, 10), (23, 11), (32, 12), (46, 13), (64, 14), (91, 15)];
        let before = [&near[..], &far[..]].concat();
        assert_eq!(changes(true, -1), before);
        let after: Vec<_> = before[1..]
            .iter()
            .map(|&(distance, bucket)| (distance, bucket + 16))
            .collect();
        assert_eq!(changes(true, 1), [&[(0, 0)][..], &after[..]].concat());

        let near = (0..=16).map(|i| (i, i));
        let far = [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113];
        let before: Vec<_> = near.chain(far.into_iter().zip(17..)).collect();
        assert_eq!(changes(false, -1), before);
        assert_eq!(changes(false, 1), [(0, 0)]);
    }
}
