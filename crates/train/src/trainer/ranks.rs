//! A trainer that is one of several.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut, Reduction};
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_data::DataLoader;
use polygrad_nn::{Checkpoint, Module, SyncGroup, sync_batch_norm};
use polygrad_tensor::{GeneratorState, Gradients, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tally::Tally;
use super::{Step, Trainer};
use crate::parallel::DataParallel;

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
    /// Examples of all ranks whose gradients are being added up.
    examples: u64,
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
    pub(super) path: PathBuf,
    pub(super) settings: Value,
    pub(super) config: String,
}

#[cold]
fn unknown() -> Error {
    Error::communication("rank 0 sent something else than a trainer does")
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
            examples: 0,
        }
    }

    pub(super) fn communicator(&self) -> Arc<dyn Communicator> {
        self.parallel.communicator()
    }

    /// Whether somebody wants to stop, as far as all know it; and whether this rank does, which all will know after the next step.
    pub(super) fn stops(&mut self, wish: bool) -> bool {
        self.wishes |= wish;
        self.agreed
    }

    /// Says how the next batch counts: this rank has `own` of `examples`, and the optimizer's step follows or not.
    pub(super) fn enter(&mut self, own: u64, examples: u64, is_full: bool) {
        self.examples += examples;
        let weight = own as f64 / examples.max(1) as f64;
        if let Some(sync) = &self.sync {
            sync.set_weight(weight);
        }
        self.parallel.set_round(weight, is_full, self.wishes);
    }

    /// The sum of the gradients, the mean loss of `count` batches, and their examples.
    pub(super) fn landed(&mut self, count: u64) -> Result<(Gradients, f64, u64)> {
        let reduced = self.parallel.reduced()?;
        self.agreed |= reduced.stops;
        let examples = std::mem::take(&mut self.examples);
        Ok((reduced.gradients, reduced.loss / count as f64, examples))
    }

    /// What rank 0 has found.
    pub(super) fn agree(&mut self, found: Found) -> Result<Found> {
        let mut code = [found as i64];
        self.communicator().broadcast(HostSliceMut::new(&mut code), 0)?;
        let known = [Found::Nothing, Found::New, Found::Run];
        let found = known.into_iter().find(|found| *found as i64 == code[0]);
        found.ok_or_else(unknown)
    }

    /// What all know of the run of rank 0, who gives it.
    pub(super) fn share_run(&mut self, run: Option<SharedRun>) -> Result<()> {
        let bytes = run.as_ref().map_or(Ok(Vec::new()), serde_json::to_vec);
        let bytes = self.share_bytes(bytes.map_err(|e| Error::invalid(e.to_string()))?, 0)?;
        self.run = Some(serde_json::from_slice(&bytes).map_err(|_| unknown())?);
        Ok(())
    }

    /// The checkpoint of rank `root`, which the others have not.
    pub(super) fn share(&self, checkpoint: Option<Checkpoint>, root: usize) -> Result<Checkpoint> {
        let bytes = checkpoint.as_ref().map_or(Ok(Vec::new()), Checkpoint::to_bytes)?;
        let bytes = self.share_bytes(bytes, root)?;
        checkpoint.map_or_else(|| Checkpoint::from_bytes(&bytes), Ok)
    }

    fn share_bytes(&self, mut bytes: Vec<u8>, root: usize) -> Result<Vec<u8>> {
        let mut len = [bytes.len() as i64];
        self.communicator().broadcast(HostSliceMut::new(&mut len), root)?;
        bytes.resize(usize::try_from(len[0]).unwrap_or(0), 0);
        self.communicator().broadcast(HostSliceMut::new(&mut bytes), root)?;
        Ok(bytes)
    }

    /// Goes on with those who are left.
    pub(super) fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<()> {
        self.parallel.rejoin(group)?;
        self.examples = 0;
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

    /// Some numbers of every rank, each of which may have more or fewer.
    fn gather(&self, numbers: &[f64]) -> Result<Vec<Vec<f64>>> {
        let group = self.communicator();
        let mut lens = vec![0i64; group.size()];
        group.all_gather(HostSlice::new(&[numbers.len() as i64]), HostSliceMut::new(&mut lens))?;
        let longest = lens.iter().copied().max().unwrap_or(0) as usize;
        if longest == 0 {
            return Ok(vec![Vec::new(); lens.len()]);
        }
        let mut own = numbers.to_vec();
        own.resize(longest, 0.0);
        let mut all = vec![0.0; longest * lens.len()];
        group.all_gather(HostSlice::new(&own), HostSliceMut::new(&mut all))?;
        let parts = all.chunks_exact(longest).zip(lens);
        Ok(parts.map(|(part, len)| part[..len as usize].to_vec()).collect())
    }

    /// The metrics of all ranks together.
    pub(super) fn merged(&self, tally: &Tally) -> Result<Tally> {
        let mut merged = tally.clone();
        for metric in merged.metrics_mut() {
            let states = self.gather(&metric.state())?;
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
        let group = ranks.communicator();
        let config = &self.config;
        let (mut kinds, mut weights) = (DefaultHasher::new(), DefaultHasher::new());
        let buffers = self
            .model
            .named_buffers()
            .into_iter()
            .map(|(name, buffer)| (name, buffer.tensor()));
        let params = self
            .model
            .named_parameters()
            .into_iter()
            .map(|(name, param)| (name, param.tensor()));
        for (name, tensor) in params.chain(buffers) {
            let host = tensor.detach().to_host()?;
            (name, host.shape().dims(), host.dtype().name()).hash(&mut kinds);
            host.bytes().hash(&mut weights);
        }
        let names: Vec<&str> = config.metrics.iter().map(|metric| metric.name()).collect();
        let options = (
            config.accumulate,
            config.patience,
            config.log_every,
            config.checkpoint_every,
        );
        let norm = config.max_norm.map(f64::to_bits);
        let items = [
            ("a model of other parameters", kinds.finish()),
            ("a model of other weights", weights.finish()),
            (
                "other options of its trainer",
                hash(&(options, norm, names, &config.monitor)),
            ),
            ("other data", hash(&(train.examples(), train.batch_size()))),
            (
                "another place or seed in its data",
                hash(&{
                    let state = train.state();
                    (state.seed, state.epoch, state.position)
                }),
            ),
        ];
        let own = items.map(|(_, hash)| hash.cast_signed());
        let mut all = vec![0i64; own.len() * group.size()];
        group.all_gather(HostSlice::new(&own), HostSliceMut::new(&mut all))?;
        for (at, (what, _)) in items.iter().enumerate() {
            let of = |rank: usize| all[rank * own.len() + at];
            if let Some(rank) = (1..group.size()).find(|&rank| of(rank) != of(0)) {
                let message = format!("rank {rank} has {what} than rank 0");
                return Err(Error::new(ErrorKind::InvalidArgument, message)
                    .with_op("Trainer")
                    .with_hint(
                        "give every rank the same options, data and seed: manual_seed before the model is made",
                    ));
            }
        }
        Ok(())
    }

    /// Gives every rank the buffers of rank 0, as PyTorch does, and a stream of random numbers of its own that follows from rank 0's.
    pub(super) fn settle(&self) -> Result<()> {
        let Some(ranks) = &self.ranks else { return Ok(()) };
        let group = ranks.communicator();
        for (_, buffer) in self.model.named_buffers() {
            let value = group.broadcast_tensor(buffer.tensor().inner(), 0)?;
            buffer.set(&Tensor::from_inner(value))?;
        }
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

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
