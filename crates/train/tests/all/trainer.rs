//! Runs end correctly, continue as if they had never stopped, and leave the promised files.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_core::{ErrorKind, Result};
use polygrad_data::{DataLoader, DataLoaderConfig};
use polygrad_nn::optim::{Adam, CosineAnnealingLR, EmaConfig, SGD};
use polygrad_nn::{Dropout, Linear, Module, ReLU, Sequential, loss::cross_entropy};
use polygrad_tensor::{Device, Tensor, manual_seed};
use polygrad_train::{
    Accuracy, Control, Ended, Event, F1, MlflowLogger, NonFiniteLoss, Progress, Run, RunFolder, Split, Step, Trainer,
    TrainerConfig,
};
use tempfile::{TempDir, tempdir};

type Batch = (Tensor, Tensor);

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

/// Whether a point is in a ring; the noise on the points differs in each epoch.
fn loader(count: usize, workers: usize) -> DataLoader<Batch> {
    let points: Vec<[f32; 2]> = (0..count)
        .map(|i| [(i * 37 % 101) as f32 / 50.0 - 1.0, (i * 53 % 97) as f32 / 48.0 - 1.0])
        .collect();
    DataLoaderConfig::new(points)
        .batch_size(16)
        .shuffle(5)
        .workers(workers)
        .transform(|[x, y], rng| {
            let label = usize::from((0.3..0.8).contains(&(x * x + y * y)));
            Ok(([x + 0.01 * rng.normal() as f32, y], label))
        })
        .build(&device())
        .unwrap()
}

fn model() -> Sequential {
    manual_seed(3);
    let device = device();
    Sequential::new()
        .push(Linear::new(2, 16, &device).unwrap())
        .push(ReLU)
        .push(Dropout::new(0.1).unwrap())
        .push(Linear::new(16, 2, &device).unwrap())
}

fn loss(model: &Sequential, (x, y): &Batch) -> Result<Step> {
    let logits = model.forward(x)?;
    Ok(Step::new(cross_entropy(&logits, y)?).outputs(logits, y))
}

fn options() -> TrainerConfig {
    TrainerConfig::epochs(4)
        .metric(Accuracy::new())
        .metric(F1::new())
        .schedule(CosineAnnealingLR::new(100))
        .clip_grad_norm(1.0)
        .accumulate(2)
        .ema(EmaConfig::new(0.9))
}

fn trainer(options: TrainerConfig) -> Trainer<Sequential, Batch> {
    let model = model();
    let optimizer = Adam::new(model.parameters(), 0.01).unwrap();
    options.build(model, optimizer, loss).unwrap()
}

fn weights(trainer: &Trainer<Sequential, Batch>) -> Vec<Vec<f32>> {
    let values = trainer.model().parameters();
    values.iter().map(|p| p.tensor().to_vec::<f32>().unwrap()).collect()
}

/// Stops a trainer after a number of steps.
fn stopping(after: u64) -> impl FnMut(Event<'_>, &Progress<'_>) -> Result<Control> {
    let mut left = after;
    move |event, _: &Progress<'_>| {
        if matches!(event, Event::Step) {
            left = left.saturating_sub(1);
        }
        Ok(match left {
            0 => Control::Stop,
            _ => Control::Continue,
        })
    }
}

/// The files that a run has left, except for times.
fn left(folder: &TempDir) -> (Vec<String>, Vec<u8>, Vec<u8>) {
    let files = RunFolder::new(folder.path());
    let rows = std::fs::read_to_string(files.metrics()).unwrap();
    let rows = rows.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned());
    let read = |path| std::fs::read(path).unwrap();
    (rows.collect(), read(files.model()), read(files.best()))
}

#[test]
fn a_stopped_run_goes_on_as_if_it_had_not_been() {
    let whole = tempdir().unwrap();
    let mut undisturbed = trainer(options().run(Run::create(whole.path()).unwrap()));
    let summary = undisturbed.fit(&loader(200, 0), Some(&loader(50, 0))).unwrap();
    assert_eq!((summary.ended, summary.steps, summary.epochs), (Ended::Done, 28, 4));
    // 200 examples are 13 batches and 7 steps, with a row for each tenth of an epoch.
    assert_eq!(undisturbed.history().len(), 4 * (7 + 1));

    for (steps, workers) in [(1, 2), (5, 0), (7, 1), (13, 4)] {
        let folder = tempdir().unwrap();
        let mut sessions = 0;
        let last = loop {
            sessions += 1;
            let run = Run::open(folder.path()).unwrap();
            let mut trainer = trainer(options().run(run).callback(stopping(steps)));
            if sessions > 1 {
                // The checkpoint restores the generator's position.
                manual_seed(sessions);
            }
            let summary = trainer.fit(&loader(200, workers), Some(&loader(50, 0))).unwrap();
            if summary.ended == Ended::Done {
                assert_eq!(summary.steps, 28);
                break trainer;
            }
            assert_eq!((summary.ended, summary.steps), (Ended::Stopped, steps * sessions));
        };
        assert_eq!(weights(&last), weights(&undisturbed), "{steps} steps at a time");
        assert_eq!(left(&folder), left(&whole), "{steps} steps at a time");
    }
}

