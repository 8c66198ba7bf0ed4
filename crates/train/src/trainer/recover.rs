//! Going on without a rank that is lost.

use polygrad_core::communicator::{HostSlice, HostSliceMut};
use polygrad_core::{ErrorKind, Result};
use polygrad_data::DataLoader;
use polygrad_nn::Module;

use super::ranks::share;
use super::{Event, Trainer};
use crate::run::Mark;

/// How far a rank has come: steps, epochs, whether the last epoch has been evaluated; and what else all have to agree on: whether somebody wants to stop.
type Stand = [i64; 4];

impl<M: Module + 'static, T: Send + 'static> Trainer<M, T> {
    /// After an error of the communication: agrees with those who are left on who they are, takes the state of the one who has come furthest, and
    /// shares the data anew, from the last step that was taken on. Gives whether somebody wants to stop.
    ///
    /// # Errors
    /// The error itself, where the engine cannot go on without a rank, or none is lost; what goes wrong beside.
    pub(super) fn recover(&mut self, train: &DataLoader<T>, error: polygrad_core::Error) -> Result<bool> {
        let mut error = error;
        loop {
            if error.kind() != ErrorKind::Communication {
                return Err(error);
            }
            // Another one may be lost meanwhile.
            match self.try_recover(train) {
                Ok(Some(stop)) => return Ok(stop),
                Ok(None) => return Err(error),
                Err(next) => error = next,
            }
        }
    }

    fn try_recover(&mut self, train: &DataLoader<T>) -> Result<Option<bool>> {
        let Some(ranks) = &mut self.ranks else {
            return Ok(None);
        };
        let before = ranks.communicator();
        let group = match before.shrink() {
            Ok(group) => group,
            Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(None),
            Err(e) => return Err(e),
        };
        if group.size() >= before.size() {
            return Ok(None);
        }
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
        let stop = stands.iter().any(|stand| stand[3] != 0);
        *ranks.agreed() = stop;
        let furthest = |stand: &&Stand| (stand[0], stand[1], stand[2]);
        let leader = stands.iter().map(|stand| furthest(&stand)).max().unwrap_or_default();
        let root = stands.iter().position(|stand| furthest(&stand) == leader).unwrap_or(0);
        train.set_state(self.committed);
        if stands.iter().any(|stand| furthest(&stand) != leader) {
            self.follow(train, root)?;
        }
        self.unfinished = leader.2 == 0;
        // Ranks may differ in whether its row was written.
        self.row.reset();
        self.take_part(train, true)?;
        self.settle()?;
        let run = self.ranks.as_ref().and_then(|ranks| ranks.run.clone());
        if let (0, None, Some(run)) = (group.rank(), &self.config.run, run) {
            self.take_over(run)?;
        }
        self.save(train)?;
        let notice = format!(
            "{} of {} processes are left, and go on after step {}",
            group.size(),
            before.size(),
            self.step
        );
        Ok(Some(self.tell(train, Event::Notice(&notice))?))
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
