//! Many environments of one kind, in one thread or several.

mod saved;
mod shard;
mod worker;

use std::ops::Range;
use std::sync::Arc;

use polygrad_core::{Error, Result, room};
use serde_json::Value;

use crate::vector::{all_at_once, check_len};
use crate::{Env, Space, StepSlices, VectorEnv};
use saved::Saved;
pub(crate) use saved::{read, write};
pub use shard::episode_rng;
use shard::{Shard, Spaces, is_in, not_allowed};
use worker::{Worker, Workers};

/// Environments of one kind, as a [`VectorEnv`].
///
/// Each has its own generator for every episode, [`episode_rng`], so that results are the same, bit for bit, for any
/// number of threads. A step in one thread allocates nothing.
///
/// If an environment panics, or returns NaN or infinity, the error names the environment, the seed, the episode and the
/// step. The panic's own message still goes to standard error, and in a program built with `panic = "abort"` a panic
/// ends the program.
pub struct Vectorized<E, const A: usize = 1> {
    spaces: Arc<Spaces>,
    num_envs: usize,
    seed: u64,
    /// The first environments, which step in the caller's thread.
    own: Shard<E, A>,
    workers: Workers,
    /// `[rows, mask_len]`.
    masks: Vec<bool>,
    /// Whether there was a reset, and no step has failed since.
    ready: bool,
}

fn made<E>(make: impl FnMut(usize) -> E, n: usize) -> Result<Vec<E>> {
    let mut envs = room(n)?;
    envs.extend((0..n).map(make));
    Ok(envs)
}

fn spaces_of<E: Env<A>, const A: usize>(envs: &[E]) -> Result<Spaces> {
    let (Some(first), true) = (envs.first(), A > 0) else {
        let hint = "make at least one environment with at least one agent";
        return Err(Error::invalid("there is nothing that could step").with_hint(hint));
    };
    let (observation, action) = (first.observation_space(), first.action_space());
    observation
        .check()
        .map_err(|error| error.in_module("observation_space"))?;
    action.check().map_err(|error| error.in_module("action_space"))?;
    let masked = first.has_action_mask();
    if masked && !action.is_maskable() {
        let message = format!("actions of {action:?} cannot be masked");
        return Err(Error::invalid(message).with_hint("masks are for `Space::Discrete` and `Space::MultiDiscrete`"));
    }
    for (index, env) in envs.iter().enumerate() {
        if env.observation_space() != observation || env.action_space() != action {
            let message = format!("environment {index} has other spaces than environment 0");
            return Err(Error::invalid(message));
        }
        if env.has_action_mask() != masked {
            let message = format!("of the environments 0 and {index} only one has action masks");
            return Err(Error::invalid(message).with_hint("a mask may allow everything"));
        }
    }
    Ok(Spaces {
        mask_len: if masked { action.flat_len() } else { 0 },
        observation,
        action,
    })
}

impl<E: Env<A>, const A: usize> Vectorized<E, A> {
    /// `n` environments, made by a function of their index, that step one after another in the caller's thread.
    ///
    /// # Errors
    /// If `n` is 0, spaces are invalid or differ, or memory runs out.
    pub fn new(make: impl FnMut(usize) -> E, n: usize) -> Result<Self> {
        let envs = made(make, n)?;
        let spaces = Arc::new(spaces_of(&envs)?);
        Ok(Self::of(Shard::new(envs, 0, &spaces), Workers::default(), spaces, n))
    }

    /// The same in `threads` threads, including the caller's; with fewer environments there are fewer threads.
    ///
    /// This is worthwhile if a step of all environments takes much longer than waking a thread.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); if `threads` is 0, or a thread cannot be started, as in WebAssembly.
    pub fn threaded(make: impl FnMut(usize) -> E, n: usize, threads: usize) -> Result<Self>
    where
        E: Send + 'static,
    {
        if threads == 0 {
            return Err(no_threads());
        }
        let mut envs = made(make, n)?;
        let spaces = Arc::new(spaces_of(&envs)?);
        let threads = threads.min(n);
        let shards = split(&mut envs, 1, threads, &spaces);
        let workers = Workers::start(shards, threads - 1)?;
        Ok(Self::of(Shard::new(envs, 0, &spaces), workers, spaces, n))
    }

