//! Many environments out of one kind, in one thread or several.

mod shard;
mod worker;

use std::sync::Arc;

use polygrad_core::{Error, Result};

use crate::vector::check_len;
use crate::{Env, Space, StepSlices, VectorEnv};
pub use shard::episode_rng;
use shard::{Shard, Spaces, is_allowed, not_allowed};
use worker::Worker;

/// Environments of one kind, as a [`VectorEnv`].
///
/// Each has a generator of its own for every episode, [`episode_rng`], so that results are the same, bit by bit, however many threads there
/// are. A step in one thread allocates nothing.
///
/// An environment that panics, or gives a NaN or infinity, makes an error that names it, the seed, the episode and the step. The panic's
/// own message still goes to standard error, and in a program built with `panic = "abort"` it ends the program.
pub struct Vectorized<E, const A: usize = 1> {
    spaces: Arc<Spaces>,
    num_envs: usize,
    /// The first ones, which step in the caller's thread.
    own: Shard<E, A>,
    workers: Vec<Worker>,
    /// There was a reset, and no step has failed since.
    ready: bool,
}

fn spaces_of<E: Env<A>, const A: usize>(envs: &[E]) -> Result<Spaces> {
    let (Some(first), true) = (envs.first(), A > 0) else {
        let hint = "make at least one environment with at least one agent";
        return Err(Error::invalid("there is nothing that could step").with_hint(hint));
    };
    let spaces = Spaces {
        observation: first.observation_space(),
        action: first.action_space(),
    };
    let named = |error: Error, name: &str| error.in_module(name);
    spaces
        .observation
        .check()
        .map_err(|error| named(error, "observation_space"))?;
    spaces.action.check().map_err(|error| named(error, "action_space"))?;
    let differs = |env: &E| env.observation_space() != spaces.observation || env.action_space() != spaces.action;
    match envs.iter().position(differs) {
        Some(index) => Err(Error::invalid(format!(
            "environment {index} has other spaces than environment 0"
        ))),
        None => Ok(spaces),
    }
}

impl<E: Env<A>, const A: usize> Vectorized<E, A> {
    /// `n` environments, made by a function of their index, that step one after another in the caller's thread.
    ///
    /// # Errors
    /// When `n` is 0, or spaces make no sense or differ.
    pub fn new(make: impl FnMut(usize) -> E, n: usize) -> Result<Self> {
        let envs: Vec<E> = (0..n).map(make).collect();
        let spaces = Arc::new(spaces_of(&envs)?);
        Ok(Self {
            own: Shard::new(envs, 0, &spaces),
            spaces,
            num_envs: n,
            workers: Vec::new(),
            ready: false,
        })
    }

    /// The same in `threads` threads, of which the caller's is one; with fewer environments there are fewer threads.
    ///
    /// Worth it where a step of all environments takes much longer than waking a thread.
    ///
    /// # Errors
    /// As [`new`](Self::new); when `threads` is 0, or a thread cannot be started, as in WebAssembly.
    pub fn threaded(make: impl FnMut(usize) -> E, n: usize, threads: usize) -> Result<Self>
    where
        E: Send + 'static,
    {
        if threads == 0 {
            return Err(Error::invalid("0 threads can step no environment").with_hint("1 is the caller's thread alone"));
        }
        let mut envs: Vec<E> = (0..n).map(make).collect();
        let spaces = Arc::new(spaces_of(&envs)?);
        let threads = threads.min(n);
        let mut workers = Vec::new();
        for index in (1..threads).rev() {
            let first = index * n / threads;
            let shard = Shard::new(envs.split_off(first), first, &spaces);
            workers.push(Worker::start(shard, first)?);
        }
        workers.reverse();
        Ok(Self {
            own: Shard::new(envs, 0, &spaces),
            spaces,
            num_envs: n,
            workers,
            ready: false,
        })
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

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        let width = self.spaces.observation.len();
        check_len("observations", observations.len(), self.rows() * width)?;
        self.ready = false;
        let mut outcome = Ok(());
        for worker in &mut self.workers {
            outcome = outcome.and(worker.begin_reset(seed));
        }
        let (own, mut rest) = observations.split_at_mut(self.own.rows() * width);
        // The first failure, since environments are in the order of the shards.
        outcome = outcome.and(self.own.reset(seed, own));
        for worker in &mut self.workers {
            let (part, after) = rest.split_at_mut(worker.rows() * width);
            outcome = outcome.and(worker.finish_reset(part));
            rest = after;
        }
        self.ready = outcome.is_ok();
        outcome
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        let width = self.spaces.action.len();
        check_len("actions", actions.len(), self.rows() * width)?;
        out.check(self)?;
        let mut rows = actions.chunks_exact(width.max(1));
        if let Some(row) = rows.position(|action| !is_allowed(&self.spaces.action, action)) {
            let action = &actions[row * width..(row + 1) * width];
            return Err(not_allowed(&self.spaces.action, action, row / A));
        }
        if !std::mem::replace(&mut self.ready, false) {
            let message = "`step` before `reset`, or after a step that failed";
            return Err(Error::invalid(message).with_hint("call `reset` first"));
        }
        let own = self.own.rows();
        let (first, mut rest) = actions.split_at(own * width);
        let mut outcome = Ok(());
        for worker in &mut self.workers {
            let (part, after) = rest.split_at(worker.rows() * width);
            outcome = outcome.and(worker.begin_step(part));
            rest = after;
        }
        outcome = outcome.and(self.own.step(first, &mut out.part(0..own)));
        let mut begin = own;
        for worker in &mut self.workers {
            let end = begin + worker.rows();
            outcome = outcome.and(worker.finish_step(&mut out.part(begin..end)));
            begin = end;
        }
        self.ready = outcome.is_ok();
        outcome
    }
}
