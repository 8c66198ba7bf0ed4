//! The saved state of environments. An episode depends only on its seed and actions, so that these suffice.

use polygrad_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::shard::{Spaces, is_in};
use crate::hash::Hash;

/// The most actions of an episode that are kept, so that an endless episode does not need endless memory.
pub(super) const MOST_STEPS: u64 = 1 << 17;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    agents: usize,
    /// A hash of the spaces.
    spaces: u64,
    pub(super) seed: u64,
    pub(super) episodes: Vec<Episode>,
}

/// The running episode of one environment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Episode {
    pub(super) number: u64,
    pub(super) steps: u64,
    /// `[steps, agents, action_space().len()]`.
    pub(super) actions: Vec<f32>,
    /// A hash of the last observation, and of the generator.
    pub(super) seen: u64,
}

impl Spaces {
    fn hash(&self) -> u64 {
        let text = format!("{:?} {:?} {}", self.observation, self.action, self.mask_len);
        Hash::new().add_all(text.bytes().map(u64::from)).value()
    }
}

impl Saved {
    pub(super) fn new(agents: usize, spaces: &Spaces, seed: u64, episodes: Vec<Episode>) -> Self {
        Self {
            agents,
            spaces: spaces.hash(),
            seed,
            episodes,
        }
    }

    /// Checks whether it is of such environments.
    pub(super) fn check(&self, num_envs: usize, agents: usize, spaces: &Spaces) -> Result<()> {
        let fail = |message: String| Err(Error::new(ErrorKind::StateDict, message).with_hint(HINT));
        if (self.episodes.len(), self.agents) != (num_envs, agents) {
            let (envs, others) = (self.episodes.len(), self.agents);
            return fail(format!(
                "the state is of {envs} environments of {others} agents, here are {num_envs} of {agents}"
            ));
        }
        if self.spaces != spaces.hash() {
            return fail("the state is of environments with other spaces or masks".to_owned());
        }
        let width = (agents * spaces.action.len()) as u64;
        for (index, episode) in self.episodes.iter().enumerate() {
            let (numbers, steps) = (episode.actions.len() as u64, episode.steps);
            if episode.number > u64::from(u32::MAX) || steps > MOST_STEPS || numbers != steps * width {
                return fail(format!(
                    "the state of environment {index} has {numbers} numbers of actions for {steps} steps of episode {}",
                    episode.number
                ));
            }
            let mut actions = episode.actions.chunks(spaces.action.len().max(1));
            if let Some(action) = actions.find(|action| !is_in(&spaces.action, action)) {
                return fail(format!("the state of environment {index} has the action {action:?}"));
            }
        }
        Ok(())
    }
}

const HINT: &str = "take a state that was saved whole, and make the environments as they were then";

/// Reads a saved state; the error says what is wrong with it.
pub(crate) fn read<'a, T: Deserialize<'a>>(what: &str, state: &'a serde_json::Value) -> Result<T> {
    T::deserialize(state).map_err(|error| {
        let message = format!("the state of {what} cannot be read: {error}");
        Error::new(ErrorKind::Format, message).with_hint(HINT)
    })
}

/// Converts a state to a value to be saved.
pub(crate) fn write<T: Serialize>(what: &str, state: &T) -> Result<serde_json::Value> {
    serde_json::to_value(state).map_err(|error| {
        let message = format!("the state of {what} cannot be written: {error}");
        Error::new(ErrorKind::Format, message)
    })
}
