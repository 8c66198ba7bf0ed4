//! Going on without a rank that is lost.

use std::sync::Arc;

use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut};
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_data::DataLoader;
use polygrad_nn::Module;

use super::ranks::share;
use super::{Event, Trainer};
use crate::run::Mark;

/// How far a rank has come: steps, epochs, whether the last epoch has been evaluated; and what else all have to agree on: whether somebody wants to stop.
type Stand = [i64; 4];

/// What becomes of those who are left.
pub(super) enum Left<T> {
    /// They go on.
    GoOn(T),
    /// They end: the engine does not let them go on, or nobody is lost.
    End,
    /// They end: this was the lost rank's alone, and there is no checkpoint.
    Miss(&'static str),
}

/// After an error of the communication: tries to go on until those who are left do, since another one may be lost meanwhile.
///
/// # Errors
/// The error itself, where they cannot; what goes wrong beside.
pub(super) fn recovered<T>(mut error: Error, mut attempt: impl FnMut() -> Result<Left<T>>) -> Result<T> {
    loop {
        if error.kind() != ErrorKind::Communication {
            return Err(error);
        }
        match attempt() {
            Ok(Left::GoOn(found)) => return Ok(found),
            Ok(Left::End) => return Err(error),
            Ok(Left::Miss(what)) => {
                let message = format!("{}, and {what} is gone", error.message());
                return Err(Error::communication(message).with_source(error).with_hint(
                    "with a run folder (TrainerConfig::run, --out) those who are left go on from its last checkpoint",
                ));
            }
            Err(next) => error = next,
        }
    }
}

/// The group of those who are left, if somebody is lost and the engine lets the others go on.
pub(super) fn left(before: &dyn Communicator) -> Result<Option<Arc<dyn Communicator>>> {
    match before.shrink() {
        Ok(group) => Ok(Some(group).filter(|group| group.size() < before.size())),
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(None),
        Err(e) => Err(e),
    }
}

/// What is told of those who are left.
pub(super) fn notice(before: &dyn Communicator, group: &dyn Communicator, place: &str, step: u64) -> String {
    let (size, before) = (group.size(), before.size());
    format!("{size} of {before} processes are left, and go on {place} step {step}")
}

/// Where they go on that have lost nothing, and that have.
pub(super) const AFTER: &str = "after";
pub(super) const FROM_CHECKPOINT: &str = "from the checkpoint of";

impl<M: Module + 'static, T: Send + 'static> Trainer<M, T> {
    /// After an error of the communication: agrees with those who are left on who they are, and goes on with them. Where the optimizer has all of its
    /// state, all take that of the one who has come furthest, and share the data anew from the last step that was taken on; else all go back
    /// to the last checkpoint. Gives whether somebody wants to stop.
    ///
    /// # Errors
    /// The error itself, where the engine cannot go on without a rank, or none is lost; what goes wrong beside.
    pub(super) fn recover(&mut self, train: &DataLoader<T>, error: Error) -> Result<bool> {
        recovered(error, || self.try_recover(train))
    }

    fn try_recover(&mut self, train: &DataLoader<T>) -> Result<Left<bool>> {
        let Some(ranks) = &mut self.ranks else {
            return Ok(Left::End);
        };
        let before = ranks.communicator();
        let Some(group) = left(&*before)? else {
            return Ok(Left::End);
        };
        ranks.rejoin(&group)?;
        ranks.sync_again(&*self.model)?;
        let own: Stand = [
            self.step.cast_signed(),
            self.committed.epoch.cast_signed(),
            i64::from(!self.unfinished),
            i64::from(*ranks.agreed()),
        ];
        let mut all = vec![0i64; own.len() * group.size()];
        group.all_gather(HostSlice::new(&own), HostSliceMut::new(&mut all))?;
        let (stands, _) = all.as_chunks::<4>();
        *ranks.agreed() = stands.iter().any(|stand| stand[3] != 0);
        let mut stop = *ranks.agreed();
        let is_whole = self.stepper.optimizer_mut().rejoin(&group)?;
        if !is_whole && ranks.run.is_none() {
            return Ok(Left::Miss("its part of the optimizer's moments"));
        }
        self.take_part(train, true)?;
        let (place, notices) = match is_whole {
            true => {
                self.catch_up(train, stands)?;
                (AFTER, Vec::new())
            }
            false => (FROM_CHECKPOINT, self.go_back(train)?),
        };
        let notice = notice(&*before, &*group, place, self.step);
        for notice in [notice].iter().chain(&notices) {
            stop |= self.tell(train, Event::Notice(notice))?;
        }
        Ok(Left::GoOn(stop))
    }

    /// Takes the state of the rank that has come furthest.
    fn catch_up(&mut self, train: &DataLoader<T>, stands: &[Stand]) -> Result<()> {
        let furthest = |stand: &Stand| (stand[0], stand[1], stand[2]);
        let leader = stands.iter().map(furthest).max().unwrap_or_default();
        let root = stands.iter().position(|stand| furthest(stand) == leader).unwrap_or(0);
        train.set_state(self.committed);
        if stands.iter().any(|stand| furthest(stand) != leader) {
            self.follow(train, root)?;
        }
        self.unfinished = leader.2 == 0;
        // Ranks may differ in whether its row was written.
        self.row.reset();
        self.settle()?;
        if self.take_over()? {
            self.reopen()?;
        }
        self.save(train)
    }

    /// Goes back to the last checkpoint; gives what the user should know.
    fn go_back(&mut self, train: &DataLoader<T>) -> Result<Vec<String>> {
        self.take_over()?;
        let (_, notices) = self.resume(train)?;
        self.committed = train.state();
        self.running = self.committed.epoch + 1;
        self.unfinished = false;
        self.settle()?;
        // For callbacks that write down steps, it is a beginning.
        self.tell(train, Event::Begin)?;
        Ok(notices)
    }

    /// Keeps the run from now on, if this has become the first rank; whether it has.
    fn take_over(&mut self) -> Result<bool> {
        let Some(ranks) = &self.ranks else { return Ok(false) };
        match &ranks.run {
            Some(run) => run.take_over(&mut self.config, &*ranks.communicator()),
            None => Ok(false),
        }
    }

    /// Takes the state of rank `root`.
    fn follow(&mut self, train: &DataLoader<T>, root: usize) -> Result<()> {
        let Some(ranks) = &self.ranks else { return Ok(()) };
        let is_root = ranks.communicator().rank() == root;
        let own = match is_root {
            true => Some(self.snapshot(train, self.epoch.state(), self.row.state(), Mark::default())?),
            false => None,
        };
        let checkpoint = share(&*ranks.communicator(), own, root)?;
        if is_root {
            return Ok(());
        }
        let record = self.record(&checkpoint)?;
        self.epoch.adopt(&record.epoch);
        self.restore(train, &checkpoint, &record)?;
        self.committed = train.state();
        Ok(())
    }
}