    /// All environments in `threads` threads besides the caller's, in groups: while one group steps, the caller
    /// computes the actions of another. The numbers are those of [`new`](Self::new), bit for bit.
    ///
    /// There is one group for each thread; with one thread there are two groups, which step in turn. The time of a step
    /// is then the longer of the environments' and the policy's times instead of their sum. This is worthwhile if both
    /// take much longer than waking a thread. A group has at least 4 rows, since matrix products of fewer rows may
    /// round differently, which would change the policy's outputs. With few environments there are therefore fewer
    /// groups and threads.
    ///
    /// ```
    /// use polygrad_rl::{CartPole, StepBuffers, VectorEnv, Vectorized};
    /// # fn main() -> polygrad_core::Result<()> {
    /// let mut envs = Vectorized::asynchronous(|_| CartPole::v1(), 8, 1)?;
    /// let mut buffers = StepBuffers::new(&envs);
    /// envs.reset(0, &mut buffers.observations)?;
    /// for group in 0..envs.groups() {
    ///     envs.begin_step(group, &[1.0; 4])?;
    /// }
    /// for group in 0..envs.groups() {
    ///     let rows = envs.group_rows(group);
    ///     envs.finish_step(group, &mut buffers.as_mut().rows(rows))?;
    ///     // What is seen leads to actions, while the other group steps.
    ///     envs.begin_step(group, &[0.0; 4])?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`threaded`](Self::threaded).
    pub fn asynchronous(make: impl FnMut(usize) -> E, n: usize, threads: usize) -> Result<Self>
    where
        E: Send + 'static,
    {
        if threads == 0 {
            return Err(no_threads());
        }
        let mut envs = made(make, n)?;
        let spaces = Arc::new(spaces_of(&envs)?);
        let most = n / LEAST_ROWS.div_ceil(A);
        let groups = threads.max(2).min(most.max(1));
        let shards = split(&mut envs, 0, groups, &spaces);
        let workers = Workers::start(shards, threads.min(groups))?;
        Ok(Self::of(Shard::new(envs, 0, &spaces), workers, spaces, n))
    }

    fn of(own: Shard<E, A>, workers: Workers, spaces: Arc<Spaces>, num_envs: usize) -> Self {
        Self {
            masks: vec![true; num_envs * A * spaces.mask_len],
            own,
            workers,
            spaces,
            num_envs,
            seed: 0,
            ready: false,
        }
    }

    /// Reads a state, and checks that it is of such environments.
    fn read(&self, state: &Value) -> Result<Saved> {
        let saved: Saved = read(STATE, state)?;
        saved.check(self.num_envs, A, &self.spaces)?;
        Ok(saved)
    }

    /// Waits for groups that are stepping, before their results are discarded.
    fn settle(&mut self) {
        self.ready = false;
        self.workers.all.iter_mut().for_each(Worker::settle);
    }

    /// Whether a group can begin a step, or finish one.
    fn check_group(&self, group: usize, busy: bool) -> Result<()> {
        if !self.is_asynchronous() {
            return Err(all_at_once());
        }
        match self.workers.all.get(group) {
            None => {
                let message = format!("there is no group {group} of {}", self.groups());
                Err(Error::out_of_range(message))
            }
            Some(worker) if worker.is_busy() == busy => Ok(()),
            Some(_) if busy => {
                let message = format!("group {group} has begun no step");
                Err(Error::invalid(message).with_hint("call `begin_step` first"))
            }
            Some(_) => Err(still_stepping(group)),
        }
    }

