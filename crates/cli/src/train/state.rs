//! The settings that a run goes on with.

use polygrad::ErrorKind;
use polygrad::train::RunFolder;

use super::resumed;
use crate::failure::{Failure, Result, Shown};
use crate::progress::note;
use crate::run::config;
use crate::task::RunSettings;

/// What to do about a checkpoint that cannot be gone on from.
const ANEW: &str = "start a new run without --resume";

/// The settings in `config.json`, or, where a kill came before it was written, those of the checkpoint.
///
/// # Errors
/// A checkpoint that cannot be read, is damaged, or is none of a run; a file of settings that cannot be read or is
/// damaged, or that is another run's than the checkpoint.
pub(crate) fn settings<T: RunSettings>(folder: &RunFolder) -> Result<T> {
    let stored = folder.settings().map_err(|error| match error.kind() {
        ErrorKind::Format => Failure::from(error).fix(ANEW),
        _ => error.into(),
    })?;
    config::must_be_ours(folder.path(), &stored)?;
    let known: T = config::parsed(&stored.to_string())
        .map_err(|e| without_place(&e))
        .and_then(|known: T| config::check(&known).map(|()| known))
        .map_err(|e| unfit(folder, &format!("its record is damaged ({e})")))?;
    let path = folder.config();
    if !path.exists() {
        if folder.metrics().exists() {
            note(&format!(
                "{} is gone: the checkpoint's settings are taken",
                path.shown()
            ));
        }
        return Ok(known);
    }
    let stored = config::load(&path)
        .map_err(|e| e.fix("mend the file, or move it away: then the checkpoint's settings are taken"))?;
    match resumed::disagreements(&known, &stored).as_slice() {
        [] => Ok(stored),
        found => Err(unfit(folder, &found.join("; ")).fix(format!("restore config.json, or {ANEW}"))),
    }
}

/// What is wrong with a record, without the place in a text that no file has.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// A checkpoint that cannot be gone on from.
fn unfit(folder: &RunFolder, what: &str) -> Failure {
    Failure::new(format!("cannot go on from {}: {what}", folder.checkpoint().shown())).fix(ANEW)
}
