//! Checks whether an environment keeps its contract.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polygrad_core::{Error, Result, Rng};

use crate::fault::panicked;
use crate::hash::Hash;
use crate::{Env, Space, Step, episode_rng};

const EPISODES: u64 = 3;
/// Per episode, if it does not end earlier.
const STEPS: usize = 1000;

/// Plays some episodes with random actions and reports violations of the environment's contract.
///
/// It looks for:
/// - spaces that are invalid or change
/// - panics
/// - observations outside of their space, or not written in full
/// - rewards that are not finite
/// - action masks that allow no action, or masks of actions that cannot be masked
/// - episodes that differ when they are played again from the same seed, since state survives [`reset`](Env::reset) or
///   randomness comes from elsewhere
/// - a step after the end of an episode that panics
///
/// An environment whose episodes do not end is played for 3 times 1000 steps, twice.
///
/// # Errors
/// If something is wrong; the error describes the first violation found.
pub fn check_env<E: Env<A>, const A: usize>(env: &mut E) -> Result<()> {
    let mut found = Vec::new();
    match caught(|| (env.observation_space(), env.action_space(), env.has_action_mask())) {
        Err(what) => found.push(format!("the spaces: {what}")),
        Ok((observation, action, masked)) => {
            for (name, space) in [("observation_space", &observation), ("action_space", &action)] {
                if let Err(error) = space.check() {
                    found.push(format!("{name}: {}", error.message()));
                }
            }
            if masked && !action.is_maskable() {
                found.push(format!("actions of {action:?} cannot be masked"));
            }
            if found.is_empty() {
                Checked {
                    env,
                    observation,
                    action,
                    masked,
                }
                .check(&mut found);
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the environment does not keep its contract:\n  {}",
        found.join("\n  ")
    )))
}

fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| panicked(&*payload))
}

struct Checked<'a, E> {
    env: &'a mut E,
    observation: Space,
    action: Space,
    masked: bool,
}

/// A place, where the reset is step 0, and the hash of what was seen there: observation, rewards, flags, masks.
#[derive(Clone, Copy, PartialEq)]
struct Seen {
    episode: u64,
    step: usize,
    hash: Hash,
}

impl Seen {
    fn place(episode: u64, step: usize) -> String {
        match step {
            0 => format!("episode {episode}, reset"),
            _ => format!("episode {episode}, step {step}"),
        }
    }
}