#[test]
fn recorded_steps_are_the_written_ones() {
    let options = || TrainerConfig::epochs(2).metric(Accuracy::new());
    let model_without_dropout = || {
        manual_seed(3);
        Sequential::new().push(Linear::new(2, 2, &device()).unwrap())
    };
    let mut history = Vec::new();
    for captured in [false, true] {
        let model = model_without_dropout();
        let optimizer = SGD::new(model.parameters(), 0.1).unwrap();
        let mut trainer = match captured {
            false => options().build(model, optimizer, loss).unwrap(),
            true => options().build_captured(model, optimizer, loss).unwrap(),
        };
        trainer.fit(&loader(160, 0), Some(&loader(50, 0))).unwrap();
        let rows = trainer.history().iter().map(|row| (row.loss, row.metrics.clone()));
        history.push(rows.collect::<Vec<_>>());
    }
    assert_eq!(history[0].len(), 22);
    assert_eq!(history[0], history[1]);
}

#[test]
fn accumulated_batches_are_one_large_batch() {
    let small = |count: usize, size: usize| {
        let numbers: Vec<([f32; 2], usize)> = (0..count).map(|i| ([i as f32 / 64.0, 1.0], i % 2)).collect();
        DataLoaderConfig::new(numbers)
            .batch_size(size)
            .build(&device())
            .unwrap()
    };
    let trained = |count, size, accumulate, captured| {
        manual_seed(3);
        let model = Sequential::new().push(Linear::new(2, 2, &device()).unwrap());
        let optimizer = SGD::new(model.parameters(), 0.5).unwrap();
        let config = TrainerConfig::steps(7).accumulate(accumulate);
        let trainer = match captured {
            true => config.build_captured(model, optimizer, loss),
            false => config.build(model, optimizer, loss),
        };
        let mut trainer = trainer.unwrap();
        let summary = trainer.fit(&small(count, size), None).unwrap();
        assert_eq!(summary.steps, 7);
        weights(&trainer).concat()
    };
    // In the second case the last batch of an epoch has 3 examples, in the third 4 of 20; there only one large batch is
    // the same.
    for (count, large, small, accumulate) in [(64, 16, 4, 4), (15, 15, 4, 4), (20, 20, 16, 2), (21, 21, 10, 4)] {
        for captured in [false, true] {
            let wanted = trained(count, large, 1, false);
            for (a, b) in wanted.into_iter().zip(trained(count, small, accumulate, captured)) {
                assert!((a - b).abs() < 1e-6, "{count} by {small}: {a} {b}");
            }
        }
    }
}

#[test]
fn callbacks_see_the_model_the_gradients_and_the_batch() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let look = {
        let seen = Rc::clone(&seen);
        move |event: Event<'_>, progress: &Progress<'_>| -> Result<Control> {
            let model = progress.model::<Sequential>().unwrap();
            assert!(progress.model::<Linear>().is_none());
            assert_eq!(progress.module().unwrap().num_parameters(), model.num_parameters());
            let is_step = matches!(event, Event::Step);
            assert_eq!(progress.batch::<Batch>().is_some(), is_step);
            assert_eq!(progress.gradients().is_some(), is_step);
            if let (Some((x, _)), Some(gradients)) = (progress.batch::<Batch>(), progress.gradients()) {
                let norm = gradients.by_name("3.weight").unwrap().square()?.sum_all()?.item()?;
                seen.borrow_mut().push((x.dims()[0], norm));
            }
            Ok(Control::Continue)
        }
    };
    // 40 examples are batches of 16, 16 and 8.
    let mut trainer = trainer(TrainerConfig::epochs(2).clip_grad_norm(1.0).callback(look));
    trainer.fit(&loader(40, 0), Some(&loader(16, 0))).unwrap();
    let seen = seen.borrow();
    assert_eq!(seen.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [16, 16, 8, 16, 16, 8]);
    assert!(seen.iter().all(|(_, norm)| (1e-9..=1.0).contains(norm)), "{seen:?}");
}

