//! A trainer that is one of several.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad_core::communicator::{Communicator, HostSliceMut, Reduction};
use polygrad_core::{Error, Result};
use polygrad_data::DataLoader;
use polygrad_nn::{Checkpoint, GradientSync, Module, SyncGroup, sync_batch_norm};
use polygrad_tensor::{GeneratorState, Gradients};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tally::Tally;
use super::{Step, Trainer, TrainerConfig};
use crate::Run;
use crate::parallel::DataParallel;

/// So long it is waited until the lock of a process that was lost is released.
const RELEASED: Duration = Duration::from_secs(2);

/// What a trainer keeps of the others.
pub(super) struct Ranks {
    pub(super) parallel: Arc<DataParallel>,
    /// Whether this rank wants to stop, and whether all know that one does.
    wishes: bool,
    agreed: bool,
    /// The run that rank 0 keeps.
    pub(super) run: Option<SharedRun>,
    /// What the model's batch normalisations are synchronized by, if they are.
    sync: Option<Arc<SyncGroup>>,
    /// What is added to the figures once the gradients of all ranks are there.
    pub(super) pending: Vec<Step>,
}

/// What rank 0 finds when training begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// No folder, or one that is open already.
    Nothing,
    /// A folder for a new run.
    New,
    /// The checkpoint of a run.
    Run,
}

/// Where rank 0 keeps the run, so that another one can when it is lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SharedRun {
    path: PathBuf,
    settings: Value,
    config: String,
}

#[cold]
fn unknown() -> Error {
    Error::communication("rank 0 sent something else than a trainer does")
}

impl Found {
    /// What there is in the folder of a run.
    pub(super) fn of(run: Option<&Run>) -> Self {
        match run {
            None => Self::Nothing,
            Some(run) if run.checkpoint().exists() => Self::Run,
            Some(_) => Self::New,
        }
    }

    /// What rank 0 has found.
    pub(super) fn agreed(self, group: &dyn Communicator) -> Result<Self> {
        let mut code = [self as i64];
        group.broadcast(HostSliceMut::new(&mut code), 0)?;
        let known = [Self::Nothing, Self::New, Self::Run];
        let found = known.into_iter().find(|found| *found as i64 == code[0]);
        found.ok_or_else(unknown)
    }
}

impl SharedRun {
    /// The run that rank 0 keeps, whose options are `config` there.
    pub(super) fn agreed(config: &TrainerConfig, group: &dyn Communicator) -> Result<Self> {
        let own = config.run.as_ref().map(|run| Self {
            path: std::path::absolute(run.path()).unwrap_or_else(|_| run.path().to_owned()),
            settings: config.settings.clone(),
            config: config.config.clone(),
        });
        let bytes = own.as_ref().map_or(Ok(Vec::new()), serde_json::to_vec);
        let bytes = bytes.map_err(|e| {
            let message = format!("where the run is cannot be told to the other ranks: {e}");
            Error::invalid(message).with_hint("take a folder whose path is plain text")
        })?;
        let bytes = group.broadcast_vec(bytes, 0)?;
        serde_json::from_slice(&bytes).map_err(|_| unknown())
    }

    /// Gives the run to the options of this process, if it is rank 0 and does not keep it yet; whether it is given it.
    pub(super) fn take_over(&self, config: &mut TrainerConfig, group: &dyn Communicator) -> Result<bool> {
        if group.rank() > 0 || config.run.is_some() {
            return Ok(false);
        }
        // The lock of a process that has just ended may still be there.
        let begun = Instant::now();
        let run = loop {
            match Run::resume(&self.path) {
                Err(_) if begun.elapsed() < RELEASED => std::thread::sleep(RELEASED / 20),
                found => break found?,
            }
        };
        (config.settings, config.config) = (self.settings.clone(), self.config.clone());
        config.run = Some(run);
        Ok(true)
    }
}

/// The checkpoint of rank `root`, which the others have not.
pub(super) fn share(group: &dyn Communicator, checkpoint: Option<Checkpoint>, root: usize) -> Result<Checkpoint> {
    let bytes = checkpoint.as_ref().map_or(Ok(Vec::new()), Checkpoint::to_bytes)?;
    let bytes = group.broadcast_vec(bytes, root)?;
    checkpoint.map_or_else(|| Checkpoint::from_bytes(&bytes), Ok)
}

impl Ranks {
    pub(super) fn new(parallel: Arc<DataParallel>) -> Self {
        Self {
            parallel,
            wishes: false,
            agreed: false,
            run: None,
            sync: None,
            pending: Vec::new(),
        }
    }

    /// What a backward pass tells of its gradients.
    pub(super) fn sync(&self) -> Arc<dyn GradientSync> {
        Arc::clone(&self.parallel) as _
    }

    pub(super) fn communicator(&self) -> Arc<dyn Communicator> {
        self.parallel.communicator()
    }

