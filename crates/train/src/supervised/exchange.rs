//! Communication with other processes in a step: none, or sums of gradients and figures over all of them.

use std::borrow::Cow;
use std::sync::Arc;

use polygrad_core::communicator::{Communicator, HostSliceMut, Reduction};
use polygrad_core::{Result, Rng};
use polygrad_nn::{GradientSync, Module, SyncGroup, sync_batch_norm};
use polygrad_tensor::{GeneratorState, Gradients};

use super::Step;
use super::accumulated::Accumulated;
use super::tally::Tally;
use crate::parallel::DataParallel;

/// The result of an optimizer step: a loss, and the outputs that the metrics compare.
pub(super) type Shared = (f64, Vec<Step>);

/// The other processes of a training.
pub(super) trait Exchange {
    /// The group, if there are other processes.
    fn communicator(&self) -> Option<&Arc<dyn Communicator>>;

    /// Receives the gradients of a backward pass.
    fn sync(&self) -> Option<Arc<dyn GradientSync>>;

    /// Announces the next batch with its weight: this process has `own` of its `examples`, and `is_full` is whether the
    /// optimizer's step follows.
    fn enter(&mut self, own: u64, examples: u64, weight: f64, is_full: bool);

    /// Adds the results of the backward pass over the announced batch. Returns its loss and outputs, unless these are
    /// combined over all processes in [`Exchange::land`].
    fn add(&mut self, sum: &mut Accumulated, step: Step, gradients: Gradients, weight: f64) -> Result<Option<Shared>>;

    /// Before the optimizer's step: puts the gradients summed over all processes into `sum`. Returns the sum of the
    /// losses and this process's outputs, if [`Exchange::add`] returned none. If `is_full` is false, the step has fewer
    /// batches than usual.
    fn land(&mut self, sum: &mut Accumulated, is_full: bool) -> Result<Option<Shared>>;

    /// Whether a process wants to stop, as far as all processes know; `wish` is whether this one does, which all will
    /// know after the next step.
    fn stops(&mut self, wish: bool) -> bool;

    /// Sets whether all processes know that one wants to stop.
    fn agree(&mut self, stops: bool);

    /// Sums over all processes.
    fn sums(&self, numbers: [f64; 2]) -> Result<[f64; 2]>;

    /// The figures of all processes together.
    fn merged<'a>(&self, tally: &'a Tally) -> Result<Cow<'a, Tally>>;

    /// Fails if the processes cannot train one model; `others` is what else must be the same on all.
    fn check(&self, model: &dyn Module, others: &dyn Fn() -> Vec<(&'static str, String)>) -> Result<()>;

    /// Finds the group over which the model's batch normalisations are synchronized, if they are.
    fn find_sync(&mut self, model: &dyn Module);

    /// Gives every process the buffers of the first, as PyTorch does, and a separate stream of random numbers derived
    /// from the first one's.
    fn settle(&self, model: &dyn Module) -> Result<()>;

    /// Continues with the remaining processes.
    fn rejoin(&mut self, group: &Arc<dyn Communicator>, model: &dyn Module) -> Result<()>;
}

/// This process alone.
#[derive(Default)]
pub(super) struct Alone;

/// The other processes of a group.
pub(super) struct Group {
    parallel: Arc<DataParallel>,
    communicator: Arc<dyn Communicator>,
    /// Whether this process wants to stop, and whether all processes know that one does.
    wishes: bool,
    agreed: bool,
    /// The group over which the model's batch normalisations are synchronized, if they are.
    sync: Option<Arc<SyncGroup>>,
    /// Whether it has examples of the announced batch, and not only padding.
    has_part: bool,
    /// Outputs that are added to the figures once the gradients of all processes have arrived.
    pending: Vec<Step>,
}

impl Exchange for Alone {
    fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        None
    }

    fn sync(&self) -> Option<Arc<dyn GradientSync>> {
        None
    }

    fn enter(&mut self, _own: u64, _examples: u64, _weight: f64, _is_full: bool) {}

    fn add(&mut self, sum: &mut Accumulated, step: Step, gradients: Gradients, weight: f64) -> Result<Option<Shared>> {
        let loss = step.loss.item()?;
        sum.add(gradients, weight)?;
        Ok(Some((loss, vec![step])))
    }

    fn land(&mut self, _sum: &mut Accumulated, _is_full: bool) -> Result<Option<Shared>> {
        Ok(None)
    }

    fn stops(&mut self, wish: bool) -> bool {
        wish
    }

    fn agree(&mut self, _stops: bool) {}

    fn sums(&self, numbers: [f64; 2]) -> Result<[f64; 2]> {
        Ok(numbers)
    }

    fn merged<'a>(&self, tally: &'a Tally) -> Result<Cow<'a, Tally>> {
        Ok(Cow::Borrowed(tally))
    }

    fn check(&self, _model: &dyn Module, _others: &dyn Fn() -> Vec<(&'static str, String)>) -> Result<()> {
        Ok(())
    }

    fn find_sync(&mut self, _model: &dyn Module) {}

    fn settle(&self, _model: &dyn Module) -> Result<()> {
        Ok(())
    }

    fn rejoin(&mut self, _group: &Arc<dyn Communicator>, _model: &dyn Module) -> Result<()> {
        Ok(())
    }
}