#[test]
fn training_ends_when_it_no_longer_gets_better() {
    let folder = tempdir().unwrap();
    let options = || {
        TrainerConfig::epochs(1000)
            .metric(Accuracy::new())
            .monitor("accuracy")
            .early_stopping(3)
            .run(Run::open(folder.path()).unwrap())
    };
    // A learning rate of 0 improves nothing, also when the run is resumed.
    for (epochs, sessions) in [(4, "first"), (4, "second")] {
        let model = Sequential::new().push(Linear::new(2, 2, &device()).unwrap());
        let optimizer = SGD::new(model.parameters(), 0.0).unwrap();
        let mut trainer = options().build(model, optimizer, loss).unwrap();
        let summary = trainer.fit(&loader(64, 0), Some(&loader(64, 0))).unwrap();
        assert_eq!(
            (summary.ended, summary.epochs),
            (Ended::EarlyStopping, epochs),
            "{sessions}"
        );
        assert_eq!(summary.best, summary.evaluation.map(|row| row.metrics[0]));
    }
}

#[test]
fn the_best_weights_come_back() {
    let folder = tempdir().unwrap();
    for run in [None, Some(Run::create(folder.path()).unwrap())] {
        // Far too large a rate: the first evaluation is not the worst.
        let config = || TrainerConfig::epochs(6).restore_best(true);
        let config = match run {
            None => config(),
            Some(run) => config().run(run),
        };
        let model = model();
        let optimizer = SGD::new(model.parameters(), 8.0).unwrap();
        let mut trainer = config.build(model, optimizer, loss).unwrap();
        let (train, validation) = (loader(64, 0), loader(64, 0));
        let summary = trainer.fit(&train, Some(&validation)).unwrap();
        assert_ne!(summary.best, summary.evaluation.map(|row| row.loss));
        let again = trainer.evaluate(&validation).unwrap().0;
        assert_eq!(Some(again), summary.best);
    }
}

#[test]
fn callbacks_are_told_of_everything() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    let watch = move |event: Event<'_>, progress: &Progress<'_>| {
        log.borrow_mut().push(match event {
            Event::Begin => format!("begin {:?}", progress.steps),
            Event::Step => format!("step {}", progress.step),
            Event::Row(row) if row.split == Split::Train => format!("row {}", row.epoch),
            Event::Row(row) => format!("evaluated {}", row.epoch),
            Event::Epoch(row) => format!("epoch {} {}", progress.epoch, row.is_some()),
            Event::End => "end".to_owned(),
            other => format!("{other:?}"),
        });
        Ok(Control::Continue)
    };
    let config = TrainerConfig::epochs(2)
        .metric(Accuracy::new())
        .log_every(2)
        .callback(watch);
    trainer(config).fit(&loader(48, 0), Some(&loader(16, 0))).unwrap();
    let expected = [
        "begin Some(6)",
        "step 1",
        "step 2",
        "row 0.6666666666666666",
        "step 3",
        "row 1",
        "evaluated 1",
        "epoch 1 true",
        "step 4",
        "step 5",
        "row 1.6666666666666665",
        "step 6",
        "row 2",
        "evaluated 2",
        "epoch 2 true",
        "end",
    ];
    assert_eq!(*seen.borrow(), expected);
}

#[test]
fn a_run_in_mlflow_goes_on_without_doubled_steps() {
    let folder = tempdir().unwrap();
    let store = folder.path().join("mlruns");
    for (stop, status) in [(5, 3), (1000, 3)] {
        let logger = MlflowLogger::open(&store, "rings: \"1\"", "first").unwrap();
        let logger = logger.param("lr", 0.01).unwrap();
        let config = TrainerConfig::epochs(2).metric(Accuracy::new()).log_every(2);
        let run = Run::open(folder.path().join("run")).unwrap();
        let config = config.run(run).callback(logger).callback(stopping(stop));
        trainer(config).fit(&loader(48, 0), Some(&loader(16, 0))).unwrap();
        let only = |path: &Path| {
            let mut entries: Vec<_> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
            entries.retain(|entry| entry.is_dir());
            assert_eq!(entries.len(), 1, "{entries:?}");
            entries.remove(0)
        };
        let run = only(&only(&store));
        let meta = std::fs::read_to_string(run.join("meta.yaml")).unwrap();
        assert!(meta.contains(&format!("status: {status}\n")), "{meta}");
        if stop > 5 {
            let lines = std::fs::read_to_string(run.join("metrics/loss/train")).unwrap();
            let steps: Vec<&str> = lines.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
            assert_eq!(steps, ["2", "3", "5", "6"]);
            assert_eq!(std::fs::read_to_string(run.join("params/lr")).unwrap(), "0.01");
        }
    }
    let logger = MlflowLogger::open(&store, "rings: \"1\"", "second").unwrap();
    let error = logger.param("../lr", 1).unwrap_err().to_string();
    assert!(error.contains("cannot call anything \"../lr\""), "{error}");
}

