use polygrad_core::{Error, Result, Rng};

use crate::{Env, Space, Step};

/// Does every action several times, or until the episode ends. The reward is the sum, the observation the last.
#[derive(Clone, Debug)]
pub struct ActionRepeat<E> {
    env: E,
    times: usize,
}

impl<E> ActionRepeat<E> {
    /// Does every action so many times.
    ///
    /// # Errors
    /// When `times` is 0.
    pub fn new(env: E, times: usize) -> Result<Self> {
        if times == 0 {
            return Err(Error::invalid("an action that is done 0 times has no result").with_hint("use at least 1"));
        }
        Ok(Self { env, times })
    }
}

impl<E: Env<A>, const A: usize> Env<A> for ActionRepeat<E> {
    fn observation_space(&self) -> Space {
        self.env.observation_space()
    }

    fn action_space(&self) -> Space {
        self.env.action_space()
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.env.reset(rng, observation);
    }

    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step<A> {
        let mut total = self.env.step(action, rng, observation);
        for _ in 1..self.times {
            if total.ended() {
                break;
            }
            let step = self.env.step(action, rng, observation);
            let rewards = std::array::from_fn(|agent| total.rewards[agent] + step.rewards[agent]);
            total = Step { rewards, ..step };
        }
        total
    }
}
