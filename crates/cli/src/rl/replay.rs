//! Replay files: episodes as a seed and actions, with fingerprints of the observations.

use std::path::Path;

use polygrad::ErrorKind;
use polygrad::rl::Play;
use polygrad::rl::gym::GymConfig;
use polygrad::rl::zoo::EnvSpec;
use serde::{Deserialize, Serialize};

use super::settings;
use crate::failure::{Failure, Result, Shown};
use crate::run::atomic::AtomicFile;

/// Incremented if older programs could no longer read the file.
const FORMAT: u32 = 1;

/// Episodes of an environment, from the first on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Replay {
    format: u32,
    /// The version of Polygrad that wrote it.
    polygrad: String,
    environment: String,
    /// The Python options of the environment, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gym: Option<GymConfig>,
    pub(super) seed: u64,
    pub(super) episodes: Vec<Episode>,
}

/// The actions, and fingerprints of the results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Episode {
    /// For each step, the actions of all agents in order.
    pub(super) actions: Vec<Vec<f32>>,
    /// Fingerprints of observations and returns in hexadecimal digits: at the beginning and after each step.
    seen: Vec<String>,
    /// The final return of each agent.
    returns: Vec<f64>,
}

impl Replay {
    /// An empty recording of play in an environment with this seed.
    pub(super) fn new(environment: &str, gym: Option<&GymConfig>, seed: u64) -> Self {
        Self {
            format: FORMAT,
            polygrad: env!("CARGO_PKG_VERSION").to_owned(),
            environment: environment.to_owned(),
            gym: gym.cloned(),
            seed,
            episodes: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or that is no replay file.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let bad = |what: String| {
            Failure::new(format!("{} is no replay file: {what}", path.shown()))
                .fix("give one that `polygrad play RUN --record FILE` wrote")
        };
        let text = std::fs::read(path).map_err(|e| Failure::io("read", path, &e))?;
        let replay: Self = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        if replay.format != FORMAT {
            let version = env!("CARGO_PKG_VERSION");
            return Err(bad(format!(
                "its format is {}, Polygrad {version} reads {FORMAT}",
                replay.format
            )));
        }
        if replay.episodes.is_empty() {
            return Err(bad("it has no episode".to_owned()));
        }
        match replay
            .episodes
            .iter()
            .all(|episode| episode.seen.len() == episode.actions.len() + 1)
        {
            true => Ok(replay),
            false => Err(bad("it lacks what was seen of some steps".to_owned())),
        }
    }

    /// Writes it atomically.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.shown())))?;
        let mut file = AtomicFile::create(path)?;
        file.append(text.as_bytes())?;
        file.append(b"\n")?;
        file.commit()
    }

    /// Its environment.
    ///
    /// # Errors
    /// If there is none of this name.
    pub(super) fn spec(&self) -> Result<&'static EnvSpec> {
        settings::open(&self.environment, self.gym.as_ref())
    }

    /// Records the current state of a play; a state without steps before it begins another episode.
    pub(super) fn take(&mut self, play: &Play<'_>) {
        match play.steps() {
            0 => self.episodes.push(Episode::default()),
            _ => {
                let episode = self.episodes.last_mut();
                episode
                    .into_iter()
                    .for_each(|episode| episode.actions.push(play.actions().to_vec()));
            }
        }
        if let Some(episode) = self.episodes.last_mut() {
            episode.seen.push(mark(play));
            episode.returns = play.returns().to_vec();
        }
    }

    /// Takes the next recorded step of an episode, and returns whether it ended the episode.
    ///
    /// # Errors
    /// An action that is none of the environment; failures of the environment.
    pub(super) fn step(&self, episode: usize, play: &mut Play<'_>) -> Result<bool> {
        let at = play.steps();
        play.step_by(&self.episodes[episode].actions[at])
            .map_err(|error| match error.kind() {
                ErrorKind::InvalidArgument => {
                    Failure::new(format!("episode {}, step {}: {error}", episode + 1, at + 1))
                        .fix("give a file as `polygrad play RUN --record FILE` wrote it")
                }
                _ => error.into(),
            })
    }

    /// Fails unless a state of an episode equals the recorded one, and the episode ends where the recorded one did.
    ///
    /// # Errors
    /// A difference from the recording.
    pub(super) fn check(&self, episode: usize, play: &Play<'_>, ended: bool) -> Result<()> {
        let step = play.steps();
        let known = &self.episodes[episode];
        let what = if known.seen.get(step) != Some(&mark(play)) {
            "observations or rewards are others"
        } else if ended != (step == known.actions.len()) {
            "the episode ends elsewhere"
        } else {
            return Ok(());
        };
        Err(Failure::new(format!(
            "episode {}, step {step}: {what} than when Polygrad {} recorded it",
            episode + 1,
            self.polygrad
        ))
        .fix("replay it on the system, and with the environment, with which it was recorded"))
    }
}

fn mark(play: &Play<'_>) -> String {
    format!("{:016x}", play.fingerprint())
}
