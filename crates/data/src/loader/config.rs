//! Options of a loader.

use std::sync::{Arc, Mutex};

use polygrad_core::{Backend, Error, Result, Rng};
use polygrad_tensor::Device;

use super::plan::{Batch, Batches, Example, Plan, Shard};
use super::{DataLoader, LoaderState};
use crate::collate::Collate;
use crate::dataset::Dataset;
use crate::stream::Stream;

/// Creates the batches of an epoch from a state on.
pub(super) type Source<T> = Arc<dyn Fn(&Plan, LoaderState) -> Result<Batches<T>> + Send + Sync>;

/// Computes the fingerprint of the examples.
pub(super) type Fingerprint = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// Shuffling supports at most this many examples.
const LONGEST: u64 = 1 << 32;

/// Options of a [`DataLoader`] for examples `T`.
///
/// ```
/// use polygrad_data::DataLoaderConfig;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// # let device = Device::<polygrad_cpu::Cpu>::default().into_any();
/// let numbers: Vec<f32> = (0..100).map(|i| i as f32).collect();
/// let loader = DataLoaderConfig::new(numbers)
///     .batch_size(32)
///     .shuffle(17)
///     .workers(2)
///     // The noise of an example depends on the seed, the epoch and the example, not on the number of workers.
///     .transform(|x, rng| Ok((x + 0.1 * rng.normal() as f32, x)))
///     .build(&device)?;
/// let sizes: Vec<usize> = loader.iter().map(|batch| Ok(batch?.0.dims()[0])).collect::<Result<_>>()?;
/// assert_eq!(sizes, [32, 32, 32, 4]);
/// # Ok(())
/// # }
/// ```
pub struct DataLoaderConfig<T> {
    source: Source<Vec<Example<T>>>,
    length: Option<usize>,
    fingerprint: Fingerprint,
    plan: Plan,
    seed: u64,
    workers: usize,
    prefetch: Option<usize>,
}

