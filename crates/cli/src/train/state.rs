//! The settings with which a run continues.

use polygrad::ErrorKind;
use polygrad::train::RunFolder;

use super::resumed;
use crate::failure::{Failure, Result, Shown};
use crate::progress::note;
use crate::run::config;
use crate::task::RunSettings;

/// The hint for a checkpoint from which a run cannot continue.
const ANEW: &str = "start a new run without --resume";

/// The settings in `config.json`, or those of the checkpoint if the process was killed before that file was written.
///
/// # Errors
/// A checkpoint that cannot be read, is damaged, or does not belong to a run; a settings file that cannot be read, is
/// damaged, or belongs to another run than the checkpoint.
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
                "{} is gone: the checkpoint's settings are used instead",
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

/// The error of a record, without the line and column, since the text is not in a file.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// The error for a checkpoint from which a run cannot continue.
fn unfit(folder: &RunFolder, what: &str) -> Failure {
    Failure::new(format!("cannot go on from {}: {what}", folder.checkpoint().shown())).fix(ANEW)
}
