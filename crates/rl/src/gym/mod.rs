//! Environments of Gymnasium, which step in separate Python processes.
//!
//! A process has one or more plain environments and steps them itself. It also resets them, so that the last
//! observation of an episode and both flags are available, regardless of how Gymnasium's vector environments reset.
//! Numbers are exchanged through a shared memory file, and a byte over a pipe signals that they are ready.

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

/// Prefix of the names of Gymnasium's environments.
pub const PREFIX: &str = "gym:";

/// How Python environments are made and supervised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GymConfig {
    /// The interpreter. Default: what the variable `POLYGRAD_PYTHON` names, else `python3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<PathBuf>,
    /// Keyword arguments of the environment's class, or of `gymnasium.make`. Default: none.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// Seconds after which a process that does not answer is killed. Default: 60.
    #[serde(default = "a_minute")]
    pub timeout: f64,
    /// The number of process failures that end the run, if no episode of its environments ends by itself in between.
    /// Earlier failures restart the process and truncate its episodes. Default: 3.
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
    /// Fails if a setting is invalid.
    ///
    /// # Errors
    /// The first invalid setting.
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

/// Finds the environment whose name follows [`PREFIX`]: `CartPole-v1` and all others that `gymnasium.make` knows,
/// `MODULE:ID` if a module registers it, or `FILE.py:CLASS`.
///
/// A Python process reports its properties. They are kept for the life of the program, so that each environment is
/// queried once.
///
/// # Errors
/// If Python or Gymnasium is missing, there is no such environment, or policies do not support its kind of observations
/// or actions; always on systems other than Unix.
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

/// The same on systems without such processes.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn find(name: &str, config: &GymConfig) -> Result<&'static EnvSpec> {
    config.check()?;
    let message = format!("{PREFIX}{name} would step in a Python process, which Polygrad has on Unix alone");
    Err(polygrad_core::Error::unsupported(message).with_hint("take Linux, macOS or WSL"))
}
