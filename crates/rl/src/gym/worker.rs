//! A process with some of the environments, which is restarted if it fails.

use std::fs;
use std::ops::Range;
use std::sync::Arc;

use polygrad_core::{Error, ErrorKind, Result, Rng};
use serde_json::Value;

use super::envs::Source;
use super::hello::Hello;
use super::memory::{Memory, Outcome, Widths};
use super::process::{Failure, Process};
use crate::fault::not_finite;
use crate::{StepSlices, episode_rng};

/// A process and the memory that it shares with us.
pub(super) struct Link {
    pub(super) process: Process,
    pub(super) memory: Memory,
    pub(super) hello: Hello,
}

impl Link {
    /// Takes a started process and waits until its environments are ready.
    pub(super) fn new(mut process: Process, source: &Source, rows: usize) -> Result<Self, Failure> {
        let hello = Hello::hear(&mut process)?;
        let garbled = |error: Error| Failure::Garbled(error.message().to_owned());
        let (observation, action) = (hello.observation().map_err(garbled)?, hello.action().map_err(garbled)?);
        if (&observation, &action) != (&source.observation, &source.action) {
            return Err(Failure::Garbled("its spaces are not what they were before".to_owned()));
        }
        if hello.agents != source.agents() {
            return Err(Failure::Garbled("it has other agents than before".to_owned()));
        }
        let widths = Widths {
            rows,
            action: action.len(),
            observation: observation.len(),
            picture: hello.picture_size().map_or(0, |[height, width]| 3 * height * width),
        };
        let (memory, path, told) = Memory::create(widths).map_err(Failure::Memory)?;
        process.tell(format!("{told}\n").as_bytes());
        let heard = process.hear();
        // Both sides have the file open, so that it disappears when both have ended, in whatever way.
        fs::remove_file(path).ok();
        heard?;
        Ok(Self { process, memory, hello })
    }
}

/// The seed of an episode's `reset`; some environments need it in 31 bits.
pub(super) fn seed_of(rng: &mut Rng) -> u64 {
    rng.next_u64() >> 33
}

pub(super) struct Worker {
    source: Arc<Source>,
    /// The rows that belong to its environments.
    pub(super) rows: Range<usize>,
    link: Option<Link>,
    seed: u64,
    /// The number of each row's episode, from 0 after a reset.
    pub(super) episodes: Vec<u64>,
    /// The last observations.
    seen: Vec<f32>,
    outcomes: Vec<Outcome>,
    /// Failures since the last episode that ended by itself.
    failures: usize,
    pub(super) notices: Vec<String>,
    /// Whether a step is running.
    pub(super) busy: bool,
}

impl Worker {
    /// Takes a process that was started for it.
    pub(super) fn new(source: &Arc<Source>, rows: Range<usize>, process: Process) -> Result<Self> {
        let link = Link::new(process, source, rows.len());
        Ok(Self {
            link: Some(link.map_err(|failure| source.error(failure))?),
            seed: 0,
            episodes: vec![0; rows.len()],
            seen: vec![0.0; rows.len() * source.observation.len()],
            outcomes: Vec::new(),
            failures: 0,
            notices: Vec::new(),
            busy: false,
            source: Arc::clone(source),
            rows,
        })
    }

    fn width(&self) -> usize {
        self.source.observation.len()
    }

    /// Begins the episodes with these numbers.
    pub(super) fn reset(&mut self, seed: u64, episodes: &[u64], observations: &mut [f32]) -> Result<()> {
        (self.seed, self.failures, self.busy) = (seed, 0, false);
        self.episodes.copy_from_slice(episodes);
        if let Err(failure) = self.begin_episodes() {
            self.start_anew(failure)?;
        }
        self.look()?;
        observations.copy_from_slice(&self.seen);
        Ok(())
    }

    fn seeds(&self, ahead: u64) -> impl Iterator<Item = u64> {
        let numbered = self.rows.clone().zip(self.episodes.iter());
        numbered.map(move |(row, episode)| {
            let env = row / self.source.agents();
            seed_of(&mut episode_rng(self.seed, env, episode + ahead))
        })
    }

    fn begin_episodes(&mut self) -> Result<(), Failure> {
        let (now, next): (Vec<u64>, Vec<u64>) = (self.seeds(0).collect(), self.seeds(1).collect());
        let link = self.link.as_mut().ok_or(Failure::Ended(None))?;
        link.memory.write_seeds(now.into_iter()).map_err(Failure::Memory)?;
        link.process.tell(b"r");
        link.process.hear()?;
        link.memory.write_seeds(next.into_iter()).map_err(Failure::Memory)?;
        link.memory.read_observations(&mut self.seen).map_err(Failure::Memory)
    }

    /// Starts a step. A failure shows in [`finish`](Self::finish).
    pub(super) fn begin(&mut self, actions: &[f32]) {
        self.busy = true;
        let Some(link) = &mut self.link else { return };
        match link.memory.write_actions(actions) {
            Ok(()) => link.process.tell(b"s"),
            Err(_) => self.link = None,
        }
    }

