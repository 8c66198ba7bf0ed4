use polygrad_core::{Error, Result, Rng};

use super::{as_inside, drawn_as_inside};
use crate::{Env, Space, Step};

/// Repeats every action several times, or until the episode ends or its mask no longer allows the action. The reward is
/// the sum, and the observation is the last one.
#[derive(Clone, Debug)]
pub struct ActionRepeat<E> {
    env: E,
    times: usize,
    action_space: Space,
    /// Empty if all actions are allowed.
    mask: Vec<bool>,
}

impl<E> ActionRepeat<E> {
    /// Repeats every action `times` times.
    ///
    /// # Errors
    /// If `times` is 0.
    pub fn new<const A: usize>(env: E, times: usize) -> Result<Self>
    where
        E: Env<A>,
    {
        if times == 0 {
            return Err(Error::invalid("an action that is done 0 times has no result").with_hint("use at least 1"));
        }
        let action_space = env.action_space();
        let entries = if env.has_action_mask() {
            A * action_space.flat_len()
        } else {
            0
        };
        Ok(Self {
            env,
            times,
            action_space,
            mask: vec![true; entries],
        })
    }

    /// Whether the actions may be repeated once more.
    fn may_repeat<const A: usize>(&mut self, action: &[f32]) -> bool
    where
        E: Env<A>,
    {
        if self.mask.is_empty() {
            return true;
        }
        self.mask.fill(true);
        self.env.action_mask(&mut self.mask);
        let masks = self.mask.chunks(self.mask.len() / A);
        let mut actions = masks.zip(action.chunks(self.action_space.len()));
        actions.all(|(mask, action)| self.action_space.allows(mask, action))
    }
}

impl<E: Env<A>, const A: usize> Env<A> for ActionRepeat<E> {
    fn action_space(&self) -> Space {
        self.action_space.clone()
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.env.reset(rng, observation);
    }

    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step<A> {
        let mut total = self.env.step(action, rng, observation);
        for _ in 1..self.times {
            if total.ended() || !self.may_repeat(action) {
                break;
            }
            let step = self.env.step(action, rng, observation);
            let rewards = std::array::from_fn(|agent| total.rewards[agent] + step.rewards[agent]);
            total = Step { rewards, ..step };
        }
        total
    }

    as_inside!(observation_space -> Space);
    as_inside!(waits(agent: usize) -> bool, has_action_mask -> bool, action_mask(mask: &mut [bool]) -> ());
}

drawn_as_inside!(ActionRepeat);
