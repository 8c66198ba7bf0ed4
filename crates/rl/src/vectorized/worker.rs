//! A thread with environments of its own. Memory goes there with a job and comes back with it, so that nothing is shared.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use polygrad_core::{Error, ErrorKind, Result};

use super::shard::Shard;
use crate::{Env, StepBuffers, StepSlices};

enum Task {
    Reset(u64),
    Step,
}

struct Job {
    task: Task,
    actions: Vec<f32>,
    buffers: StepBuffers,
    masks: Vec<bool>,
    outcome: Result<()>,
}

pub(super) struct Worker {
    /// Its rows among all.
    rows: Range<usize>,
    /// Dropped first, which ends the thread.
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Job>,
    /// None while the thread has it.
    job: Option<Job>,
    thread: Option<JoinHandle<()>>,
}

fn ended() -> Error {
    Error::invalid("a thread of environments has ended").with_hint("make the environments anew")
}

fn work<E: Env<A>, const A: usize>(mut shard: Shard<E, A>, jobs: &Receiver<Job>, done: &SyncSender<Job>) {
    while let Ok(mut job) = jobs.recv() {
        job.outcome = match job.task {
            Task::Reset(seed) => shard.reset(seed, &mut job.buffers.observations, &mut job.masks),
            Task::Step => shard.step(&job.actions, &mut job.buffers.as_mut(), &mut job.masks),
        };
        if done.send(job).is_err() {
            return;
        }
    }
}

impl Worker {
    pub(super) fn start<E, const A: usize>(shard: Shard<E, A>) -> Result<Self>
    where
        E: Env<A> + Send + 'static,
    {
        let rows = shard.rows();
        let job = Job {
            task: Task::Step,
            actions: Vec::new(),
            buffers: StepBuffers::with_rows(rows.len(), shard.observation_len()),
            masks: vec![true; shard.masks_len()],
            outcome: Ok(()),
        };
        let ((jobs, received), (sent, done)) = (sync_channel(1), sync_channel(1));
        let builder = thread::Builder::new().name(format!("environments from {}", rows.start / A));
        let thread = builder.spawn(move || work(shard, &received, &sent)).map_err(|error| {
            let message = format!("no thread for environments could be started: {error}");
            Error::new(ErrorKind::Unsupported, message).with_hint("`Vectorized::new` needs none")
        })?;
        Ok(Self {
            rows,
            jobs: Some(jobs),
            done,
            job: Some(job),
            thread: Some(thread),
        })
    }

    pub(super) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    fn begin(&mut self, task: Task, actions: &[f32]) -> Result<()> {
        let (Some(mut job), Some(jobs)) = (self.job.take(), &self.jobs) else {
            return Err(ended());
        };
        job.task = task;
        job.actions.clear();
        job.actions.extend_from_slice(actions);
        jobs.send(job).map_err(|_| ended())
    }

    fn finish(&mut self, masks: &mut [bool]) -> Result<&StepBuffers> {
        let job = self.job.insert(self.done.recv().map_err(|_| ended())?);
        masks.copy_from_slice(&job.masks);
        std::mem::replace(&mut job.outcome, Ok(())).map(|()| &job.buffers)
    }

    pub(super) fn begin_reset(&mut self, seed: u64) -> Result<()> {
        self.begin(Task::Reset(seed), &[])
    }

    pub(super) fn finish_reset(&mut self, observations: &mut [f32], masks: &mut [bool]) -> Result<()> {
        observations.copy_from_slice(&self.finish(masks)?.observations);
        Ok(())
    }

    pub(super) fn begin_step(&mut self, actions: &[f32]) -> Result<()> {
        self.begin(Task::Step, actions)
    }

    pub(super) fn finish_step(&mut self, out: &mut StepSlices<'_>, masks: &mut [bool]) -> Result<()> {
        let made = self.finish(masks)?;
        out.observations.copy_from_slice(&made.observations);
        out.rewards.copy_from_slice(&made.rewards);
        out.terminated.copy_from_slice(&made.terminated);
        out.truncated.copy_from_slice(&made.truncated);
        let width = made.observations.len() / made.rewards.len();
        for row in (0..made.rewards.len()).filter(|row| made.terminated[*row] || made.truncated[*row]) {
            let numbers = row * width..(row + 1) * width;
            out.final_observations[numbers.clone()].copy_from_slice(&made.final_observations[numbers]);
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It only fails if an environment panics when it is dropped, and that has been printed.
            thread.join().ok();
        }
    }
}
