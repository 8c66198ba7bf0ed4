//! Environments of Gymnasium as a [`VectorEnv`].

use std::ops::Range;
use std::sync::Arc;

use polygrad_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::hello::{Hello, presets};
use super::process::{Failure, Process};
use super::scene::GymScene;
use super::worker::{Link, Worker};
use super::{GymConfig, PREFIX};
use crate::act::spaces::check_spaces;
use crate::vector::{all_at_once, check_len};
use crate::vectorized::{LEAST_ROWS, check_actions, read, write};
use crate::zoo::{EnvSpec, Factory, Preset, Stepping};
use crate::{Play, Policy, Space, StepSlices, VectorEnv};

/// A named environment and its properties.
pub(super) struct Source {
    name: String,
    pub(super) config: GymConfig,
    hello: Hello,
    pub(super) observation: Space,
    pub(super) action: Space,
}

impl Source {
    /// Gets the properties from a process.
    pub(super) fn new(name: &str, config: &GymConfig) -> Result<Self> {
        let fail = |failure: Failure| failure.into_error(&format!("{PREFIX}{name}"), config);
        let mut process = Process::start(config, &request(name, config, 1, false)).map_err(fail)?;
        let hello = Hello::hear(&mut process).map_err(fail)?;
        let spaces = || -> Result<_> {
            let (observation, action) = (hello.observation()?, hello.action()?);
            check_spaces(&observation, &action)?;
            Ok((observation, action))
        };
        let (observation, action) = spaces().map_err(|error| error.with_op(format!("{PREFIX}{name}")))?;
        Ok(Self {
            name: name.to_owned(),
            config: config.clone(),
            observation,
            action,
            hello,
        })
    }

    pub(super) fn title(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// Agents of each environment; each agent is a row.
    pub(super) fn agents(&self) -> usize {
        self.hello.agents
    }

    pub(super) fn error(&self, failure: Failure) -> Error {
        failure.into_error(&self.title(), &self.config)
    }

    pub(super) fn request(&self, envs: usize, play: bool) -> Value {
        request(&self.name, &self.config, envs, play)
    }

    /// Describes it as an environment known by name. This leaks its texts, so that callers do it once for each
    /// environment.
    pub(super) fn describe(self) -> EnvSpec {
        let hello = &self.hello;
        let description = format!(
            "an environment of Gymnasium {} in Python {} with NumPy {}",
            hello.gymnasium, hello.python, hello.numpy
        );
        let names: Vec<&'static str> = hello.names.iter().map(|name| leaked(name)).collect();
        EnvSpec {
            name: leaked(&self.title()),
            description: leaked(&description),
            max_episode_steps: hello.max_episode_steps,
            reward_threshold: hello.reward_threshold,
            observations: names.leak(),
            actions: &[],
            factory: Box::leak(Box::new(Made(Arc::new(self)))),
        }
    }
}

fn leaked(text: &str) -> &'static str {
    text.to_owned().leak()
}

fn request(name: &str, config: &GymConfig, envs: usize, play: bool) -> Value {
    json!({ "name": name, "args": config.args, "envs": envs, "play": play })
}

struct Made(Arc<Source>);

impl Factory for Made {
    fn presets(&self) -> Vec<Preset> {
        presets(&self.0.name, &self.0.observation, &self.0.action)
    }

    fn vectorize(&self, num_envs: usize, stepping: Stepping) -> Result<Box<dyn VectorEnv>> {
        Ok(Box::new(GymEnvs::new(&self.0, num_envs, stepping)?))
    }

    fn play<'p>(&self, policy: Option<&'p dyn Policy>, seed: u64) -> Result<Play<'p>> {
        let source = &self.0;
        let process = Process::start(&source.config, &source.request(1, true));
        let link = process.and_then(|process| Link::new(process, source, source.agents()));
        let scene = GymScene::new(link.map_err(|failure| source.error(failure))?);
        Play::of(Box::new(scene), policy, seed, (&source.observation, &source.action))
    }
}

/// Environments in processes.
struct GymEnvs {
    source: Arc<Source>,
    workers: Vec<Worker>,
    num_envs: usize,
    /// Whether the processes are groups that can step independently.
    grouped: bool,
    seed: u64,
    /// Whether there was a reset.
    begun: bool,
    /// Whether no step has failed since the last reset.
    ready: bool,
}

/// The saved state.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    seed: u64,
    episodes: Vec<u64>,
}

const STATE: &str = "the environments of Python";

impl GymEnvs {
    fn new(source: &Arc<Source>, num_envs: usize, stepping: Stepping) -> Result<Self> {
        let processes = match stepping {
            Stepping::Serial => 1,
            Stepping::Threaded(processes) => processes.min(num_envs),
            Stepping::Asynchronous(processes) => {
                let most = num_envs.min(num_envs * source.agents() / LEAST_ROWS);
                processes.max(2).min(most).max(1)
            }
        };
        if num_envs == 0 || processes == 0 {
            return Err(Error::invalid("there is nothing that could step").with_hint("take at least 1 environment"));
        }
        // All processes start at the same time.
        let (each, more) = (num_envs / processes, num_envs % processes);
        let mut started = Vec::with_capacity(processes);
        let mut first = 0;
        for number in 0..processes {
            let envs = each + usize::from(number < more);
            let rows = first..first + envs * source.agents();
            first = rows.end;
            let process = Process::start(&source.config, &source.request(envs, false));
            started.push((rows, process.map_err(|failure| source.error(failure))?));
        }
        let workers = started
            .into_iter()
            .map(|(rows, process)| Worker::new(source, rows, process));
        Ok(Self {
            workers: workers.collect::<Result<_>>()?,
            source: Arc::clone(source),
            num_envs,
            grouped: matches!(stepping, Stepping::Asynchronous(_)),
            seed: 0,
            begun: false,
            ready: false,
        })
    }

