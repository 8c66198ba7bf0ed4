//! Several ranks together: one checkpoint for any number of ranks, sharded moments, and errors that reach all ranks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polygrad_core::communicator::Communicator;
use polygrad_core::{ErrorKind, HostTensor, Result, Shape};
use polygrad_data::{DataLoader, DataLoaderConfig, Dataset};
use polygrad_nn::optim::{AdamConfig, EmaConfig, LAMBConfig, Optimizer};
use polygrad_nn::{
    BatchNorm1d, Checkpoint, Dropout, Linear, Module, Param, QuantizedLinear, ReLU, Sequential, StateDict,
    loss::cross_entropy,
};
use polygrad_tensor::{BlockScheme, Device, Tensor, manual_seed};
use polygrad_testing::ranks as mortal;
use polygrad_threads::Threads;
use polygrad_train::{
    Auroc, Control, DataParallel, Ended, Event, F1, Metric, Perplexity, Progress, Run, RunFolder, ShardedOptimizer,
    Split, Step, Summary, Trainer, TrainerConfig,
};
use tempfile::tempdir;

mod lost;

type Batch = (Tensor, Tensor);

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

/// Runs `f` on `size` ranks; returns the results in their order.
fn ranks<R: Send>(size: usize, f: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    let ends = Threads::group(size, Duration::from_secs(20)).unwrap();
    std::thread::scope(|scope| {
        let f = &f;
        let started: Vec<_> = ends
            .into_iter()
            .map(|end| scope.spawn(move || f(Arc::new(end))))
            .collect();
        started.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn loader(count: usize, batch_size: usize) -> DataLoader<Batch> {
    let points: Vec<[f32; 2]> = (0..count)
        .map(|i| [(i * 37 % 101) as f32 / 50.0 - 1.0, (i * 53 % 97) as f32 / 48.0 - 1.0])
        .collect();
    DataLoaderConfig::new(points)
        .batch_size(batch_size)
        .shuffle(5)
        .transform(|[x, y], rng| {
            let label = i64::from((0.3..0.8).contains(&(x * x + y * y)));
            Ok(([x + 0.01 * rng.normal() as f32, y], label))
        })
        .build(&device())
        .unwrap()
}

fn model(dropout: f64) -> Sequential {
    manual_seed(3);
    let device = device();
    Sequential::new()
        .push(Linear::new(2, 16, &device).unwrap())
        .push(BatchNorm1d::new(16, &device).unwrap())
        .push(ReLU)
        .push(Dropout::new(dropout).unwrap())
        .push(Linear::new(16, 2, &device).unwrap())
}

fn loss(model: &Sequential, (x, y): &Batch) -> Result<Step> {
    let logits = model.forward(x)?;
    Ok(Step::new(cross_entropy(&logits, y)?).outputs(logits, y))
}

fn adam(params: Vec<Param>) -> Result<polygrad_nn::optim::Adam> {
    AdamConfig::adamw(0.01).build(params)
}

/// The trainer of one of several ranks, with or without sharded moments.
fn trainer(options: TrainerConfig, group: &Arc<dyn Communicator>, sharded: bool) -> Trainer<Sequential, Batch> {
    let model = model(0.2);
    let options = options
        .parallel(Arc::clone(group))
        .metric(F1::new())
        .metric(Auroc::new())
        .ema(EmaConfig::new(0.9));
    let params = model.parameters();
    match sharded {
        true => {
            let optimizer = ShardedOptimizer::new(Arc::clone(group), params, adam).unwrap();
            options.build_captured(model, optimizer, loss).unwrap()
        }
        false => {
            let optimizer = adam(params).unwrap();
            options.build(model, optimizer, loss).unwrap()
        }
    }
}

fn fitted(options: TrainerConfig, group: &Arc<dyn Communicator>, sharded: bool) -> (Summary, StateDict) {
    let mut trainer = trainer(options, group, sharded);
    let summary = trainer.fit(&loader(203, 16), Some(&loader(51, 16))).unwrap();
    (summary, trainer.model().state_dict().unwrap())
}

fn assert_close(a: &StateDict, b: &StateDict, tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (name, value) in a.iter() {
        let other = b.get(name).unwrap().to_f64_vec();
        for (x, y) in value.to_f64_vec().iter().zip(other) {
            assert!((x - y).abs() <= tolerance * (1.0 + y.abs()), "{name}: {x} and {y}");
        }
    }
}

#[test]
fn a_run_that_is_stopped_goes_on_as_if_it_had_not_been() {
    for sharded in [false, true] {
        let folder = tempdir().unwrap();
        let whole = ranks(2, |group| fitted(TrainerConfig::epochs(4), &group, sharded).1);
        let path = folder.path().join("run");
        let with_run = |options: TrainerConfig, group: &Arc<dyn Communicator>, resume: bool| match group.rank() {
            0 if resume => options.run(Run::resume(&path).unwrap()),
            0 => options.run(Run::create(&path).unwrap()),
            _ => options,
        };
        ranks(2, |group| {
            // Only rank 1 requests it, in the middle of an epoch.
            let stop = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&stop);
            let rank = group.rank();
            let stopper = move |event: Event<'_>, progress: &Progress<'_>| {
                flag.store(rank == 1 && progress.step >= 10, Ordering::Relaxed);
                let _ = event;
                Ok(Control::Continue)
            };
            let options = TrainerConfig::epochs(4).stop_flag(stop).callback(stopper);
            let (summary, _) = fitted(with_run(options, &group, false), &group, sharded);
            assert_eq!((summary.ended, summary.steps), (Ended::Stopped, 11));
        });
        let resumed = ranks(2, |group| {
            fitted(with_run(TrainerConfig::epochs(4), &group, true), &group, sharded).1
        });
        for (resumed, whole) in resumed.iter().zip(&whole) {
            assert_close(resumed, whole, 0.0);
        }
        // The same file works for any number of ranks, with or without sharded moments.
        for size in [1, 3] {
            let found = ranks(size, |group| {
                fitted(with_run(TrainerConfig::epochs(5), &group, true), &group, !sharded)
            });
            assert_eq!(found[0].0.ended, Ended::Done);
            for (_, state) in &found {
                assert_close(state, &found[0].1, 0.0);
            }
        }
        let rows = std::fs::read_to_string(RunFolder::new(&path).metrics()).unwrap();
        assert!(rows.lines().count() > 20 && !rows.contains("NaN"), "{rows}");
    }
}

#[test]
fn spread_moments_are_a_part_of_the_whole_and_train_the_same() {
    for (size, most) in [(2, 0.55), (4, 0.30)] {
        let train = |group: &Arc<dyn Communicator>, sharded: bool| {
            manual_seed(7);
            let device = device();
            let model = Sequential::new()
                .push(Linear::new(2, 33, &device).unwrap())
                .push(ReLU)
                .push(Linear::new(33, 2, &device).unwrap());
            let plain = adam(model.parameters()).unwrap();
            let spread = ShardedOptimizer::new(Arc::clone(group), model.parameters(), adam).unwrap();
            let options = TrainerConfig::steps(50).parallel(Arc::clone(group)).clip_grad_norm(0.5);
            let boxed: Box<dyn Optimizer> = if sharded { Box::new(spread) } else { Box::new(plain) };
            let mut trainer = options.build_captured(model, boxed, loss).unwrap();
            trainer.fit(&loader(256, 16), None).unwrap();
            (
                trainer.model().state_dict().unwrap(),
                trainer.optimizer().state_dict().unwrap(),
            )
        };
        let found = ranks(size, |group| (train(&group, false), train(&group, true)));
        for ((weights, moments), (spread_weights, spread_moments)) in &found {
            assert_close(spread_weights, weights, 1e-6);
            assert_close(spread_moments, moments, 1e-6);
            assert_close(spread_weights, &found[0].1.0, 0.0);
        }
        let shares = ranks(size, |group| {
            let params = Linear::new(64, 33, &device()).unwrap().parameters();
            let mut optimizer = ShardedOptimizer::new(group, params.clone(), adam).unwrap();
            let gradients = params.iter().map(|param| (param, param.tensor().detach()));
            optimizer.step(&polygrad_tensor::Gradients::new(gradients)).unwrap();
            let bytes = |state: StateDict| state.iter().map(|(_, value)| value.bytes().len()).sum::<usize>();
            let own = bytes(optimizer.inner().state_dict().unwrap());
            own as f64 / bytes(optimizer.state_dict().unwrap()) as f64
        });
        assert!(shares.iter().all(|share| *share <= most), "{shares:?}");
    }
}

#[test]
fn an_optimizer_that_needs_whole_parameters_is_refused() {
    let group = Arc::new(Threads::group(1, Duration::from_secs(1)).unwrap().remove(0));
    let params = Linear::new(2, 2, &device()).unwrap().parameters();
    let error = ShardedOptimizer::new(group, params, |pieces| LAMBConfig::new(0.1).build(pieces)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("whole parameters"), "{error}");
}

#[derive(Module)]
struct Forked {
    used: Linear,
    unused: Linear,
}

#[test]
fn a_parameter_that_no_rank_uses_is_named_on_every_rank() {
    for used_by_one in [false, true] {
        let errors = ranks(2, |group| {
            manual_seed(1);
            let device = device();
            let model = Forked {
                used: Linear::new(2, 2, &device).unwrap(),
                unused: Linear::new(2, 2, &device).unwrap(),
            };
            let optimizer = adam(model.parameters()).unwrap();
            let takes_both = used_by_one && group.rank() == 1;
            let options = TrainerConfig::steps(4).parallel(group);
            let loss = move |model: &Forked, (x, y): &Batch| {
                let mut logits = model.used.forward(x)?;
                if takes_both {
                    logits = logits.add(&model.unused.forward(x)?)?;
                }
                cross_entropy(&logits, y)
            };
            let mut trainer = options.build_captured(model, optimizer, loss).unwrap();
            let fitted = trainer.fit(&loader(64, 8), None).map(drop);
            (fitted, trainer.model().state_dict().unwrap())
        });
        for (result, state) in &errors {
            match result {
                Ok(()) => assert!(used_by_one),
                Err(error) => {
                    assert!(!used_by_one && error.kind() == ErrorKind::NoGradient, "{error}");
                    assert!(error.to_string().contains("unused.weight"), "{error}");
                }
            }
            assert_close(state, &errors[0].1, 0.0);
        }
    }
}

#[test]
fn a_rank_that_fails_is_named_to_the_others() {
    let errors = ranks(3, |group| {
        let rank = group.rank();
        let model = model(0.0);
        let optimizer = adam(model.parameters()).unwrap();
        let fails = move |_: Event<'_>, progress: &Progress<'_>| match rank == 1 && progress.step == 3 {
            true => Err(polygrad_core::Error::new(ErrorKind::Io, "the disk is full")),
            false => Ok(Control::Continue),
        };
        let options = TrainerConfig::steps(10).callback(fails).parallel(group);
        options
            .build(model, optimizer, loss)
            .unwrap()
            .fit(&loader(203, 16), None)
            .unwrap_err()
    });
    for (rank, error) in errors.iter().enumerate() {
        match rank {
            1 => assert_eq!(error.kind(), ErrorKind::Io),
            _ => {
                assert_eq!(error.kind(), ErrorKind::Communication);
                assert!(
                    error.to_string().contains("rank 1 gave up: the disk is full"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn a_loss_that_is_no_number_is_seen_by_all() {
    let errors = ranks(2, |group| {
        let rank = group.rank();
        let model = model(0.0);
        let optimizer = adam(model.parameters()).unwrap();
        let options = TrainerConfig::steps(10).parallel(group);
        let loss = move |model: &Sequential, (x, y): &Batch| {
            let loss = cross_entropy(&model.forward(x)?, y)?;
            if rank == 1 { loss.mul(f64::NAN) } else { Ok(loss) }
        };
        options
            .build(model, optimizer, loss)
            .unwrap()
            .fit(&loader(203, 16), None)
            .unwrap_err()
            .to_string()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("the loss is NaN at step 1"), "{}", errors[0]);
}

#[test]
fn a_rank_whose_data_differ_in_one_value_is_named() {
    let errors = ranks(3, |group| {
        let mut values = vec![0.5_f32; 40];
        if group.rank() == 2 {
            values[31] = 0.500_000_1;
        }
        let points = HostTensor::new(Shape::from([20, 2]), values).unwrap();
        let labels = HostTensor::new(Shape::from([20]), vec![1_i64; 20]).unwrap();
        let loader = DataLoaderConfig::new(points.zip(labels).unwrap()).batch_size(4);
        let mut trainer = trainer(TrainerConfig::epochs(1), &group, false);
        trainer
            .fit(&loader.build(&device()).unwrap(), None)
            .unwrap_err()
            .to_string()
    });
    for error in errors {
        assert!(error.contains("rank 2 has other data than rank 0"), "{error}");
    }
}

#[test]
fn a_rank_with_another_batch_size_is_not_told_of_other_data() {
    let errors = ranks(2, |group| {
        let train = loader(20, 4 + group.rank());
        let mut trainer = trainer(TrainerConfig::epochs(1), &group, false);
        trainer.fit(&train, None).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("rank 1 has another batch size than rank 0"), "{error}");
    }
}

#[test]
fn metrics_of_parts_are_those_of_the_whole() {
    let device = device();
    let numbers = |seed: usize| {
        (0..12)
            .map(move |i| ((i * 7 + seed) % 11) as f64 / 3.0)
            .collect::<Vec<_>>()
    };
    let tensor = |values: &[f64]| Tensor::from_vec(values.to_vec(), [values.len()], &device).unwrap();
    let labels: Vec<f64> = numbers(3).iter().map(|x| f64::from(*x > 1.5)).collect();
    let metrics: [(Box<dyn Metric>, Vec<f64>); 5] = [
        (Box::new(polygrad_train::R2Score::new()), numbers(5)),
        (Box::new(polygrad_train::MeanAbsoluteError::new()), numbers(5)),
        (Box::new(Auroc::new()), labels.clone()),
        (Box::new(F1::new()), labels.clone()),
        (Box::new(polygrad_train::Accuracy::new()), labels),
    ];
    for (metric, targets) in metrics {
        let predictions = numbers(0);
        let take = |from: usize, to: usize| {
            let mut part = metric.clone();
            if from < to {
                part.update(&tensor(&predictions[from..to]), &tensor(&targets[from..to]))
                    .unwrap();
            }
            part
        };
        let mut merged = take(0, 5);
        merged.merge(&take(5, 12).state()).unwrap();
        merged.merge(&take(12, 12).state()).unwrap();
        let whole = take(0, 12).value();
        assert!(
            (merged.value() - whole).abs() < 1e-12,
            "{}: {} and {whole}",
            metric.name(),
            merged.value()
        );
        assert!(merged.merge(&[0.5; 3]).is_err(), "{}", metric.name());
    }
    let logits = Tensor::from_vec(numbers(0), [6, 2], &device).unwrap();
    let classes = Tensor::from_vec(vec![0i64, 1, 1, 0, -100, 1], [6], &device).unwrap();
    let take = |from: usize, len: usize| {
        let mut part = Perplexity::new();
        let rows = |x: &Tensor| x.narrow(0, from, len).unwrap();
        part.update(&rows(&logits), &rows(&classes)).unwrap();
        part
    };
    let mut merged = take(0, 2);
    merged.merge(&take(2, 4).state()).unwrap();
    assert!((merged.value() - take(0, 6).value()).abs() < 1e-9);
    assert!(merged.merge(&[0.5; 3]).is_err());
}
/// Here an epoch is one step, with batches of 10, 10 and 1 examples; only one rank has examples of the last.
#[test]
fn batches_that_ranks_accumulate_are_one_large_batch() {
    let fitted = |options: TrainerConfig, batch_size: usize| {
        manual_seed(3);
        let model = Sequential::new().push(Linear::new(2, 2, &device()).unwrap());
        let optimizer = AdamConfig::new(0.05).build(model.parameters()).unwrap();
        let mut trainer = options.build(model, optimizer, loss).unwrap();
        let data: Vec<([f32; 2], i64)> = (0..21).map(|i| ([i as f32 / 21.0, 1.0], i % 2)).collect();
        let loader = DataLoaderConfig::new(data)
            .batch_size(batch_size)
            .build(&device())
            .unwrap();
        trainer.fit(&loader, None).unwrap();
        (trainer.model().state_dict().unwrap(), trainer.history()[0].loss)
    };
    let (whole, loss) = fitted(TrainerConfig::epochs(3), 21);
    for (state, own) in ranks(2, |group| {
        fitted(TrainerConfig::epochs(3).accumulate(3).parallel(group), 5)
    }) {
        assert_close(&state, &whole, 1e-5);
        assert!((own - loss).abs() < 1e-6, "{own} {loss}");
    }
}

/// Parts of packed weights that one rank has settled lie in memory in another order.
#[test]
fn ranks_may_have_settled_their_models() {
    let models = ranks(2, |group| {
        let rank = group.rank();
        let made = |seed| {
            manual_seed(seed);
            let blocks = BlockScheme::Q8.with_rounded_input(true);
            let layer = QuantizedLinear::pack(&Linear::new(32, 16, &device()).unwrap(), blocks).unwrap();
            if rank == 1 {
                layer.settle().unwrap();
            }
            layer
        };
        let model = made(1);
        assert_eq!(model.named_buffers()[0].1.tensor().rank(), 2 + rank);
        let parallel = DataParallel::new(group, &model).unwrap();
        parallel.check_ranks(&model, &[]).unwrap();
        let other = made(2 + rank as u64);
        let error = parallel.check_ranks(&other, &[]).unwrap_err().to_string();
        assert!(error.contains("rank 1 has a model of other weights"), "{error}");
        parallel.broadcast_buffers(&other).unwrap();
        assert_eq!(other.named_buffers()[0].1.tensor().rank(), 2 + rank);
        let state = other.state_dict().unwrap();
        ["weight", "scales"].map(|name| state.get(name).unwrap().to_f64_vec())
    });
    assert!(models[0] == models[1]);
}
