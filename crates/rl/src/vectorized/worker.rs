//! Threads with their own environments. Memory is sent to them with a job and returned with it, so that nothing is
//! shared.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use polygrad_core::{Error, ErrorKind, Result};

use super::saved::Episode;
use super::shard::Shard;
use crate::{Env, StepBuffers, StepSlices};

#[derive(Clone, Copy)]
enum Task {
    Reset(u64),
    Step,
    Save,
    Restore(u64),
}

struct Job {
    task: Task,
    /// Index among the thread's shards.
    shard: usize,
    actions: Vec<f32>,
    buffers: StepBuffers,
    masks: Vec<bool>,
    /// The episodes to save or restore.
    episodes: Vec<Episode>,
    outcome: Result<()>,
}

impl Job {
    fn new(shard: usize, rows: usize, width: usize, masks: usize) -> Self {
        Self {
            task: Task::Step,
            shard,
            actions: Vec::new(),
            buffers: StepBuffers::with_rows(rows, width),
            masks: vec![true; masks],
            episodes: Vec::new(),
            outcome: Ok(()),
        }
    }

    fn run<E: Env<A>, const A: usize>(&mut self, shard: &mut Shard<E, A>) -> Result<()> {
        let (observations, masks) = (&mut self.buffers.observations, &mut self.masks);
        match self.task {
            Task::Reset(seed) => shard.reset(seed, observations, masks),
            Task::Step => shard.step(&self.actions, &mut self.buffers.as_mut(), masks),
            Task::Save => {
                self.episodes = shard.save()?;
                Ok(())
            }
            Task::Restore(seed) => shard.restore(seed, &std::mem::take(&mut self.episodes), observations, masks),
        }
    }
}

/// Workers and their threads: the workers are dropped first, which ends the threads.
#[derive(Default)]
pub(super) struct Workers {
    pub(super) all: Vec<Worker>,
    threads: Vec<Joined>,
}

/// Waits for its thread when it is dropped.
struct Joined(Option<JoinHandle<()>>);

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // Joining only fails if an environment panics in its drop, and that panic has been printed.
            thread.join().ok();
        }
    }
}

/// The handle of one shard, in a thread that may have several.
pub(super) struct Worker {
    /// Its rows among those of all shards.
    rows: Range<usize>,
    shard: usize,
    jobs: SyncSender<Job>,
    done: Receiver<Job>,
    /// `None` while the thread has it.
    job: Option<Job>,
}

fn ended() -> Error {
    Error::invalid("a thread of environments has ended").with_hint("make the environments anew")
}

fn work<E: Env<A>, const A: usize>(mut shards: Vec<(Shard<E, A>, SyncSender<Job>)>, jobs: &Receiver<Job>) {
    while let Ok(mut job) = jobs.recv() {
        let (shard, done) = &mut shards[job.shard];
        job.outcome = job.run(shard);
        if done.send(job).is_err() {
            return;
        }
    }
}

impl Workers {
    /// A worker for each shard. The shards are dealt in turn to `threads` threads.
    pub(super) fn start<E, const A: usize>(shards: Vec<Shard<E, A>>, threads: usize) -> Result<Self>
    where
        E: Env<A> + Send + 'static,
    {
        let mut workers = Self::default();
        let mut channels = Vec::new();
        for _ in 0..threads {
            channels.push((sync_channel(shards.len()), Vec::new()));
        }
        for (index, shard) in shards.into_iter().enumerate() {
            let ((jobs, _), own) = &mut channels[index % threads];
            let (sent, done) = sync_channel(1);
            workers.all.push(Worker {
                rows: shard.rows(),
                shard: own.len(),
                jobs: jobs.clone(),
                done,
                job: Some(Job::new(
                    own.len(),
                    shard.rows().len(),
                    shard.observation_len(),
                    shard.masks_len(),
                )),
            });
            own.push((shard, sent));
        }
        for (index, ((_, received), own)) in channels.into_iter().enumerate() {
            let builder = thread::Builder::new().name(format!("environments {index}"));
            let thread = builder.spawn(move || work(own, &received)).map_err(|error| {
                let message = format!("no thread for environments could be started: {error}");
                Error::new(ErrorKind::Unsupported, message).with_hint("`Vectorized::new` needs none")
            })?;
            workers.threads.push(Joined(Some(thread)));
        }
        Ok(workers)
    }
}

impl Worker {
    pub(super) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Whether the thread has a job, running or finished, whose result was not taken yet.
    pub(super) fn is_busy(&self) -> bool {
        self.job.is_none()
    }

    /// Waits for the thread's job, and discards its result.
    pub(super) fn settle(&mut self) {
        if self.is_busy() {
            self.job = self.done.recv().ok();
        }
    }

    fn begin(&mut self, task: Task, prepare: impl FnOnce(&mut Job)) -> Result<()> {
        let mut job = self.job.take().ok_or_else(ended)?;
        job.task = task;
        prepare(&mut job);
        self.jobs.send(job).map_err(|_| ended())
    }

    fn finish(&mut self, masks: &mut [bool]) -> Result<&StepBuffers> {
        let job = self.job.insert(self.done.recv().map_err(|_| ended())?);
        masks.copy_from_slice(&job.masks);
        std::mem::replace(&mut job.outcome, Ok(())).map(|()| &job.buffers)
    }

    pub(super) fn begin_reset(&mut self, seed: u64) -> Result<()> {
        self.begin(Task::Reset(seed), |_| {})
    }

    pub(super) fn begin_restore(&mut self, seed: u64, episodes: Vec<Episode>) -> Result<()> {
        self.begin(Task::Restore(seed), |job| job.episodes = episodes)
    }

    /// Takes the observations of a reset or a restored episode.
    pub(super) fn finish_observations(&mut self, observations: &mut [f32], masks: &mut [bool]) -> Result<()> {
        observations.copy_from_slice(&self.finish(masks)?.observations);
        Ok(())
    }

    pub(super) fn begin_step(&mut self, actions: &[f32]) -> Result<()> {
        self.begin(Task::Step, |job| {
            job.actions.clear();
            job.actions.extend_from_slice(actions);
        })
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

    /// Requests the episodes with a separate job, while the thread has none.
    pub(super) fn save(&self) -> Result<Vec<Episode>> {
        let mut job = Job::new(self.shard, 0, 0, 0);
        job.task = Task::Save;
        self.jobs.send(job).map_err(|_| ended())?;
        let job = self.done.recv().map_err(|_| ended())?;
        job.outcome.map(|()| job.episodes)
    }
}
