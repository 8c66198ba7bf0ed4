//! What a run goes on from: its checkpoint, and the settings that go with it.

use polygrad::ErrorKind;
use polygrad::nn::Checkpoint;

use super::position::Record;
use super::settings;
use crate::failure::{Failure, Result, Shown};
use crate::progress::note;
use crate::run::RunFolder;
use crate::run::config::Config;

/// A run's checkpoint.
pub(super) struct State {
    /// Weights, moments, step and generator.
    pub(super) checkpoint: Checkpoint,
    /// All else.
    pub(super) record: Record,
}

/// What to do about a checkpoint that cannot be gone on from.
const ANEW: &str = "start a new run without --resume";

impl State {
    /// Reads the checkpoint of the run in `folder`.
    ///
    /// # Errors
    /// One that cannot be read, is damaged, or is none of a run.
    pub(super) fn load(folder: &RunFolder) -> Result<Self> {
        let path = folder.checkpoint();
        let checkpoint = Checkpoint::load(&path).map_err(|error| match error.kind() {
            ErrorKind::Format => Failure::from(error).fix(ANEW),
            _ => error.into(),
        })?;
        let record: Record = serde_json::from_value(checkpoint.config.clone())
            .map_err(|e| e.to_string())
            .and_then(|record: Record| record.config.check().map(|()| record))
            .map_err(|e| unfit(folder, &format!("its record is damaged ({e})")))?;
        Ok(Self { checkpoint, record })
    }

    /// The settings in `config.json`, or, where a kill came before it was written, those of the checkpoint.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged, or that is another run's than the checkpoint.
    pub(super) fn settings(&self, folder: &RunFolder) -> Result<Config> {
        let path = folder.config();
        if !path.exists() {
            if self.checkpoint.step > 0 {
                note(&format!(
                    "{} is gone: the checkpoint's settings are taken",
                    path.shown()
                ));
            }
            return Ok(self.record.config.clone());
        }
        let stored = Config::load(&path)
            .map_err(|e| e.fix("mend the file, or move it away: then the checkpoint's settings are taken"))?;
        match settings::disagreements(&self.record.config, &stored).as_slice() {
            [] => Ok(stored),
            found => Err(unfit(folder, &found.join("; ")).fix(format!("restore config.json, or {ANEW}"))),
        }
    }
}

/// A checkpoint that cannot be gone on from.
pub(super) fn unfit(folder: &RunFolder, what: &str) -> Failure {
    Failure::new(format!("cannot go on from {}: {what}", folder.checkpoint().shown())).fix(ANEW)
}
