//! Loaders give the same batches regardless of their threads, and continue from their position.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polygrad_core::{Error, Result};
use polygrad_data::{DataLoader, DataLoaderConfig, Dataset, LoaderState, Rng, Stream};

const COUNT: usize = 53;

fn numbers() -> Vec<usize> {
    (0..COUNT).collect()
}

/// Numbers one after another, without a known count.
struct Counting(usize);

impl Stream for Counting {
    type Item = usize;

    fn examples(&self, epoch: u64) -> Result<Box<dyn Iterator<Item = Result<usize>> + Send>> {
        let first = 1000 * epoch as usize;
        Ok(Box::new((first..first + self.0).map(Ok)))
    }
}

/// An example with its random number.
type Batch = Vec<(usize, u64)>;

fn noisy(example: usize, rng: &mut Rng) -> Result<(usize, u64)> {
    // They finish in a different order than they began.
    std::thread::sleep(std::time::Duration::from_micros(rng.next_u64() % 200));
    Ok((example, rng.next_u64()))
}

fn built(config: DataLoaderConfig<usize>) -> DataLoader<Batch> {
    config.transform(noisy).build_with(Ok).unwrap()
}

fn map(workers: usize) -> DataLoader<Batch> {
    built(
        DataLoaderConfig::new(numbers())
            .batch_size(8)
            .shuffle(3)
            .workers(workers),
    )
}

fn stream(workers: usize) -> DataLoader<Batch> {
    let config = DataLoaderConfig::from_stream(Counting(COUNT));
    built(config.batch_size(8).shuffle(3).shuffle_buffer(20).workers(workers))
}

fn epoch(loader: &DataLoader<Batch>) -> Vec<Batch> {
    loader.iter().collect::<Result<_>>().unwrap()
}

fn sorted(batches: &[Batch]) -> Vec<usize> {
    let mut all: Vec<usize> = batches.iter().flatten().map(|(example, _)| *example).collect();
    all.sort_unstable();
    all
}

#[test]
fn any_number_of_workers_gives_the_same_batches() {
    for make in [map, stream] {
        let alone = make(0);
        let (first, second) = (epoch(&alone), epoch(&alone));
        assert_ne!(first, second);
        assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8, 8, 8, 8, 5]);
        assert_eq!(sorted(&first), numbers());
        for workers in [1, 2, 4] {
            let together = make(workers);
            assert_eq!(epoch(&together), first, "{workers} workers");
            assert_eq!(epoch(&together), second, "{workers} workers");
        }
    }
    assert_eq!(map(0).batches(), Some(7));
    assert_eq!(stream(0).batches(), None);
}

#[test]
fn a_loader_goes_on_where_another_one_stood() {
    for make in [map, stream] {
        let whole = [0; 2].map(|_| ()).map({
            let loader = make(0);
            move |()| epoch(&loader)
        });
        for taken in 0..14 {
            for workers in [0, 2] {
                let stopped = make(workers);
                let mut batches = Vec::new();
                while batches.len() < taken {
                    // Dropped while batches are being made.
                    batches.extend(stopped.iter().take(taken - batches.len()).map(Result::unwrap));
                }
                let state = serde_json::to_string(&stopped.state()).unwrap();
                let other = make(2 - workers);
                other.set_state(serde_json::from_str(&state).unwrap());
                while other.state().epoch < 2 {
                    batches.extend(epoch(&other));
                }
                assert_eq!(batches, whole.concat(), "after {taken} batches");
            }
        }
    }
}

#[test]
fn ranks_share_the_examples() {
    let of = |rank, ranks, batch_size, from: fn(DataLoaderConfig<usize>) -> DataLoaderConfig<usize>| {
        let loader = DataLoaderConfig::new(numbers()).batch_size(batch_size).shuffle(1);
        built(from(loader.shard(rank, ranks)))
    };
    for ranks in 1..5 {
        let shared: Vec<Vec<Batch>> = (0..ranks).map(|rank| epoch(&of(rank, ranks, 4, |c| c))).collect();
        assert_eq!(sorted(&shared.concat()), numbers(), "{ranks} ranks");
        // Together the ranks take in each step what one process with the joined batch size takes.
        let one = epoch(&of(0, 1, 4 * ranks, |c| c));
        for (step, joined) in one.iter().enumerate() {
            let parts: Batch = shared
                .iter()
                .flat_map(|rank| rank.get(step).cloned().unwrap_or_default())
                .collect();
            assert_eq!(&parts, joined, "step {step} of {ranks} ranks");
        }
        let streams = (0..ranks).map(|rank| {
            let config = DataLoaderConfig::from_stream(Counting(COUNT)).batch_size(4);
            epoch(&built(config.shard(rank, ranks)))
        });
        assert_eq!(sorted(&streams.collect::<Vec<_>>().concat()), numbers());
        let dropped: Vec<usize> = (0..ranks)
            .map(|rank| epoch(&of(rank, ranks, 4, |c| c.drop_last(true))).len())
            .collect();
        assert_eq!(dropped, vec![COUNT / (4 * ranks); ranks]);
        assert_eq!(of(ranks - 1, ranks, 4, |c| c).batches(), Some(shared[ranks - 1].len()));
    }
    // Two ranks stop, and a single process continues.
    let stopped = [0, 1].map(|rank| of(rank, 2, 4, |c| c));
    let before: Vec<Batch> = stopped
        .iter()
        .flat_map(|loader| loader.iter().take(3).map(Result::unwrap))
        .collect();
    assert_eq!(stopped[0].state(), stopped[1].state());
    let one = of(0, 1, 4, |c| c);
    one.set_state(stopped[0].state());
    assert_eq!(sorted(&[before, epoch(&one)].concat()), numbers());
}