impl Group {
    pub(super) fn new(parallel: Arc<DataParallel>) -> Self {
        Self {
            communicator: parallel.communicator(),
            parallel,
            wishes: false,
            agreed: false,
            sync: None,
            has_part: false,
            pending: Vec::new(),
        }
    }
}

impl Exchange for Group {
    fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        Some(&self.communicator)
    }

    fn sync(&self) -> Option<Arc<dyn GradientSync>> {
        Some(Arc::clone(&self.parallel) as _)
    }

    fn enter(&mut self, own: u64, examples: u64, weight: f64, is_full: bool) {
        let part = own as f64 / examples.max(1) as f64;
        if let Some(sync) = &self.sync {
            sync.set_weight(part);
        }
        self.parallel.set_round(part * weight, is_full, self.wishes);
        self.has_part = own > 0;
    }

    fn add(&mut self, sum: &mut Accumulated, step: Step, gradients: Gradients, _weight: f64) -> Result<Option<Shared>> {
        if self.has_part {
            self.pending.push(step);
        }
        // All processes accumulate them together.
        sum.set(gradients);
        Ok(None)
    }

    fn land(&mut self, sum: &mut Accumulated, is_full: bool) -> Result<Option<Shared>> {
        if !is_full {
            self.parallel.flush()?;
        }
        let reduced = self.parallel.reduced()?;
        self.agreed |= reduced.stops;
        sum.set(reduced.gradients);
        Ok(Some((reduced.loss, std::mem::take(&mut self.pending))))
    }

    fn stops(&mut self, wish: bool) -> bool {
        self.wishes |= wish;
        self.agreed
    }

    fn agree(&mut self, stops: bool) {
        self.agreed = stops;
    }

    fn sums(&self, mut numbers: [f64; 2]) -> Result<[f64; 2]> {
        self.communicator
            .all_reduce(HostSliceMut::new(&mut numbers), Reduction::Sum)?;
        Ok(numbers)
    }

    fn merged<'a>(&self, tally: &'a Tally) -> Result<Cow<'a, Tally>> {
        let mut merged = tally.clone();
        for metric in merged.metrics_mut() {
            let states = self.communicator.all_gather_vec(&metric.state())?;
            metric.reset();
            states.iter().try_for_each(|state| metric.merge(state))?;
        }
        Ok(Cow::Owned(merged))
    }

    fn check(&self, model: &dyn Module, others: &dyn Fn() -> Vec<(&'static str, String)>) -> Result<()> {
        let checked = self.parallel.check_ranks(model, &others());
        checked.map_err(|error| error.with_op("Trainer"))
    }

    fn find_sync(&mut self, model: &dyn Module) {
        self.sync = SyncGroup::of(model);
    }

    fn settle(&self, model: &dyn Module) -> Result<()> {
        self.parallel.broadcast_buffers(model)?;
        let own = GeneratorState::current();
        let mut state = [own.seed.cast_signed(), own.offset.cast_signed()];
        self.communicator.broadcast(HostSliceMut::new(&mut state), 0)?;
        let [seed, offset] = state.map(i64::cast_unsigned);
        let seed = match self.communicator.rank() {
            0 => seed,
            rank => Rng::at(seed, rank as u64).next_u64(),
        };
        GeneratorState { seed, offset }.restore();
        Ok(())
    }

    fn rejoin(&mut self, group: &Arc<dyn Communicator>, model: &dyn Module) -> Result<()> {
        self.parallel.rejoin(group)?;
        self.communicator = Arc::clone(group);
        self.pending.clear();
        if self.sync.is_some() {
            sync_batch_norm(model, &**group)?;
            self.find_sync(model);
        }
        Ok(())
    }
}
