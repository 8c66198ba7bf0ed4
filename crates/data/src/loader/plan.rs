//! Assignment of examples to batches.

use std::sync::Arc;

use polygrad_core::{Error, Result, Rng};

use super::LoaderState;
use crate::dataset::Dataset;
use crate::order::{rng_of_example, shuffled};
use crate::stream::Stream;

/// How examples are combined into batches.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) batch_size: usize,
    pub(super) drop_last: bool,
    /// Size of a stream's shuffle buffer; a dataset is shuffled completely. `None`: no shuffling.
    pub(super) shuffle: Option<usize>,
    pub(super) shard: Shard,
}

/// This process's part of each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// Whether a rank without a part of the last batch gets an example of another rank, so that all have the same
    /// number of batches.
    pub(super) fills: bool,
}

impl Shard {
    /// The whole of each batch.
    pub(super) const WHOLE: Self = Self {
        rank: 0,
        ranks: 1,
        fills: false,
    };

    /// This rank's part of a step with `count` examples. The parts of all ranks are disjoint and cover all examples,
    /// and their sizes differ by at most 1.
    pub(super) fn part(self, count: usize) -> std::ops::Range<usize> {
        let begin = |rank: usize| rank * (count / self.ranks) + rank.min(count % self.ranks);
        begin(self.rank)..begin(self.rank + 1)
    }

    /// As [`Shard::part`], with a borrowed example if the part is empty.
    fn filled(self, count: usize) -> std::ops::Range<usize> {
        match self.part(count) {
            part if part.is_empty() && self.fills && count > 0 => 0..1,
            part => part,
        }
    }
}

/// An example with its generator for random decisions.
pub(super) struct Example<T> {
    pub(super) value: T,
    pub(super) rng: Rng,
}

/// A batch to be made, and the loader's position once it has been taken.
pub(super) struct Batch<T> {
    pub(super) make: Box<dyn FnOnce() -> Result<T> + Send>,
    pub(super) position: u64,
}

/// The batches of an epoch to be made, in order. Taking one reads no example of a dataset, but those of a stream.
pub(super) type Batches<T> = Box<dyn Iterator<Item = Result<Batch<T>>> + Send>;

impl Plan {
    /// Number of examples of all ranks in one step.
    fn step(&self) -> usize {
        self.batch_size * self.shard.ranks
    }

    /// Number of batches in an epoch of `length` examples.
    pub(super) fn batches(&self, length: usize) -> usize {
        let (whole, rest) = (length / self.step(), length % self.step());
        whole + usize::from(!self.drop_last && !self.shard.filled(rest).is_empty())
    }

    /// The batches of a dataset from a state on.
    pub(super) fn of_dataset<D: Dataset + 'static>(
        &self,
        dataset: &Arc<D>,
        LoaderState { seed, epoch, position }: LoaderState,
    ) -> Batches<Vec<Example<D::Item>>> {
        let (plan, dataset) = (self.clone(), Arc::clone(dataset));
        let length = dataset.len();
        let order = plan.shuffle.map(|_| shuffled(seed, epoch, length));
        let mut begin = usize::try_from(position).unwrap_or(usize::MAX).min(length);
        Box::new(std::iter::from_fn(move || {
            let count = plan.step().min(length - begin);
            let part = plan.shard.filled(count);
            if part.is_empty() || plan.drop_last && count < plan.step() {
                return None;
            }
            let places = begin + part.start..begin + part.end;
            let indices: Vec<usize> = match &order {
                Some(order) => order[places].iter().map(|&index| index as usize).collect(),
                None => places.collect(),
            };
            begin += count;
            let dataset = Arc::clone(&dataset);
            let example = move |index| {
                Ok(Example {
                    value: dataset.example(index)?,
                    rng: rng_of_example(seed, epoch, index as u64),
                })
            };
            Some(Ok(Batch {
                make: Box::new(move || indices.into_iter().map(example).collect()),
                position: begin as u64,
            }))
        }))
    }

    /// The batches that a stream yields, from a state on; `examples` is their size.
    ///
    /// # Errors
    /// Those of the stream; more than one rank.
    pub(super) fn of_batches<S: Stream + ?Sized>(
        &self,
        stream: &S,
        LoaderState { seed, epoch, position }: LoaderState,
        examples: &Arc<impl Fn(&S::Item) -> usize + Send + Sync + 'static>,
    ) -> Result<Batches<Vec<Example<S::Item>>>> {
        if self.shard.ranks > 1 {
            return Err(
                Error::unsupported("batches that a stream gives cannot be divided among processes")
                    .with_op("DataLoader")
                    .with_hint("give a stream of examples, from which the loader makes batches"),
            );
        }
        let (mut batches, examples) = (stream.examples(epoch)?, Arc::clone(examples));
        let mut begin = 0;
        while begin < position {
            match batches.next().transpose()? {
                Some(batch) => begin += examples(&batch) as u64,
                None => break,
            }
        }
        Ok(Box::new(batches.map(move |batch| {
            let value = batch?;
            let rng = rng_of_example(seed, epoch, begin);
            begin += examples(&value) as u64;
            Ok(Batch {
                make: Box::new(move || Ok(vec![Example { value, rng }])),
                position: begin,
            })
        })))
    }

    /// The batches of a stream's examples, from a state on.
    ///
    /// # Errors
    /// Those of the stream.
    pub(super) fn of_stream<S: Stream + ?Sized>(
        &self,
        stream: &S,
        LoaderState { seed, epoch, position }: LoaderState,
    ) -> Result<Batches<Vec<Example<S::Item>>>> {
        let plan = self.clone();
        let mut examples = stream.examples(epoch)?;
        if let Some(buffer) = plan.shuffle {
            examples = Box::new(mixed(
                examples,
                buffer,
                rng_of_example(seed, epoch, u64::from(u32::MAX)),
            ));
        }
        // One that reads from its start again must not fail where the first reading did not.
        let mut begin = 0;
        while begin < position {
            match examples.nth((position - begin).min(1 << 20) as usize - 1) {
                None => break,
                Some(Err(error)) => return Err(error),
                Some(Ok(_)) => begin += (position - begin).min(1 << 20),
            }
        }
        let mut ended = false;
        Ok(Box::new(std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let mut step = Vec::with_capacity(plan.step().min(1 << 16));
            while step.len() < plan.step() {
                match examples.next() {
                    Some(Ok(value)) => {
                        let rng = rng_of_example(seed, epoch, begin + step.len() as u64);
                        step.push(Example { value, rng });
                    }
                    Some(Err(error)) => {
                        ended = true;
                        return Some(Err(error));
                    }
                    None => {
                        ended = true;
                        break;
                    }
                }
            }
            let (count, part) = (step.len(), plan.shard.filled(step.len()));
            if part.is_empty() || plan.drop_last && count < plan.step() {
                return None;
            }
            begin += count as u64;
            step.truncate(part.end);
            let own = step.split_off(part.start);
            Some(Ok(Batch {
                make: Box::new(move || Ok(own)),
                position: begin,
            }))
        })))
    }
}

/// The examples in random order: each is drawn from a buffer of `size`.
fn mixed<T: Send>(
    mut examples: Box<dyn Iterator<Item = Result<T>> + Send>,
    size: usize,
    mut rng: Rng,
) -> impl Iterator<Item = Result<T>> + Send {
    let mut waiting = Vec::new();
    std::iter::from_fn(move || {
        while waiting.len() < size {
            match examples.next() {
                Some(Ok(example)) => waiting.push(example),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        (!waiting.is_empty()).then(|| Ok(waiting.swap_remove(rng.below(waiting.len()))))
    })
}
