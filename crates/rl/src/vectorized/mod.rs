//! Many environments out of one kind, in one thread or several.

mod shard;
mod worker;

use std::ops::Range;
use std::sync::Arc;

use polygrad_core::{Error, Result};

use crate::vector::check_len;
use crate::{Env, Space, StepSlices, VectorEnv};
pub use shard::episode_rng;
use shard::{Shard, Spaces, is_in, not_allowed};
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
    /// `[rows, mask_len]`.
    masks: Vec<bool>,
    /// There was a reset, and no step has failed since.
    ready: bool,
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
    /// When `n` is 0, or spaces make no sense or differ.
    pub fn new(make: impl FnMut(usize) -> E, n: usize) -> Result<Self> {
        let envs: Vec<E> = (0..n).map(make).collect();
        let spaces = Arc::new(spaces_of(&envs)?);
        Ok(Self::of(Shard::new(envs, 0, &spaces), Vec::new(), spaces, n))
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
            workers.push(Worker::start(shard)?);
        }
        workers.reverse();
        Ok(Self::of(Shard::new(envs, 0, &spaces), workers, spaces, n))
    }

    fn of(own: Shard<E, A>, workers: Vec<Worker>, spaces: Arc<Spaces>, num_envs: usize) -> Self {
        Self {
            masks: vec![true; num_envs * A * spaces.mask_len],
            own,
            workers,
            spaces,
            num_envs,
            ready: false,
        }
    }

    /// Whether the rows from `first` on may do these actions.
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
        self.ready = false;
        let mut outcome = Ok(());
        for worker in &mut self.workers {
            outcome = outcome.and(worker.begin_reset(seed));
        }
        let observed = &mut observations[times(self.own.rows(), width)];
        let masks = &mut self.masks[times(self.own.rows(), mask_len)];
        // The first failure, since environments are in the order of the shards.
        outcome = outcome.and(self.own.reset(seed, observed, masks));
        for worker in &mut self.workers {
            let observed = &mut observations[times(worker.rows(), width)];
            let masks = &mut self.masks[times(worker.rows(), mask_len)];
            outcome = outcome.and(worker.finish_reset(observed, masks));
        }
        self.ready = outcome.is_ok();
        outcome
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        let (width, mask_len) = (self.spaces.action.len(), self.spaces.mask_len);
        check_len("actions", actions.len(), self.rows() * width)?;
        out.check(self)?;
        self.check_actions(0, actions)?;
        if !std::mem::replace(&mut self.ready, false) {
            let message = "`step` before `reset`, or after a step that failed";
            return Err(Error::invalid(message).with_hint("call `reset` first"));
        }
        let mut outcome = Ok(());
        for worker in &mut self.workers {
            outcome = outcome.and(worker.begin_step(&actions[times(worker.rows(), width)]));
        }
        let own = self.own.rows();
        let masks = &mut self.masks[times(own.clone(), mask_len)];
        outcome = outcome.and(
            self.own
                .step(&actions[times(own.clone(), width)], &mut out.part(own), masks),
        );
        for worker in &mut self.workers {
            let masks = &mut self.masks[times(worker.rows(), mask_len)];
            outcome = outcome.and(worker.finish_step(&mut out.part(worker.rows()), masks));
        }
        self.ready = outcome.is_ok();
        outcome
    }
}

/// Where the numbers of rows lie.
fn times(rows: Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}