#[test]
fn the_time_is_told_and_so_is_a_failure() {
    let told = Rc::new(RefCell::new((0.0, false)));
    let seen = Rc::clone(&told);
    let watch = move |event: Event<'_>, progress: &Progress<'_>| {
        let (loading, evaluating) = (progress.loading_seconds, progress.evaluation_seconds);
        assert!(loading <= progress.training_seconds && progress.training_seconds + evaluating <= progress.seconds);
        let mut seen = seen.borrow_mut();
        seen.0 = f64::min(loading, evaluating);
        seen.1 |= matches!(event, Event::Failed);
        match event {
            Event::Step if progress.step == 20 => Err(polygrad_core::Error::invalid("that is enough")),
            _ => Ok(Control::Continue),
        }
    };
    let mut trainer = trainer(TrainerConfig::epochs(4).callback(watch));
    let error = trainer.fit(&loader(200, 0), Some(&loader(50, 0))).unwrap_err();
    assert!(error.to_string().contains("that is enough"), "{error}");
    let (least, has_failed) = *told.borrow();
    assert!(least > 0.0 && has_failed, "{told:?}");
}

#[test]
fn a_flag_stops_after_a_step() {
    let flag = Arc::new(AtomicBool::new(false));
    let raise = Arc::clone(&flag);
    let watch = move |_: Event<'_>, progress: &Progress<'_>| {
        raise.store(progress.step == 2, Ordering::Relaxed);
        Ok(Control::Continue)
    };
    let config = TrainerConfig::epochs(2).stop_flag(flag).callback(watch);
    let summary = trainer(config).fit(&loader(160, 2), None).unwrap();
    assert_eq!((summary.ended, summary.steps), (Ended::Stopped, 2));
}

#[test]
fn what_cannot_be_trained_is_named() {
    let build = |config: TrainerConfig| {
        let model = model();
        let optimizer = Adam::new(model.parameters(), 0.01).unwrap();
        config.build(model, optimizer, loss)
    };
    for (config, words) in [
        (TrainerConfig::epochs(0), "epochs is at least 1"),
        (TrainerConfig::epochs(1).accumulate(0), "accumulate is at least 1"),
        (TrainerConfig::epochs(1).monitor("acc"), "no metric \"acc\" to monitor"),
        (
            TrainerConfig::epochs(1).metric(Accuracy::new()).metric(Accuracy::new()),
            "metric 1 has the name of another one: \"accuracy\"",
        ),
    ] {
        let error = build(config).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
    let nothing = |model: &Sequential, (x, y): &Batch| cross_entropy(&model.forward(x)?, y);
    let model_of = model();
    let optimizer = Adam::new(model_of.parameters(), 0.01).unwrap();
    let config = TrainerConfig::epochs(1).metric(Accuracy::new());
    let error = config
        .build(model_of, optimizer, nothing)
        .unwrap()
        .fit(&loader(32, 0), None)
        .unwrap_err();
    assert!(error.to_string().contains("gives them nothing to compare"), "{error}");

    let model_of = model();
    let optimizer = Adam::new(model_of.parameters(), 0.01).unwrap();
    let infinite = |model: &Sequential, (x, y): &Batch| cross_entropy(&model.forward(x)?, y)?.mul(f64::INFINITY);
    let error = TrainerConfig::epochs(1)
        .build(model_of, optimizer, infinite)
        .unwrap()
        .fit(&loader(32, 0), None);
    let error = error.unwrap_err();
    assert!(
        error.to_string().contains("the loss is inf at step 1, in epoch 1"),
        "{error}"
    );
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.downcast_ref::<NonFiniteLoss>().unwrap().step, 1);

    // A run with other metrics, and one whose position is beyond the end of these data.
    let folder = tempdir().unwrap();
    let run = |path| Run::open(path).unwrap();
    let stopped = TrainerConfig::epochs(2).metric(Accuracy::new()).callback(stopping(9));
    trainer(stopped.run(run(folder.path())))
        .fit(&loader(200, 0), None)
        .unwrap();
    let error = trainer(TrainerConfig::epochs(2).run(run(folder.path())))
        .fit(&loader(200, 0), None)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the checkpoint has 1 metrics, the trainer 0"),
        "{error}"
    );
    let same = TrainerConfig::epochs(2).metric(Accuracy::new());
    let error = trainer(same.run(run(folder.path())))
        .fit(&loader(100, 0), None)
        .unwrap_err();
    assert!(
        error.to_string().contains("stands at example 144 of an epoch of 100"),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::StateDict);
}