    /// Whether somebody wants to stop, as far as all know it; and whether this rank does, which all will know after the next step.
    pub(super) fn stops(&mut self, wish: bool) -> bool {
        self.wishes |= wish;
        self.agreed
    }

    /// Says how the next batch, which counts `weight`, is made up: this rank has `own` of `examples`, and the optimizer's step follows or not.
    pub(super) fn enter(&mut self, own: u64, examples: u64, weight: f64, is_full: bool) {
        let part = own as f64 / examples.max(1) as f64;
        if let Some(sync) = &self.sync {
            sync.set_weight(part);
        }
        self.parallel.set_round(part * weight, is_full, self.wishes);
    }

    /// The sums of the gradients and of the losses.
    pub(super) fn landed(&mut self) -> Result<(Gradients, f64)> {
        let reduced = self.parallel.reduced()?;
        self.agreed |= reduced.stops;
        Ok((reduced.gradients, reduced.loss))
    }

    /// Goes on with those who are left.
    pub(super) fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<()> {
        self.parallel.rejoin(group)?;
        self.pending.clear();
        Ok(())
    }

    /// Takes down what the model is synchronized by.
    pub(super) fn find_sync(&mut self, model: &impl Module) {
        self.sync = SyncGroup::of(model);
    }

    /// Synchronizes the model anew, if it was, over the group as it is now.
    pub(super) fn sync_again(&mut self, model: &impl Module) -> Result<()> {
        if self.sync.is_some() {
            sync_batch_norm(model, &*self.communicator())?;
            self.find_sync(model);
        }
        Ok(())
    }

    /// Whether all know that one wants to stop.
    pub(super) fn agreed(&mut self) -> &mut bool {
        &mut self.agreed
    }

    /// The sums of some numbers over all ranks.
    pub(super) fn sums<const N: usize>(&self, mut numbers: [f64; N]) -> Result<[f64; N]> {
        self.communicator()
            .all_reduce(HostSliceMut::new(&mut numbers), Reduction::Sum)?;
        Ok(numbers)
    }

    /// The metrics of all ranks together.
    pub(super) fn merged(&self, tally: &Tally) -> Result<Tally> {
        let mut merged = tally.clone();
        for metric in merged.metrics_mut() {
            let states = self.communicator().all_gather_vec(&metric.state())?;
            metric.reset();
            states.iter().try_for_each(|state| metric.merge(state))?;
        }
        Ok(merged)
    }
}

impl<M: Module + 'static, T: Send + 'static> Trainer<M, T> {
    /// Takes this rank's part of the data.
    pub(super) fn take_part(&self, train: &DataLoader<T>, fills: bool) -> Result<()> {
        match &self.ranks {
            Some(ranks) => train.set_shard(ranks.communicator().rank(), ranks.communicator().size(), fills),
            None => Ok(()),
        }
    }

    /// Fails where the ranks could not train one model.
    pub(super) fn check_ranks(&self, train: &DataLoader<T>) -> Result<()> {
        let Some(ranks) = &self.ranks else { return Ok(()) };
        let config = &self.config;
        let names: Vec<&str> = config.metrics.iter().map(|metric| metric.name()).collect();
        let options = (
            (
                config.accumulate,
                config.patience,
                config.log_every,
                config.checkpoint_every,
            ),
            (config.max_norm, names, &config.monitor),
            (config.length, config.autocast, &config.ema, config.restore_best),
        );
        let state = train.state();
        let place = (state.seed, state.epoch, state.position);
        let data = (train.examples(), train.fingerprint());
        let others = [
            ("other options of its trainer", format!("{options:?}")),
            ("another batch size", train.batch_size().to_string()),
            ("other data", format!("{data:?}")),
            ("another place or seed in its data", format!("{place:?}")),
        ];
        let checked = ranks.parallel.check_ranks(&*self.model, &others);
        checked.map_err(|error| error.with_op("Trainer"))
    }

    /// Gives every rank the buffers of rank 0, as PyTorch does, and a stream of random numbers of its own that follows from rank 0's.
    pub(super) fn settle(&self) -> Result<()> {
        let Some(ranks) = &self.ranks else { return Ok(()) };
        let group = ranks.communicator();
        ranks.parallel.broadcast_buffers(&*self.model)?;
        let own = GeneratorState::current();
        let mut state = [own.seed.cast_signed(), own.offset.cast_signed()];
        group.broadcast(HostSliceMut::new(&mut state), 0)?;
        let [seed, offset] = state.map(i64::cast_unsigned);
        let seed = match group.rank() {
            0 => seed,
            rank => polygrad_core::Rng::at(seed, rank as u64).next_u64(),
        };
        GeneratorState { seed, offset }.restore();
        Ok(())
    }

    /// Whether this rank takes part in writing checkpoints.
    pub(super) fn saves(&self) -> bool {
        self.config.run.is_some() || self.ranks.as_ref().is_some_and(|ranks| ranks.run.is_some())
    }
}
