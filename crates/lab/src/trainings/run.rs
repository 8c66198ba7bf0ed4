//! One drawn training, run in several ways.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polygrad::communicator::{Communicator, Threads};
use polygrad::nn::{Module, StateDict};
use polygrad::optim::{EmaConfig, StepLR};
use polygrad::train::{Control, Event, Progress, Run, ShardedOptimizer, Trainer, TrainerConfig};
use polygrad::{DType, Device, Error};
use polygrad_console::backend::{open, spec};
use polygrad_console::failure::{Failure, Result};

use super::model::{Batch, Moved};
use super::spec::{Block, Rule, Training};

/// The number of optimizer steps of a training.
const STEPS: u64 = 5;

/// The number of perturbed runs that show the effect of rounding.
const MOVED: Moved = 3;

/// The allowed difference of two runs as a multiple of that of perturbed runs: another order of rounding changes every
/// value, not only the data.
const SLACK: f64 = 64.0;

/// A way to run a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Eagerly, on one thread.
    Whole,
    /// With this number of threads.
    Threads(usize),
    /// Recorded and replayed.
    Captured,
    /// Told to stop in the middle, and resumed with two threads.
    Stopped,
    /// Ended by an error in the middle, and resumed from the previous checkpoint.
    Lost,
    /// Recorded, and also lost.
    CapturedLost,
    /// By two ranks.
    Ranks,
    /// By two ranks, each with a shard of the optimizer's state.
    Sharded,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("as it is written"),
            Self::Threads(count) => write!(f, "with {count} threads"),
            Self::Captured => f.write_str("captured"),
            Self::Stopped => f.write_str("stopped and resumed"),
            Self::Lost => f.write_str("lost and resumed"),
            Self::CapturedLost => f.write_str("captured, lost and resumed"),
            Self::Ranks => f.write_str("by two ranks"),
            Self::Sharded => f.write_str("by two ranks with spread moments"),
        }
    }
}

impl Way {
    /// The ways that a device supports.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn of(backend: &str) -> Result<Vec<Self>> {
        open(backend, None)?;
        let mut all = vec![
            Self::Captured,
            Self::Stopped,
            Self::Lost,
            Self::CapturedLost,
            Self::Ranks,
            Self::Sharded,
        ];
        if takes_threads(backend) {
            all.extend([Self::Threads(2), Self::Threads(3)]);
        }
        Ok(all)
    }

    fn is_ranks(self) -> bool {
        matches!(self, Self::Ranks | Self::Sharded)
    }

    fn is_captured(self) -> bool {
        matches!(self, Self::Captured | Self::CapturedLost)
    }

    /// The way it is compared with: one with exactly the same steps, or one that may differ only by rounding.
    fn origin(self) -> Self {
        match self {
            Self::CapturedLost => Self::Captured,
            _ => Self::Whole,
        }
    }

    fn is_exact(self) -> bool {
        !self.is_ranks() && self != Self::Captured
    }

    /// Whether this way is equivalent to the whole run for a training.
    pub(super) fn is_for(self, training: &Training) -> bool {
        // Ranks draw other random numbers, and see other batches if a layer mixes examples; their rounding differences
        // are judged in f64.
        let apart = training.batch_size.is_multiple_of(2)
            && training.dtype == DType::F64
            && !training.draws_numbers()
            && !training.layers.contains(&Block::BatchNorm);
        match self {
            Self::Ranks => apart,
            // LAMB needs whole tensors.
            Self::Sharded => apart && training.optimizer != Rule::Lamb,
            Self::Captured => training.dtype == DType::F64,
            _ => true,
        }
    }
}

fn takes_threads(backend: &str) -> bool {
    backend.split(':').next() == Some("cpu") && !backend.contains("threads=")
}

/// The results of a training.
pub(super) struct Left {
    model: StateDict,
    optimizer: StateDict,
    /// The losses of its rows.
    losses: Vec<f64>,
}

