//! Environments of Gymnasium, which step in Python processes of their own.
//!
//! A process has one environment or several, and steps plain ones: it resets them itself, so that the last observation
//! of an episode and both flags are there, however Gymnasium's vector environments would reset. Numbers go through a
//! file in memory that both sides see, and a byte over a pipe says that they are there.

#[cfg(unix)]
mod envs;
mod hello;
#[cfg(unix)]
mod memory;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod scene;
#[cfg(unix)]
mod worker;

use std::path::PathBuf;

use polygrad_core::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::zoo::EnvSpec;

/// What the name of an environment begins with that is Gymnasium's.
pub const PREFIX: &str = "gym:";

/// How environments of Python are made and watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GymConfig {
    /// The interpreter. Default: what the variable `POLYGRAD_PYTHON` names, else `python3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<PathBuf>,
    /// What the environment is made with: keyword arguments of its class, or of `gymnasium.make`. Default: nothing.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// Seconds after which a process that does not answer is ended. Default: 60.
    #[serde(default = "a_minute")]
    pub timeout: f64,
    /// How many failures of a process end the run, if no episode of its environments ends by itself between them.
    /// Before that it is started anew, and its episodes are truncated. Default: 3.
    #[serde(default = "three")]
    pub max_failures: usize,
}

fn a_minute() -> f64 {
    60.0
}

fn three() -> usize {
    3
}

impl Default for GymConfig {
    fn default() -> Self {
        Self {
            python: None,
            args: Map::new(),
            timeout: a_minute(),
            max_failures: three(),
        }
    }
}

impl GymConfig {
    /// Fails where a setting makes no sense.
    ///
    /// # Errors
    /// The first such setting.
    pub fn check(&self) -> Result<()> {
        use polygrad_core::Error;
        if !(self.timeout > 0.0 && self.timeout <= 1e6) {
            let message = format!("a timeout of {} s makes no sense", self.timeout);
            return Err(Error::invalid(message).with_hint("take some seconds, a million at most"));
        }
        if self.max_failures == 0 {
            return Err(Error::invalid("max_failures is 0").with_hint("1 ends the run at the first failure"));
        }
        Ok(())
    }
}

/// The environment of a name behind [`PREFIX`]: `CartPole-v1` and all that `gymnasium.make` knows, `MODULE:ID` where a
/// module registers it, or `FILE.py:CLASS`.
///
/// A Python process is asked what it is like. What was found stays for the life of the program, so that each
/// environment is asked once.
///
/// # Errors
/// Without Python or Gymnasium, when there is no such environment, or when its observations or actions are of a kind
/// that policies do not have; on systems other than Unix.
#[cfg(unix)]
pub fn find(name: &str, config: &GymConfig) -> Result<&'static EnvSpec> {
    use std::sync::{Mutex, PoisonError};

    static KNOWN: Mutex<Vec<(String, GymConfig, &'static EnvSpec)>> = Mutex::new(Vec::new());
    config.check()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, _, spec)) = known.iter().find(|(own, made, _)| own == name && made == config) {
        return Ok(spec);
    }
    let spec: &'static EnvSpec = Box::leak(Box::new(envs::Source::new(name, config)?.describe()));
    known.push((name.to_owned(), config.clone(), spec));
    Ok(spec)
}

/// The same where there are no such processes.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn find(name: &str, config: &GymConfig) -> Result<&'static EnvSpec> {
    config.check()?;
    let message = format!("{PREFIX}{name} would step in a Python process, which Polygrad has on Unix alone");
    Err(polygrad_core::Error::unsupported(message).with_hint("take Linux, macOS or WSL"))
}