    /// Begins the episodes with these numbers.
    fn begin(&mut self, seed: u64, episodes: &[u64], observations: &mut [f32]) -> Result<()> {
        let width = self.source.observation.len();
        check_len("observations", observations.len(), self.rows() * width)?;
        (self.seed, self.begun, self.ready) = (seed, true, false);
        let mut nothing = crate::StepBuffers::new(self);
        for worker in &mut self.workers {
            let rows = worker.rows.clone();
            if worker.busy {
                worker.finish(&mut nothing.as_mut().rows(rows.clone()))?;
            }
            let observed = &mut observations[rows.start * width..rows.end * width];
            worker.reset(seed, &episodes[rows], observed)?;
        }
        self.ready = true;
        Ok(())
    }

    fn check_ready(&self, what: &str) -> Result<()> {
        if self.ready {
            return Ok(());
        }
        let message = format!("`{what}` before `reset`, or after a step that failed");
        Err(Error::invalid(message).with_hint("call `reset` first"))
    }

    /// The worker of a group, which must be stepping or not, as `busy` says.
    fn group(&mut self, group: usize, busy: bool) -> Result<&mut Worker> {
        if self.groups() == 1 {
            return Err(all_at_once());
        }
        let groups = self.workers.len();
        let what = if busy { "has begun no step" } else { "is still stepping" };
        match self.workers.get_mut(group) {
            None => Err(Error::out_of_range(format!("there is no group {group} of {groups}"))),
            Some(worker) if worker.busy == busy => Ok(worker),
            Some(_) => Err(Error::invalid(format!("group {group} {what}"))),
        }
    }
}

impl VectorEnv for GymEnvs {
    fn num_envs(&self) -> usize {
        self.num_envs
    }

    fn agents(&self) -> usize {
        self.source.agents()
    }

    fn observation_space(&self) -> &Space {
        &self.source.observation
    }

    fn action_space(&self) -> &Space {
        &self.source.action
    }

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.begin(seed, &vec![0; self.rows()], observations)
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        let width = self.source.action.len();
        check_len("actions", actions.len(), self.rows() * width)?;
        out.check(self)?;
        self.check_ready("step")?;
        if let Some(group) = self.workers.iter().position(|worker| worker.busy) {
            return Err(
                Error::invalid(format!("group {group} is still stepping")).with_hint("call `finish_step` first")
            );
        }
        check_actions(&self.source.action, 0, actions)?;
        for worker in &mut self.workers {
            worker.begin(&actions[worker.rows.start * width..worker.rows.end * width]);
        }
        // Waits for all workers, even if one fails.
        let workers = self.workers.iter_mut();
        let outcomes = workers.map(|worker| worker.finish(&mut out.rows(worker.rows.clone())));
        let outcome = outcomes.fold(Ok(()), Result::and);
        self.ready = outcome.is_ok();
        outcome
    }

    fn groups(&self) -> usize {
        if self.grouped { self.workers.len() } else { 1 }
    }

    fn group_rows(&self, group: usize) -> Range<usize> {
        match self.workers.get(group) {
            Some(worker) if self.groups() > 1 => worker.rows.clone(),
            _ if group == 0 => 0..self.rows(),
            _ => 0..0,
        }
    }

    fn begin_step(&mut self, group: usize, actions: &[f32]) -> Result<()> {
        self.check_ready("begin_step")?;
        let (action, rows) = (self.source.action.clone(), self.group_rows(group));
        let worker = self.group(group, false)?;
        check_len("actions", actions.len(), rows.len() * action.len())?;
        check_actions(&action, rows.start, actions)?;
        worker.begin(actions);
        Ok(())
    }

    fn finish_step(&mut self, group: usize, out: &mut StepSlices<'_>) -> Result<()> {
        out.check_rows(self.group_rows(group).len(), self.source.observation.len())?;
        let outcome = self.group(group, true)?.finish(out);
        self.ready &= outcome.is_ok();
        outcome
    }

    fn begins_anew(&self) -> bool {
        true
    }

    fn take_notices(&mut self) -> Vec<String> {
        let notices = self
            .workers
            .iter_mut()
            .map(|worker| std::mem::take(&mut worker.notices));
        notices.flatten().collect()
    }

    fn state(&self) -> Result<Value> {
        if !self.begun {
            self.check_ready("state")?;
        }
        let episodes = self.workers.iter().flat_map(|worker| worker.episodes.iter().copied());
        let saved = Saved {
            seed: self.seed,
            episodes: episodes.collect(),
        };
        write(STATE, &saved)
    }

    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        let saved: Saved = read(STATE, state)?;
        if saved.episodes.len() != self.rows() || saved.episodes.iter().any(|episode| *episode >= u64::from(u32::MAX)) {
            let (saved, envs) = (saved.episodes.len() / self.agents(), self.num_envs);
            let message = format!("the state is of {saved} environments with their episodes, here are {envs}");
            return Err(Error::new(ErrorKind::StateDict, message).with_hint("make as many as there were"));
        }
        let next: Vec<u64> = saved.episodes.iter().map(|episode| episode + 1).collect();
        self.begin(saved.seed, &next, observations)
    }
}