    fn hear(&mut self, observations: &mut [f32]) -> Result<(), Failure> {
        let link = self.link.as_mut().ok_or(Failure::Ended(None))?;
        link.process.hear()?;
        link.memory
            .read_step(&mut self.outcomes, observations)
            .map_err(Failure::Memory)
    }

    /// Waits for the running step, and writes its rows to `out`.
    pub(super) fn finish(&mut self, out: &mut StepSlices<'_>) -> Result<()> {
        self.busy = false;
        match self.hear(out.observations) {
            Ok(()) => self.take(out)?,
            Err(failure) => self.cut_short(failure, out)?,
        }
        self.look()
    }

    fn take(&mut self, out: &mut StepSlices<'_>) -> Result<()> {
        let width = self.width();
        let mut ended = false;
        for (i, outcome) in self.outcomes.iter().enumerate() {
            let reward = outcome.reward as f32;
            if !reward.is_finite() {
                return Err(self.fault(i, &format!("gave the reward {}", outcome.reward)));
            }
            (out.rewards[i], out.terminated[i], out.truncated[i]) = (reward, outcome.terminated, outcome.truncated);
            if outcome.ended() {
                ended = true;
                let last = &mut out.final_observations[i * width..(i + 1) * width];
                let link = self
                    .link
                    .as_mut()
                    .ok_or_else(|| self.source.error(Failure::Ended(None)))?;
                let read = link.memory.read_final(i, last);
                read.map_err(|error| self.source.error(Failure::Memory(error)))?;
                if !last.iter().all(|x| x.is_finite()) {
                    return Err(self.fault(i, &not_finite(last)));
                }
                self.episodes[i] += 1;
            }
        }
        self.seen.copy_from_slice(out.observations);
        if ended {
            self.failures = 0;
            let seeds: Vec<u64> = self.seeds(1).collect();
            if let Some(link) = &mut self.link {
                let written = link.memory.write_seeds(seeds.into_iter());
                written.map_err(|error| self.source.error(Failure::Memory(error)))?;
            }
        }
        Ok(())
    }

    /// Truncates all its episodes at the last observations, and begins the next ones in a new process.
    fn cut_short(&mut self, failure: Failure, out: &mut StepSlices<'_>) -> Result<()> {
        out.final_observations.copy_from_slice(&self.seen);
        out.rewards.fill(0.0);
        out.terminated.fill(false);
        out.truncated.fill(true);
        self.episodes.iter_mut().for_each(|episode| *episode += 1);
        self.start_anew(failure)?;
        out.observations.copy_from_slice(&self.seen);
        Ok(())
    }

    /// Begins its episodes in a new process, and retries until the limit of failures.
    fn start_anew(&mut self, mut failure: Failure) -> Result<()> {
        let most = self.source.config.max_failures;
        loop {
            self.link = None;
            self.failures += 1;
            if self.failures >= most {
                let message = format!("{} {failure}", self.title());
                let times = match self.failures {
                    1 => "it failed",
                    _ => "it failed again, and none of its episodes ended by itself in between",
                };
                let hint = "look at the environment, in Python's own words on standard error";
                return Err(Error::new(ErrorKind::Io, format!("{message}; {times}")).with_hint(hint));
            }
            self.notices.push(format!(
                "{} {failure}; it begins new episodes in a new process (failure {} of {most})",
                self.title(),
                self.failures
            ));
            let rows = self.rows.len();
            let request = self.source.request(rows / self.source.agents(), false);
            let process = Process::start(&self.source.config, &request);
            let link = process.and_then(|process| Link::new(process, &self.source, rows));
            let begun = link.and_then(|link| {
                self.link = Some(link);
                self.begin_episodes()
            });
            match begun {
                Ok(()) => return Ok(()),
                Err(next) => failure = next,
            }
        }
    }

    fn title(&self) -> String {
        let agents = self.source.agents();
        let (first, last) = (self.rows.start / agents, (self.rows.end - 1) / agents);
        let envs = match first == last {
            true => format!("environment {first}"),
            false => format!("environments {first} to {last}"),
        };
        format!("the process of {envs} of {}", self.source.title())
    }

    fn look(&self) -> Result<()> {
        let mut rows = self.seen.chunks(self.width().max(1)).enumerate();
        match rows.find(|(_, row)| !row.iter().all(|x| x.is_finite())) {
            Some((i, row)) => Err(self.fault(i, &not_finite(row))),
            None => Ok(()),
        }
    }

    fn fault(&self, i: usize, what: &str) -> Error {
        let (index, episode) = ((self.rows.start + i) / self.source.agents(), self.episodes[i]);
        let message = format!(
            "environment {index} of {} {what} (episode {episode})",
            self.source.title()
        );
        let seed = seed_of(&mut episode_rng(self.seed, index, episode));
        Error::invalid(message).with_hint(format!("`env.reset(seed={seed})` begins this episode again in Python"))
    }
}

impl Hello {
    /// Reads the first message of a process.
    pub(super) fn hear(process: &mut Process) -> Result<Self, Failure> {
        let value: Value = process.hear()?.unwrap_or_default();
        serde_json::from_value(value).map_err(|error| Failure::Garbled(error.to_string()))
    }
}