    /// Whether all environments are in threads other than the caller's.
    fn is_asynchronous(&self) -> bool {
        self.own.rows().is_empty()
    }

    fn check_ready(&self, what: &str) -> Result<()> {
        if let Some(group) = self.workers.all.iter().position(Worker::is_busy) {
            return Err(still_stepping(group));
        }
        self.check_reset(what)
    }

    fn check_reset(&self, what: &str) -> Result<()> {
        if self.ready {
            return Ok(());
        }
        let message = format!("`{what}` before `reset`, or after a step that failed");
        Err(Error::invalid(message).with_hint("call `reset` first"))
    }

    /// Checks whether the rows from `first` on may take these actions.
    fn check_actions(&self, first: usize, actions: &[f32]) -> Result<()> {
        let (space, mask_len) = (&self.spaces.action, self.spaces.mask_len);
        let mut rows = (first..).zip(actions.chunks_exact(space.len().max(1)));
        let refused = rows.find(|(row, action)| {
            let mask = &self.masks[row * mask_len..(row + 1) * mask_len];
            !is_in(space, action) || !mask.is_empty() && !space.allows(mask, action)
        });
        match refused {
            Some((row, action)) => Err(not_allowed::<A>(space, action, row)),
            None => Ok(()),
        }
    }
}

impl<E: Env<A>, const A: usize> VectorEnv for Vectorized<E, A> {
    fn num_envs(&self) -> usize {
        self.num_envs
    }

    fn agents(&self) -> usize {
        A
    }

    fn observation_space(&self) -> &Space {
        &self.spaces.observation
    }

    fn action_space(&self) -> &Space {
        &self.spaces.action
    }