impl<T: Send + 'static> DataLoaderConfig<T> {
    /// Batches of one example each, in the dataset's order, made by the thread that asks for them.
    pub fn new(dataset: impl Dataset<Item = T> + 'static) -> Self {
        let dataset = Arc::new(dataset);
        let (length, known) = (dataset.len(), Arc::clone(&dataset));
        Self::with_source(
            Arc::new(move |plan, state| Ok(plan.of_dataset(&dataset, state))),
            Some(length),
            Arc::new(move || known.fingerprint()),
        )
    }

    /// As [`DataLoaderConfig::new`], for a stream.
    pub fn from_stream(stream: impl Stream<Item = T> + 'static) -> Self {
        let source = move |plan: &Plan, state| plan.of_stream(&stream, state);
        Self::with_source(Arc::new(source), None, Arc::new(|| None))
    }

    /// Batches that a stream yields, each with the number of examples that `examples` returns. Batch size, shuffling
    /// and dropping the last batch are up to the stream. They cannot be divided among processes.
    pub fn from_batches(
        stream: impl Stream<Item = T> + 'static,
        examples: impl Fn(&T) -> usize + Send + Sync + 'static,
    ) -> Self {
        let examples = Arc::new(examples);
        let source = move |plan: &Plan, state| plan.of_batches(&stream, state, &examples);
        Self::with_source(Arc::new(source), None, Arc::new(|| None))
    }

    fn with_source(source: Source<Vec<Example<T>>>, length: Option<usize>, fingerprint: Fingerprint) -> Self {
        Self {
            source,
            length,
            fingerprint,
            plan: Plan {
                batch_size: 1,
                drop_last: false,
                shuffle: None,
                shard: Shard::WHOLE,
            },
            seed: 0,
            workers: 0,
            prefetch: None,
        }
    }

    /// Examples in a batch, at least 1. Default: 1.
    #[must_use]
    pub fn batch_size(mut self, size: usize) -> Self {
        self.plan.batch_size = size;
        self
    }

    /// Shuffles anew in each epoch, by a seed: a dataset completely; a stream by drawing each example from a buffer of
    /// the next 1,024; see [`DataLoaderConfig::shuffle_buffer`]. Default: the given order.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.plan.shuffle.get_or_insert(1024);
        self.seed(seed)
    }

    /// Size of the shuffle buffer of a stream, in examples, at least 1. They are in memory. A dataset does not need it.
    #[must_use]
    pub fn shuffle_buffer(mut self, examples: usize) -> Self {
        self.plan.shuffle = Some(examples);
        self
    }

    /// The seed for transforms, without shuffling. Default: 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Drops the last batch of an epoch if it is smaller than the others. Default: it is kept.
    #[must_use]
    pub fn drop_last(mut self, drop: bool) -> Self {
        self.plan.drop_last = drop;
        self
    }

    /// Number of threads that make batches ahead of time. Default: 0, so the thread that asks for a batch makes it.
    #[must_use]
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// The most batches that are ready or being made, at least 1. Default: two for each worker.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = Some(batches);
        self
    }

    /// Selects the part of process `rank` out of `ranks`. In each step the processes together take `ranks` times the
    /// batch size in the common order, without losing or repeating an example; in the last step some may have one
    /// example less. The position counts all processes' examples, so that a different number of processes can continue.
    #[must_use]
    pub fn shard(mut self, rank: usize, ranks: usize) -> Self {
        self.plan.shard = Shard {
            rank,
            ranks,
            fills: false,
        };
        self
    }

    /// Applies a function to each example, in the threads that make batches. Randomness must come from the given
    /// generator, which depends only on the seed, the epoch and the example.
    #[must_use]
    pub fn transform<U: Send + 'static>(
        self,
        f: impl Fn(T, &mut Rng) -> Result<U> + Send + Sync + 'static,
    ) -> DataLoaderConfig<U> {
        let f = Arc::new(f);
        self.then(move |examples| {
            let transformed = examples.into_iter().map(|Example { value, mut rng }| {
                Ok(Example {
                    value: f(value, &mut rng)?,
                    rng,
                })
            });
            transformed.collect()
        })
    }

    /// The same options, with a function applied to the examples of each batch.
    fn then<U: Send + 'static>(
        self,
        f: impl Fn(Vec<Example<T>>) -> Result<Vec<Example<U>>> + Send + Sync + 'static,
    ) -> DataLoaderConfig<U> {
        DataLoaderConfig {
            source: then(self.source, f),
            length: self.length,
            fingerprint: self.fingerprint,
            plan: self.plan,
            seed: self.seed,
            workers: self.workers,
            prefetch: self.prefetch,
        }
    }

    /// A loader whose batches [`Collate`] makes on a device.
    ///
    /// # Errors
    /// As [`DataLoaderConfig::build_with`].
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<DataLoader<T::Batch>>
    where
        T: Collate<B>,
    {
        let device = device.clone();
        self.build_with(move |examples| T::collate(examples, &device))
    }

    /// A loader whose batches a function makes from one or more examples.
    ///
    /// # Errors
    /// A batch size of 0, more than 2³² examples, a rank that is not below the number of ranks, a prefetch of 0, an
    /// empty buffer.
    pub fn build_with<U: Send + 'static>(
        self,
        collate: impl Fn(Vec<T>) -> Result<U> + Send + Sync + 'static,
    ) -> Result<DataLoader<U>> {
        let fail = |text: String| Err(Error::invalid(text).with_op("DataLoader"));
        let Plan {
            batch_size,
            shuffle,
            shard: Shard { rank, ranks, .. },
            ..
        } = self.plan;
        if batch_size == 0 {
            return fail("batch_size = 0 makes no batches".to_owned());
        }
        if rank >= ranks || batch_size.checked_mul(ranks).is_none() {
            return fail(format!("rank {rank} of {ranks}: ranks are counted from 0"));
        }
        if let Some(length) = self.length.filter(|&length| length as u64 > LONGEST) {
            return fail(format!("{length} examples are more than 2³²"));
        }
        if shuffle == Some(0) || self.prefetch == Some(0) {
            return fail("shuffle_buffer and prefetch are at least 1".to_owned());
        }
        Ok(DataLoader {
            source: then(self.source, move |examples| {
                collate(examples.into_iter().map(|example| example.value).collect())
            }),
            plan: Mutex::new(self.plan),
            length: self.length,
            fingerprint: self.fingerprint,
            workers: self.workers,
            prefetch: self.prefetch.unwrap_or(2 * self.workers).max(1),
            state: Mutex::new(LoaderState {
                seed: self.seed,
                ..LoaderState::default()
            }),
        })
    }
}

fn then<T: Send + 'static, U: Send + 'static>(
    source: Source<T>,
    f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
) -> Source<U> {
    let f = Arc::new(f);
    Arc::new(move |plan, state| {
        let f = Arc::clone(&f);
        let batches = source(plan, state)?;
        Ok(Box::new(batches.map(move |batch| {
            let Batch { make, position } = batch?;
            let f = Arc::clone(&f);
            Ok(Batch {
                make: Box::new(move || f(make()?)),
                position,
            })
        })))
    })
}

impl<T> std::fmt::Debug for DataLoaderConfig<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataLoaderConfig")
            .field("plan", &self.plan)
            .field("length", &self.length)
            .field("seed", &self.seed)
            .field("workers", &self.workers)
            .field("prefetch", &self.prefetch)
            .finish()
    }
}
