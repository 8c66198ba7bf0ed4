use polygrad_core::{Error, Result, Rng};

use super::{as_inside, drawn_as_inside};
use crate::{Env, Space, Step};

/// Cuts episodes short after a number of steps, like Gymnasium's `TimeLimit`.
///
/// A step that terminates exactly at the limit sets both flags.
#[derive(Clone, Debug)]
pub struct TimeLimit<E> {
    env: E,
    limit: usize,
    steps: usize,
}

impl<E> TimeLimit<E> {
    /// Episodes of at most `limit` steps.
    ///
    /// # Errors
    /// If `limit` is 0.
    pub fn new(env: E, limit: usize) -> Result<Self> {
        if limit == 0 {
            return Err(Error::invalid("an episode of 0 steps is none").with_hint("use at least 1"));
        }
        Ok(Self::at(env, limit))
    }

    /// The same with a limit that is above 0.
    pub(crate) fn at(env: E, limit: usize) -> Self {
        Self { env, limit, steps: 0 }
    }

    /// The environment inside.
    pub fn env(&self) -> &E {
        &self.env
    }

    /// The same, mutable.
    pub fn env_mut(&mut self) -> &mut E {
        &mut self.env
    }

    /// The most steps of an episode.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl<E: Env<A>, const A: usize> Env<A> for TimeLimit<E> {
    #[inline]
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.steps = 0;
        self.env.reset(rng, observation);
    }

    #[inline]
    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step<A> {
        let mut step = self.env.step(action, rng, observation);
        self.steps += 1;
        step.truncated |= self.steps >= self.limit;
        step
    }

    as_inside!(observation_space -> Space, action_space -> Space);
    as_inside!(waits(agent: usize) -> bool, has_action_mask -> bool, action_mask(mask: &mut [bool]) -> ());
}

drawn_as_inside!(TimeLimit);
