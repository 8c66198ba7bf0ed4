//! Recovery after the loss of a rank.

use std::sync::Arc;

use polygrad_core::communicator::{Communicator, HostSliceMut};
use polygrad_core::{Error, ErrorKind, Result};

use super::{Driver, Event, Learner};

/// How the remaining ranks go on.
pub(super) enum Left {
    /// They continue.
    GoOn,
    /// They end: the engine does not let them continue, or no rank is lost.
    End,
    /// They end: they need state that only the lost rank had, and there is no checkpoint.
    Miss(&'static str),
}

/// After a communication error: retries until the remaining ranks continue, since further ranks may be lost meanwhile.
///
/// # Errors
/// The original error if they cannot continue; other errors of the attempt.
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

/// The group of the remaining ranks, if a rank is lost and the engine lets the others continue.
fn left(before: &dyn Communicator) -> Result<Option<Arc<dyn Communicator>>> {
    match before.shrink() {
        Ok(group) => Ok(Some(group).filter(|group| group.size() < before.size())),
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(None),
        Err(e) => Err(e),
    }
}

impl Driver {
    /// Agrees with the remaining ranks on the new group, and continues with them: all take the state of the most
    /// advanced rank, or else go back to the last checkpoint.
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
                // A new beginning for callbacks that log steps.
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

/// The best score according to rank `root`.
fn share_best(group: &dyn Communicator, own: Option<f64>, root: usize) -> Result<Option<f64>> {
    let mut best = [own.unwrap_or(f64::NAN)];
    group.broadcast(HostSliceMut::new(&mut best), root)?;
    Ok(Some(best[0]).filter(|best| !best.is_nan()))
}
