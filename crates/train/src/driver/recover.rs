//! Going on without a rank that is lost.

use std::sync::Arc;

use polygrad_core::communicator::{Communicator, HostSliceMut};
use polygrad_core::{Error, ErrorKind, Result};

use super::{Driver, Event, Learner};

/// What becomes of those who are left.
pub(super) enum Left {
    /// They go on.
    GoOn,
    /// They end: the engine does not let them go on, or nobody is lost.
    End,
    /// They end: what the lost rank alone had is needed, and there is no checkpoint.
    Miss(&'static str),
}

/// After an error of the communication: tries to go on until those who are left do, since another one may be lost
/// meanwhile.
///
/// # Errors
/// The error itself, where they cannot; what goes wrong beside.
pub(super) fn recovered(mut error: Error, mut attempt: impl FnMut() -> Result<Left>) -> Result<()> {
    loop {
        if error.kind() != ErrorKind::Communication {
            return Err(error);
        }
        match attempt() {
            Ok(Left::GoOn) => return Ok(()),
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
fn left(before: &dyn Communicator) -> Result<Option<Arc<dyn Communicator>>> {
    match before.shrink() {
        Ok(group) => Ok(Some(group).filter(|group| group.size() < before.size())),
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(None),
        Err(e) => Err(e),
    }
}

impl Driver {
    /// Agrees with those who are left on who they are, and goes on with them: all take the state of the one who has
    /// come furthest, or else go back to the last checkpoint.
    pub(super) fn try_recover(&mut self, learner: &mut dyn Learner) -> Result<Left> {
        let Some(before) = learner.communicator().cloned() else {
            return Ok(Left::End);
        };
        let Some(group) = left(&*before)? else {
            return Ok(Left::End);
        };
        if !learner.rejoin(&group)? {
            return Ok(Left::End);
        }
        let root = learner.catch_up()?;
        let is_taken_over = match &self.shared {
            Some(run) => run.take_over(&mut self.options, &*group)?,
            None if root.is_none() => return Ok(Left::Miss(learner.lost_part())),
            None => false,
        };
        let (place, notices) = match root {
            Some(root) => {
                self.best = share_best(&*group, self.best, root)?;
                if is_taken_over {
                    self.reopen()?;
                }
                self.save(learner)?;
                ("after", Vec::new())
            }
            None => {
                let (_, notices) = self.resume(learner)?;
                learner.ready()?;
                // For callbacks that write down steps, it is a beginning.
                self.tell(learner, Event::Begin)?;
                ("from the checkpoint of", notices)
            }
        };
        let (size, before, step) = (group.size(), before.size(), learner.steps());
        let notice = format!("{size} of {before} processes are left, and go on {place} step {step}");
        self.notify(learner, &[notice])?;
        self.notify(learner, &notices)?;
        Ok(Left::GoOn)
    }
}

/// The best score as rank `root` knows it.
fn share_best(group: &dyn Communicator, own: Option<f64>, root: usize) -> Result<Option<f64>> {
    let mut best = [own.unwrap_or(f64::NAN)];
    group.broadcast(HostSliceMut::new(&mut best), root)?;
    Ok(Some(best[0]).filter(|best| !best.is_nan()))
}
