use polygrad_core::{Error, Result, Rng};

use super::{as_inside, drawn_as_inside};
use crate::{Env, Space, Step};

/// Stacks the last observations, the newest last, like Gymnasium's `FrameStackObservation`. Initially all are the first
/// observation.
///
/// A box of shape `[…]` becomes one of shape `[frames, …]`; in other spaces the observations are concatenated.
#[derive(Clone, Debug)]
pub struct FrameStack<E> {
    env: E,
    frames: usize,
    /// The newest observation of every agent.
    newest: Vec<f32>,
    /// `[agents, frames, observation_space().len()]`.
    stacked: Vec<f32>,
}

impl<E> FrameStack<E> {
    /// Stacks `frames` observations, including the newest.
    ///
    /// # Errors
    /// If `frames` is 0.
    pub fn new<const A: usize>(env: E, frames: usize) -> Result<Self>
    where
        E: Env<A>,
    {
        if frames == 0 {
            return Err(Error::invalid("a stack of 0 frames shows nothing").with_hint("use at least 1"));
        }
        let len = A * env.observation_space().len();
        Ok(Self {
            env,
            frames,
            newest: vec![0.0; len],
            stacked: vec![0.0; len * frames],
        })
    }

    /// Shifts every agent's frames by `by`, and fills the last ones with its newest observation.
    fn push(&mut self, by: usize, agents: usize, observation: &mut [f32]) {
        let width = self.newest.len() / agents;
        for agent in 0..agents {
            let newest = &self.newest[agent * width..(agent + 1) * width];
            let frames = &mut self.stacked[agent * width * self.frames..(agent + 1) * width * self.frames];
            frames.copy_within(by * width.., 0);
            for frame in self.frames - by..self.frames {
                frames[frame * width..(frame + 1) * width].copy_from_slice(newest);
            }
        }
        observation.copy_from_slice(&self.stacked);
    }
}

fn stacked(space: Space, frames: usize) -> Space {
    match space {
        Space::Box {
            low,
            high,
            shape,
            dtype,
        } => Space::Box {
            low: low.repeat(frames),
            high: high.repeat(frames),
            shape: [&[frames], &shape[..]].concat(),
            dtype,
        },
        Space::Discrete { n, start } => Space::MultiDiscrete {
            nvec: vec![n; frames],
            start: vec![start; frames],
        },
        Space::MultiDiscrete { nvec, start } => Space::MultiDiscrete {
            nvec: nvec.repeat(frames),
            start: start.repeat(frames),
        },
        Space::MultiBinary { n } => Space::MultiBinary { n: n * frames },
    }
}

impl<E: Env<A>, const A: usize> Env<A> for FrameStack<E> {
    fn observation_space(&self) -> Space {
        stacked(self.env.observation_space(), self.frames)
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.env.reset(rng, &mut self.newest);
        self.push(self.frames, A, observation);
    }

    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step<A> {
        let step = self.env.step(action, rng, &mut self.newest);
        self.push(1, A, observation);
        step
    }

    as_inside!(action_space -> Space);
    as_inside!(waits(agent: usize) -> bool, has_action_mask -> bool, action_mask(mask: &mut [bool]) -> ());
}

drawn_as_inside!(FrameStack);