impl Left {
    /// Runs a training. `moved` perturbs data and parameters, in units in the last place.
    pub(super) fn of(training: &Training, backend: &str, way: Way, moved: Moved) -> std::result::Result<Self, String> {
        let scene = Scene::new();
        let path = scene.0.join("run");
        let run = |way, resumed| one(training, backend, way, moved, &path, resumed);
        let text = |failure: Failure| failure.to_string();
        match way {
            Way::Stopped | Way::Lost | Way::CapturedLost => match run(way, false) {
                Ok(Some(left)) => Ok(left),
                Ok(None) => run(way, true)
                    .map_err(text)?
                    .ok_or_else(|| "it stopped again".to_owned()),
                Err(failure) => Err(text(failure)),
            },
            Way::Ranks | Way::Sharded => ranks(training, backend, way, moved).map_err(text),
            _ => run(way, false).map_err(text)?.ok_or_else(|| "it stopped".to_owned()),
        }
    }
}

/// A folder that is removed on drop.
struct Scene(PathBuf);

impl Scene {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("polygrad-trainings-{}-{count}", std::process::id())))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs a training on one device; `None` if it was interrupted on purpose.
fn one(training: &Training, backend: &str, way: Way, moved: Moved, path: &Path, resumed: bool) -> Result<Option<Left>> {
    let threads = match way {
        Way::Threads(count) => count,
        Way::Stopped if resumed => 2,
        _ => 1,
    };
    let device = match takes_threads(backend) {
        true => open(backend, Some(threads))?,
        false => Device::new(&spec(backend, None)?.to_string())?,
    };
    let mut config = config(training);
    let is_broken = matches!(way, Way::Stopped | Way::Lost | Way::CapturedLost);
    if is_broken {
        let run = if resumed {
            Run::resume(path)?
        } else {
            Run::create(path)?
        };
        config = config.run(run).checkpoint_every(1);
    }
    if is_broken && !resumed {
        let after = training.broken_after;
        config = config.callback(move |event: Event<'_>, progress: &Progress<'_>| match event {
            Event::Step if progress.step >= after && way == Way::Stopped => Ok(Control::Stop),
            Event::Step if progress.step > after => Err(Error::invalid(LOST)),
            _ => Ok(Control::Continue),
        });
    }
    let mut trainer = trainer(training, config, (way, moved), &device, None)?;
    match fit(training, &mut trainer, moved, &device) {
        Ok(()) if is_broken && !resumed && way == Way::Stopped => Ok(None),
        Ok(()) => left(&trainer).map(Some),
        Err(failure) if failure.to_string().contains(LOST) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The callback's error that ends a training in the middle.
const LOST: &str = "lost on purpose";

fn config(training: &Training) -> TrainerConfig {
    let mut config = TrainerConfig::steps(STEPS).accumulate(training.accumulate).log_every(1);
    if training.schedule {
        config = config.schedule(StepLR {
            step_size: 2,
            gamma: 0.5,
        });
    }
    if training.clip {
        config = config.clip_grad_norm(0.5);
    }
    if training.ema {
        config = config.ema(EmaConfig::new(0.8));
    }
    match training.autocast {
        Some(dtype) => config.autocast(dtype),
        None => config,
    }
}

type Whole = Trainer<polygrad::nn::Sequential, Batch>;

fn trainer(
    training: &Training,
    config: TrainerConfig,
    (way, moved): (Way, Moved),
    device: &Device,
    group: Option<Arc<dyn Communicator>>,
) -> Result<Whole> {
    let model = training.model(moved, device)?;
    let params = model.parameters();
    let loss = training.loss();
    let config = match &group {
        Some(group) => config.parallel(Arc::clone(group)),
        None => config,
    };
    Ok(match (way, group) {
        (Way::Sharded, Some(group)) => {
            let drawn = training.clone();
            let optimizer = ShardedOptimizer::new(group, params, move |params| drawn.optimizer(params))?;
            config.build(model, optimizer, loss)?
        }
        _ if way.is_captured() => config.build_captured(model, training.optimizer(params)?, loss)?,
        _ => config.build(model, training.optimizer(params)?, loss)?,
    })
}

fn fit(training: &Training, trainer: &mut Whole, moved: Moved, device: &Device) -> Result<()> {
    let train = training.loader(1, moved, device)?;
    let evaluated = training
        .evaluated
        .then(|| training.loader(2, moved, device))
        .transpose()?;
    trainer.fit(&train, evaluated.as_ref())?;
    Ok(())
}

fn left(trainer: &Whole) -> Result<Left> {
    Ok(Left {
        model: trainer.model().state_dict()?,
        optimizer: trainer.optimizer().state_dict()?,
        losses: trainer.history().iter().map(|row| row.loss).collect(),
    })
}

/// Runs a training on two ranks, each a thread with half of each batch. Returns the results of the first.
fn ranks(training: &Training, backend: &str, way: Way, moved: Moved) -> Result<Left> {
    let training = &Training {
        batch_size: training.batch_size / 2,
        ..training.clone()
    };
    let ends = Threads::group(2, Duration::from_secs(20))?;
    let run = |end| -> Result<Left> {
        let device = match takes_threads(backend) {
            true => open(backend, Some(1))?,
            false => open(backend, None)?,
        };
        let group: Arc<dyn Communicator> = Arc::new(end);
        let mut trainer = trainer(training, config(training), (way, moved), &device, Some(group))?;
        fit(training, &mut trainer, moved, &device)?;
        left(&trainer)
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = ends.into_iter().map(|end| scope.spawn(|| run(end))).collect();
        let mut all = started
            .into_iter()
            .map(|rank| rank.join().unwrap_or_else(|_| Err(Failure::new("a rank panicked"))));
        let first = all.next().unwrap_or_else(|| Err(Failure::new("there are no ranks")));
        all.try_for_each(|other| other.map(drop)).and(first)
    })
}

/// Compares a way with its origin. An error says what differs.
pub(super) fn judge(training: &Training, backend: &str, way: Way) -> std::result::Result<(), String> {
    let whole = Left::of(training, backend, way.origin(), 0);
    let (whole, other) = match (whole, Left::of(training, backend, way, 0)) {
        // Both fail; the messages may differ for ranks and recordings.
        (Err(_), Err(_)) => return Ok(()),
        (Ok(_), Err(error)) => return Err(format!("fails: {error}")),
        (Err(error), Ok(_)) => return Err(format!("passes, where it fails {}: {error}", way.origin())),
        (Ok(whole), Ok(other)) => (whole, other),
    };
    let parts = |left: &Left| {
        let losses = vec![("losses".to_owned(), left.losses.clone())];
        let named = |what: &str, state: &StateDict| -> Vec<(String, Vec<f64>)> {
            let named = state
                .iter()
                .map(|(name, value)| (format!("{what} {name}"), value.to_f64_vec()));
            named.collect()
        };
        // Ranks with sharded moments each have only a part of them.
        let optimizer = match way {
            Way::Sharded => Vec::new(),
            _ => named("optimizer's", &left.optimizer),
        };
        [losses, named("model's", &left.model), optimizer].concat()
    };
    let (whole, other) = (parts(&whole), parts(&other));
    if way.is_exact() {
        // Rows before the interruption are read from a file, which has six decimal places.
        let rounded = if matches!(way, Way::Threads(_)) { 0.0 } else { 1e-6 };
        return same(&whole, &other, |i| {
            if i == 0 { rounded * largest(&whole[0].1) } else { 0.0 }
        });
    }
    let mut spread = vec![0.0_f64; whole.len()];
    for moved in 1..=MOVED {
        let there = Left::of(training, backend, Way::Whole, moved)?;
        for ((spread, (_, a)), (_, b)) in spread.iter_mut().zip(&whole).zip(parts(&there)) {
            *spread = spread.max(far(a, &b));
        }
    }
    same(&whole, &other, |i| {
        SLACK * (spread[i] + largest(&whole[i].1) * f64::EPSILON)
    })
}

/// The largest absolute value, at least 1.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(1.0, |most, v| most.max(v.abs()))
}

/// The largest difference of two lists; infinite if only one of them is a number at an index.
fn far(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let pairs = a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits() && a != b);
    pairs
        .map(|(a, b)| match (a - b).abs() {
            far if far.is_nan() && a.is_nan() && b.is_nan() => 0.0,
            far if far.is_nan() => f64::INFINITY,
            far => far,
        })
        .fold(0.0, f64::max)
}

type Parts = [(String, Vec<f64>)];

fn same(whole: &Parts, other: &Parts, allowed: impl Fn(usize) -> f64) -> std::result::Result<(), String> {
    let names = |parts: &Parts| parts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(whole) != names(other) {
        return Err(format!("other parts: {:?}, and {:?}", names(whole), names(other)));
    }
    for (i, ((name, a), (_, b))) in whole.iter().zip(other).enumerate() {
        let (far, most) = (far(a, b), allowed(i));
        if far > most {
            return Err(format!(
                "the {name} differ by {far:.3e}, where {most:.3e} is explained: {a:?}, and {b:?}"
            ));
        }
    }
    Ok(())
}