    fn action_masks(&self) -> Option<&[bool]> {
        (self.spaces.mask_len > 0).then_some(&self.masks)
    }

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        let (width, mask_len) = (self.spaces.observation.len(), self.spaces.mask_len);
        check_len("observations", observations.len(), self.rows() * width)?;
        self.settle();
        self.seed = seed;
        let mut outcome = Ok(());
        for worker in &mut self.workers.all {
            outcome = outcome.and(worker.begin_reset(seed));
        }
        let observed = &mut observations[times(self.own.rows(), width)];
        let masks = &mut self.masks[times(self.own.rows(), mask_len)];
        // Keeps the first failure, since environments are in the order of the shards.
        outcome = outcome.and(self.own.reset(seed, observed, masks));
        for worker in &mut self.workers.all {
            let observed = &mut observations[times(worker.rows(), width)];
            let masks = &mut self.masks[times(worker.rows(), mask_len)];
            outcome = outcome.and(worker.finish_observations(observed, masks));
        }
        self.ready = outcome.is_ok();
        outcome
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        let (width, mask_len) = (self.spaces.action.len(), self.spaces.mask_len);
        check_len("actions", actions.len(), self.rows() * width)?;
        out.check(self)?;
        self.check_ready("step")?;
        self.check_actions(0, actions)?;
        self.ready = false;
        let mut outcome = Ok(());
        for worker in &mut self.workers.all {
            outcome = outcome.and(worker.begin_step(&actions[times(worker.rows(), width)]));
        }
        let own = self.own.rows();
        let masks = &mut self.masks[times(own.clone(), mask_len)];
        outcome = outcome.and(
            self.own
                .step(&actions[times(own.clone(), width)], &mut out.rows(own), masks),
        );
        for worker in &mut self.workers.all {
            let masks = &mut self.masks[times(worker.rows(), mask_len)];
            outcome = outcome.and(worker.finish_step(&mut out.rows(worker.rows()), masks));
        }
        self.ready = outcome.is_ok();
        outcome
    }
    fn groups(&self) -> usize {
        if self.is_asynchronous() {
            self.workers.all.len()
        } else {
            1
        }
    }

    fn group_rows(&self, group: usize) -> Range<usize> {
        match self.workers.all.get(group) {
            Some(worker) if self.is_asynchronous() => worker.rows(),
            _ if group == 0 => 0..self.rows(),
            _ => 0..0,
        }
    }

    fn begin_step(&mut self, group: usize, actions: &[f32]) -> Result<()> {
        self.check_group(group, false)?;
        let rows = self.group_rows(group);
        check_len("actions", actions.len(), rows.len() * self.spaces.action.len())?;
        self.check_reset("begin_step")?;
        self.check_actions(rows.start, actions)?;
        self.workers.all[group].begin_step(actions)
    }

    fn finish_step(&mut self, group: usize, out: &mut StepSlices<'_>) -> Result<()> {
        self.check_group(group, true)?;
        let rows = self.group_rows(group);
        out.check_rows(rows.len(), self.spaces.observation.len())?;
        let masks = &mut self.masks[times(rows, self.spaces.mask_len)];
        let outcome = self.workers.all[group].finish_step(out, masks);
        self.ready &= outcome.is_ok();
        outcome
    }

    fn state(&self) -> Result<Value> {
        self.check_ready("state")?;
        let mut episodes = self.own.save()?;
        for worker in &self.workers.all {
            episodes.extend(worker.save()?);
        }
        write(STATE, &Saved::new(A, &self.spaces, self.seed, episodes))
    }

    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        let (width, mask_len) = (self.spaces.observation.len(), self.spaces.mask_len);
        check_len("observations", observations.len(), self.rows() * width)?;
        let Saved { seed, mut episodes, .. } = self.read(state)?;
        self.settle();
        self.seed = seed;
        let mut outcome = Ok(());
        for worker in self.workers.all.iter_mut().rev() {
            let own = episodes.split_off(worker.rows().start / A);
            outcome = worker.begin_restore(seed, own).and(outcome);
        }
        let observed = &mut observations[times(self.own.rows(), width)];
        let masks = &mut self.masks[times(self.own.rows(), mask_len)];
        outcome = outcome.and(self.own.restore(seed, &episodes, observed, masks));
        for worker in &mut self.workers.all {
            let observed = &mut observations[times(worker.rows(), width)];
            let masks = &mut self.masks[times(worker.rows(), mask_len)];
            outcome = outcome.and(worker.finish_observations(observed, masks));
        }
        self.ready = outcome.is_ok();
        outcome
    }
}

const STATE: &str = "the environments";

/// Fails unless the actions of the rows from `first` on, of one agent each, are in their space.
#[cfg(all(feature = "gym", unix))]
pub(crate) fn check_actions(space: &Space, first: usize, actions: &[f32]) -> Result<()> {
    let mut rows = (first..).zip(actions.chunks_exact(space.len().max(1)));
    match rows.find(|(_, action)| !is_in(space, action)) {
        Some((row, action)) => Err(not_allowed::<1>(space, action, row)),
        None => Ok(()),
    }
}

/// The least rows of a group. The CPU backend multiplies fewer rows in another order.
pub(crate) const LEAST_ROWS: usize = 4;

fn still_stepping(group: usize) -> Error {
    Error::invalid(format!("group {group} is still stepping")).with_hint("call `finish_step` first")
}

fn no_threads() -> Error {
    Error::invalid("0 threads can step no environment").with_hint("use at least 1")
}

/// Splits off the shards from `first` on of environments that are dealt to `shards` shards.
fn split<E: Env<A>, const A: usize>(
    envs: &mut Vec<E>,
    first: usize,
    shards: usize,
    spaces: &Arc<Spaces>,
) -> Vec<Shard<E, A>> {
    let n = envs.len();
    let begin = |index: usize| index * n / shards;
    let mut taken: Vec<_> = (first..shards)
        .rev()
        .map(|index| Shard::new(envs.split_off(begin(index)), begin(index), spaces))
        .collect();
    taken.reverse();
    taken
}

/// The range of the numbers of some rows.
fn times(rows: Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}
