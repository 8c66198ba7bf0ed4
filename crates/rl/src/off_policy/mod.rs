//! The common part of all algorithms that learn from a replay buffer.

mod actor_critics;
mod greedy;
mod learner;
mod method;
mod noise;
mod pace;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_core::Result;
use polygrad_train::Measured;

pub use actor_critics::ActorCritics;
pub(crate) use actor_critics::{Part, Trainer, bounds, normal};
pub(crate) use greedy::{Greedy, discrete_actions};
pub(crate) use method::{Acting, Following, Method, Seen, Trained, finite};
pub use noise::ExplorationNoise;
pub(crate) use pace::{Pace, pace};

use crate::agent::iteration_rng;
use crate::experience::Experience;
use crate::{ActionSpace, ReplayBuffer, VectorEnv};

/// A training that acts, stores transitions in a [`ReplayBuffer`], and learns from samples of it: [`Dqn`](crate::Dqn),
/// [`Sac`](crate::Sac) and [`Td3`](crate::Td3).
///
/// Each [iteration](OffPolicy::iterate) takes some steps in all environments, and then some steps of the optimizer.
/// Losses and gradients are captured programs.
///
/// The same seed gives the same training, bit for bit. A training that is saved and resumed ends as if it had not been
/// interrupted, replay buffer included.
pub struct OffPolicy<M> {
    pub(crate) method: M,
    pub(crate) experience: Experience,
    pace: Pace,
    iteration: u64,
    steps: u64,
    /// The flag that ends the next [`Learner::advance`](polygrad_train::Learner::advance) early.
    stop: Option<Arc<AtomicBool>>,
}

impl<M: Method> OffPolicy<M> {
    /// A training that has not begun. `replay` may configure the buffer.
    pub(crate) fn begin(
        method: M,
        envs: impl VectorEnv + 'static,
        pace: Pace,
        replay: impl FnOnce(ReplayBuffer) -> Result<ReplayBuffer>,
    ) -> Result<Self> {
        let action = ActionSpace::from(envs.action_space()).len();
        let buffer = ReplayBuffer::new(pace.buffer_size, envs.observation_space().flat_len(), action)?;
        Ok(Self {
            method,
            experience: Experience::new(Box::new(envs), replay(buffer)?, (pace.n_step, pace.gamma)),
            pace,
            iteration: 0,
            steps: 0,
            stop: None,
        })
    }

    /// The replay buffer.
    pub fn replay(&self) -> &ReplayBuffer {
        &self.experience.replay
    }

    /// Steps of all environments so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Steps of all environments in an iteration.
    pub fn steps_per_iteration(&self) -> u64 {
        self.pace.steps_per_iteration(self.experience.rows())
    }

    /// Iterations until `total_steps`, at least one. A last iteration that would exceed it is left out.
    pub fn iterations(&self) -> u64 {
        let left = self.pace.total_steps.saturating_sub(self.steps) / self.steps_per_iteration();
        (self.iteration + left).max(1)
    }

    /// Whether all iterations are done.
    pub fn is_done(&self) -> bool {
        self.iteration >= self.iterations()
    }

    /// The share of the steps that are done, from 0 to 1.
    fn progress(&self) -> f64 {
        self.steps as f64 / self.pace.total_steps.max(1) as f64
    }

    /// Why training or the choice of actions cannot be captured and replayed; `None` if it can.
    pub fn refusal(&self) -> Option<&str> {
        self.method.trained().refusal()
    }

    /// Acts, and learns from the stored transitions. Numbers that were not computed, before training starts, are NaN.
    ///
    /// # Errors
    /// Those of the environments and the networks, and if numbers are not finite. The training can then only continue
    /// from a checkpoint.
    pub fn iterate(&mut self) -> Result<Measured> {
        self.iterate_until(None)
    }

    /// [`OffPolicy::iterate`], which returns NaN without counting a step if `stop` is set while it acts: the training
    /// can then only continue from a checkpoint.
    fn iterate_until(&mut self, stop: Option<&AtomicBool>) -> Result<Measured> {
        let mut rng = iteration_rng(self.pace.seed, self.iteration);
        self.experience.ended.clear();
        self.experience.begin(self.pace.seed)?;
        let before = self.steps;
        for step in 0..self.pace.train_frequency {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.steps = before;
                return Ok(Measured::nothing(2 + M::LEARNT.len() + M::TOLD.len()));
            }
            let seen = Seen {
                observations: &self.experience.observations,
                shape: &self.experience.shape,
                rows: self.experience.rows(),
                step,
                progress: self.progress(),
                learns: self.steps >= self.pace.learning_starts,
                space: self.experience.action_space(),
            };
            let actions = self.method.act(&seen, &mut rng)?;
            let ended = self.experience.ended.len();
            self.experience.step(&actions)?;
            let ended = &self.experience.ended[ended..];
            ended.iter().for_each(|episode| self.method.ended(episode.row));
            self.steps += self.experience.rows() as u64;
        }
        let progress = self.progress();
        let learning_rate = self.method.anneal(progress)?;
        let mut learnt = vec![f64::NAN; 1 + M::LEARNT.len()];
        if self.steps > self.pace.learning_starts && !self.experience.replay.is_empty() {
            learnt.fill(0.0);
            let count = self.pace.gradient_steps;
            for i in 0..count {
                let update = self.iteration * count as u64 + i as u64;
                let found = self.method.learn(&mut self.experience, update, progress, &mut rng)?;
                let sums = learnt.iter_mut().zip(found);
                sums.for_each(|(sum, x)| *sum += x / count as f64);
            }
        }
        self.method.settle(before, self.steps)?;
        self.iteration += 1;
        let recent = &self.experience.recent;
        let returns = [recent.mean_return(), recent.mean_length()].map(|x| x.unwrap_or(f64::NAN));
        let told = self.method.told(progress)?;
        Ok(Measured {
            loss: learnt[0],
            metrics: returns
                .into_iter()
                .chain(learnt[1..].iter().copied())
                .chain(told)
                .collect(),
            learning_rate,
            loading_seconds: std::mem::take(&mut self.experience.seconds),
        })
    }
}