#[test]
fn only_so_many_batches_are_made_ahead() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let loader = DataLoaderConfig::new(numbers())
        .workers(2)
        .prefetch(3)
        .transform(move |example, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(example)
        })
        .build_with(Ok)
        .unwrap();
    let mut batches = loader.iter();
    batches.next().unwrap().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    drop(batches);
    let made = made.load(Ordering::SeqCst);
    assert!((1..=4).contains(&made), "{made}");
    assert_eq!(
        loader.state(),
        LoaderState {
            seed: 0,
            epoch: 0,
            position: 1
        }
    );
}

struct Broken;

impl Dataset for Broken {
    type Item = usize;

    fn len(&self) -> usize {
        10
    }

    fn example(&self, index: usize) -> Result<usize> {
        match index {
            5 => Err(Error::invalid("example 5 is damaged")),
            7 => panic!("there is no seven"),
            index => Ok(index),
        }
    }
}

#[test]
fn errors_and_panics_end_the_loop_and_not_the_program() {
    for workers in [0, 1, 3] {
        let loader = DataLoaderConfig::new(Broken)
            .batch_size(2)
            .workers(workers)
            .build_with(Ok)
            .unwrap();
        for _ in 0..2 {
            let batches: Vec<Result<Vec<usize>>> = loader.iter().collect();
            let (last, good) = batches.split_last().unwrap();
            assert!(last.as_ref().unwrap_err().to_string().contains("example 5 is damaged"));
            assert!(good.iter().all(Result::is_ok));
            assert_eq!((loader.state().epoch, loader.state().position), (0, 4));
        }
        if workers > 0 {
            loader.set_state(LoaderState {
                position: 6,
                ..loader.state()
            });
            let error = loader.iter().next().unwrap().unwrap_err().to_string();
            assert!(error.contains("panicked: there is no seven"), "{error}");
        }
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let says = |config: DataLoaderConfig<usize>, words: &str| {
        let error = config.build_with(Ok).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let config = || DataLoaderConfig::new(numbers());
    says(config().batch_size(0), "batch_size = 0");
    says(config().shard(2, 2), "rank 2 of 2");
    says(config().prefetch(0), "at least 1");
    assert_eq!(config().build_with(Ok).unwrap().examples(), Some(COUNT));
    let empty: Vec<usize> = Vec::new();
    let none = DataLoaderConfig::new(empty).build_with(Ok).unwrap();
    assert!(none.iter().next().is_none());
    assert_eq!(none.state().epoch, 1);
}

/// Batches of 3, 1 and 4 numbers.
struct Uneven;

impl Stream for Uneven {
    type Item = Vec<usize>;

    fn examples(&self, epoch: u64) -> Result<Box<dyn Iterator<Item = Result<Vec<usize>>> + Send>> {
        let first = 10 * epoch as usize;
        let sizes = [0..3, 3..4, 4..8];
        Ok(Box::new(
            sizes
                .into_iter()
                .map(move |range| Ok(range.map(|i| first + i).collect())),
        ))
    }
}

#[test]
fn batches_of_a_stream_keep_their_sizes() {
    let loader = |workers| {
        let config = DataLoaderConfig::from_batches(Uneven, Vec::len).workers(workers);
        config.build_with(|batches| Ok(batches.concat())).unwrap()
    };
    for workers in [0, 2] {
        let whole = loader(workers);
        let first: Vec<Vec<usize>> = whole.iter().map(Result::unwrap).collect();
        assert_eq!(first, [vec![0, 1, 2], vec![3], vec![4, 5, 6, 7]]);
        assert_eq!(whole.iter().take(2).last().unwrap().unwrap(), [13]);
        let state = whole.state();
        assert_eq!((state.epoch, state.position), (1, 4));
        let later = loader(workers);
        later.set_state(state);
        let rest: Vec<Vec<usize>> = later.iter().map(Result::unwrap).collect();
        assert_eq!(rest, [vec![14, 15, 16, 17]]);
    }
    let shared = loader(0);
    shared.set_shard(0, 2, true).unwrap();
    let error = shared.iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("cannot be divided among processes"), "{error}");
}
