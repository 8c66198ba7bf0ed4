//! A run shared by several processes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use polygrad_core::communicator::{Communicator, HostSliceMut};
use polygrad_core::{Error, Result};
use polygrad_nn::Checkpoint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::RunOptions;
use crate::Run;

/// How long to wait for the lock of a lost process to be released.
const RELEASED: Duration = Duration::from_secs(2);

/// What rank 0 finds in its folder when training begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// No folder, or one that is already open.
    Nothing,
    /// A folder for a new run.
    New,
    /// The checkpoint of a run.
    Run,
}

/// The location of rank 0's run, so that another rank can take it over.
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
    /// The content of a run's folder.
    pub(super) fn of(run: Option<&Run>) -> Self {
        match run {
            None => Self::Nothing,
            Some(run) if run.checkpoint().exists() => Self::Run,
            Some(_) => Self::New,
        }
    }

    /// Rank 0's finding, on all ranks.
    pub(super) fn agreed(self, group: &dyn Communicator) -> Result<Self> {
        let mut code = [self as i64];
        group.broadcast(HostSliceMut::new(&mut code), 0)?;
        let known = [Self::Nothing, Self::New, Self::Run];
        let found = known.into_iter().find(|found| *found as i64 == code[0]);
        found.ok_or_else(unknown)
    }
}

impl SharedRun {
    /// The run that rank 0 keeps; `config` are this process's options.
    pub(super) fn agreed(config: &RunOptions, group: &dyn Communicator) -> Result<Self> {
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

    /// Gives the run to this process's options if it is rank 0 and does not keep it yet; returns whether it did.
    pub(super) fn take_over(&self, config: &mut RunOptions, group: &dyn Communicator) -> Result<bool> {
        if group.rank() > 0 || config.run.is_some() {
            return Ok(false);
        }
        // The lock of a process that has just ended may still exist.
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

/// Sends the checkpoint of rank `root` to the others.
pub(crate) fn share(group: &dyn Communicator, checkpoint: Option<Checkpoint>, root: usize) -> Result<Checkpoint> {
    let bytes = checkpoint.as_ref().map_or(Ok(Vec::new()), Checkpoint::to_bytes)?;
    let bytes = group.broadcast_vec(bytes, root)?;
    checkpoint.map_or_else(|| Checkpoint::from_bytes(&bytes), Ok)
}