impl<E> Checked<'_, E> {
    fn check<const A: usize>(&mut self, found: &mut Vec<String>)
    where
        E: Env<A>,
    {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        if let Err(what) = self.play(&mut first) {
            return found.push(what);
        }
        let outcome = self.play(&mut second);
        match (difference(&first, &second), outcome) {
            (Some(what), _) => found.push(what),
            (None, Err(what)) => found.push(format!("{what}, which it was not when the same seed was played before")),
            (None, Ok(())) => {}
        }
        if self.env.observation_space() != self.observation || self.env.action_space() != self.action {
            found.push("the spaces are not what they were before the first reset".to_owned());
        }
        if self.env.has_action_mask() != self.masked {
            found.push("`has_action_mask` is not what it was before the first reset".to_owned());
        }
    }

    /// Plays all episodes and appends everything seen.
    fn play<const A: usize>(&mut self, seen: &mut Vec<Seen>) -> Result<(), String>
    where
        E: Env<A>,
    {
        let mut choice = Rng::new(1);
        let mut observation = vec![0.0; A * self.observation.len()];
        let mut action = vec![0.0; A * self.action.len()];
        let mut masks = vec![true; A * self.action.flat_len()];
        for episode in 0..EPISODES {
            let mut rng = episode_rng(0, 0, episode);
            let place = Seen::place(episode, 0);
            self.written(&place, &mut observation, |env, observation| {
                env.reset(&mut rng, observation)
            })?;
            self.ask_masks(&place, &mut masks)?;
            let hash = hash_of(&observation, &masks);
            seen.push(Seen { episode, step: 0, hash });
            for number in 1..=STEPS {
                let place = Seen::place(episode, number);
                self.choose(&masks, &mut choice, &mut action);
                let step = self.step(&place, &action, &mut rng, &mut observation)?;
                if !step.ended() {
                    self.ask_masks(&place, &mut masks)?;
                }
                let hash = hash_of(&observation, &masks)
                    .add_all(step.rewards.map(f64::to_bits))
                    .add_all([step.terminated, step.truncated].map(u64::from));
                seen.push(Seen {
                    episode,
                    step: number,
                    hash,
                });
                if step.ended() {
                    let place = format!("{place}, after the end of the episode");
                    caught(|| self.env.step(&action, &mut rng, &mut observation))
                        .map_err(|what| format!("{place}: {what}"))?;
                    break;
                }
            }
        }
        Ok(())
    }

    fn ask_masks<const A: usize>(&self, place: &str, masks: &mut [bool]) -> Result<(), String>
    where
        E: Env<A>,
    {
        if !self.masked {
            return Ok(());
        }
        masks.fill(true);
        caught(|| self.env.action_mask(masks))
            .and_then(|()| self.action.check_masks(masks))
            .map_err(|what| format!("{place}: the mask of actions {what}"))
    }

    fn choose(&self, masks: &[bool], choice: &mut Rng, action: &mut [f32]) {
        let masks = masks.chunks(self.action.flat_len().max(1));
        for (own, mask) in action.chunks_mut(self.action.len().max(1)).zip(masks) {
            self.action.sample_masked(mask, choice, own);
        }
    }

    fn step<const A: usize>(
        &mut self,
        place: &str,
        action: &[f32],
        rng: &mut Rng,
        observation: &mut [f32],
    ) -> Result<Step<A>, String>
    where
        E: Env<A>,
    {
        let step = self.written(place, observation, |env, observation| {
            env.step(action, rng, observation)
        })?;
        match step.rewards.iter().position(|reward| !(*reward as f32).is_finite()) {
            Some(agent) => Err(format!(
                "{place}: the reward of agent {agent} is {}",
                step.rewards[agent]
            )),
            None => Ok(step),
        }
    }

    /// Has the environment write an observation, and checks it.
    fn written<T>(
        &mut self,
        place: &str,
        observation: &mut [f32],
        write: impl FnOnce(&mut E, &mut [f32]) -> T,
    ) -> Result<T, String> {
        observation.fill(f32::NAN);
        let result = caught(|| write(self.env, observation)).map_err(|what| format!("{place}: {what}"))?;
        let width = self.observation.len().max(1);
        match observation
            .chunks(width)
            .find_map(|own| outside(&self.observation, own))
        {
            Some(what) => Err(format!("{place}: {what}")),
            None => Ok(result),
        }
    }
}

/// The fault of an observation, if it has one.
fn outside(space: &Space, value: &[f32]) -> Option<String> {
    if space.contains(value) {
        return None;
    }
    if let Some(i) = value.iter().position(|x| x.is_nan()) {
        return Some(format!("number {i} of the observation is NaN, or was not written"));
    }
    let Space::Box { low, high, dtype, .. } = space else {
        return Some(format!("the observation {value:?} is not in {space:?}"));
    };
    let beyond = (0..value.len()).find(|i| value[*i] < low[*i] || value[*i] > high[*i]);
    Some(match beyond {
        Some(i) => format!(
            "number {i} of the observation is {}, outside of its bounds {} and {}",
            value[i], low[i], high[i]
        ),
        None => format!("the observation has fractions, but is of dtype {dtype}"),
    })
}

fn hash_of(observation: &[f32], masks: &[bool]) -> Hash {
    Hash::new()
        .numbers(observation)
        .add_all(masks.iter().map(|allowed| u64::from(*allowed)))
}

/// The first place where the same steps gave a different result. An episode that ends elsewhere differs in its flags.
fn difference(first: &[Seen], second: &[Seen]) -> Option<String> {
    let (seen, _) = first.iter().zip(second).find(|(a, b)| a != b)?;
    let place = Seen::place(seen.episode, seen.step);
    Some(format!(
        "{place}: something else was seen when the same seed was played again, so that something is kept over `reset`, \
         or chance comes from elsewhere than `rng`"
    ))
}
