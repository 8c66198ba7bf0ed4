//! `polygrad train cartpole` and the like: policies that learn in environments.

mod args;
pub(crate) mod eval;
#[cfg(feature = "onnx")]
pub(crate) mod export;
pub(crate) mod list;
pub(crate) mod play;
#[cfg(feature = "onnx")]
pub(crate) mod quantize;
mod replay;
mod screen;
mod set;
mod settings;
mod taught;

use std::path::Path;
use std::sync::Arc;

use polygrad::communicator::Communicator;
use polygrad::rl::zoo::{EnvSpec, Stepping};
use polygrad::rl::{Agent, Annealed, MemoryConfig, Standing};
use polygrad::train::RunConfig;
use polygrad::{Device, ErrorKind, manual_seed};

use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::progress::{grouped, say, short};
use crate::run::config::Base;
use crate::run::resume_command;
use crate::task::Task;
use crate::train::resumed::{Fixed, changed, of_base};
use crate::train::session::{Session, Trained};
use settings::{MEMORY_SIZE, environments};
use taught::Taught;

pub(crate) use args::{Play, TrainArgs};
pub(crate) use settings::{PolicyKind, Settings};

impl Settings {
    /// Fails if self-play is requested but the environment is no game for it.
    fn check_self_play(&self, spec: &EnvSpec) -> polygrad::Result<()> {
        let Some(config) = &self.self_play else { return Ok(()) };
        config.check()?;
        spec.game()?;
        if self.policy.memory.is_some() {
            return Err(
                polygrad::Error::unsupported("a policy with memory cannot be an opponent")
                    .with_hint("leave --policy out, or let it learn as both players: --set self_play=null"),
            );
        }
        match (self.env_threads, self.asynchronous) {
            (1, false) => Ok(()),
            _ => Err(
                polygrad::Error::unsupported("games of self-play step in one thread").with_hint(
                    "leave --env-threads and --async out, or let it learn as both players: --set self_play=null",
                ),
            ),
        }
    }

    /// The agent that learns.
    fn agent(&self, spec: &EnvSpec, device: &Device, group: Option<&Arc<dyn Communicator>>) -> Result<Box<dyn Agent>> {
        if let Some(taught) = self.taught.as_ref().filter(|_| group.is_none()) {
            let (envs, lesson) = (spec.make(self.envs, self.stepping())?, taught.lesson(self, spec)?);
            return Ok(self.algorithm.taught(envs, &self.policy, device, lesson)?);
        }
        let Some(config) = &self.self_play else {
            let envs = spec.make(self.envs, self.stepping())?;
            return Ok(self.algorithm.agent(envs, &self.policy, device, group)?);
        };
        self.check_self_play(spec)?;
        if group.is_some() {
            return Err(Failure::new("self-play learns in one process")
                .fix("leave --parallel out, or let it learn as both players: --set self_play=null"));
        }
        let learns = (&self.algorithm, &self.policy);
        Ok(Box::new(spec.self_play(self.envs, config, learns, device)?))
    }
}

impl Task for Settings {
    type Args = TrainArgs;
    type Data = ();

    const LEARNS: &'static str = "policy";

    fn new(args: &TrainArgs) -> Result<Self> {
        let environment = args.every.dataset.as_deref().unwrap_or_default();
        let gym = args.gym.settings(environment, None)?;
        let spec = settings::open(environment, gym.as_ref())?;
        let mut known = spec.preset(args.algorithm.as_deref(), args.preset.as_deref())?;
        set::apply(&mut known, args.settings.as_deref(), &args.set)?;
        if let Some(kind) = args.policy {
            let size = known.policy.memory.map_or(MEMORY_SIZE, |memory| memory.hidden_size);
            known.policy.memory = kind.memory().map(|kind| MemoryConfig::new(kind, size));
        }
        if let Some(seed) = args.every.seed {
            *known.algorithm.seed_mut() = seed;
        }
        if let Some(steps) = args.total_steps {
            *known.algorithm.total_steps_mut() = steps;
        }
        if let Some(rate) = args.every.lr {
            *known.algorithm.learning_rate_mut() = match known.algorithm.learning_rate() {
                Annealed::Constant(_) => Annealed::Constant(rate),
                Annealed::Linear(..) => Annealed::Linear(rate, 0.0),
            };
        }
        let settings = Self {
            base: Base::new(Kind::Rl, &args.every),
            environment: spec.name.to_owned(),
            gym,
            envs: args.envs.unwrap_or(known.num_envs),
            env_threads: args.env_threads.unwrap_or(1),
            asynchronous: args.asynchronous,
            policy: known.policy,
            self_play: known.self_play,
            taught: Taught::of(args, &known.algorithm)?,
            algorithm: known.algorithm,
        };
        let checked = settings.algorithm.check(&settings.policy, settings.envs);
        let checked = checked.and_then(|()| settings.check_self_play(spec));
        checked.map_err(|error| {
            // The names of settings are the user's words here, and a hint may have them.
            let fix = error.hint().map(str::to_owned);
            let own = "give it another value, by --set, --settings or the option of its own".to_owned();
            Failure::from(error).fix(fix.unwrap_or(own))
        })?;
        Ok(settings)
    }

    fn resumed(&self, args: &TrainArgs, run: &Path) -> Result<Self> {
        let (mut settings, mut fixed) = (self.clone(), Fixed::default());
        fixed.option("the environment", args.every.dataset.clone(), self.environment.clone());
        fixed.option("--envs", args.envs, self.envs);
        let policy = PolicyKind::of(&self.policy).name();
        fixed.option("--policy", args.policy.map(PolicyKind::name), policy);
        let algorithm = &self.algorithm;
        fixed.option("--algorithm", args.algorithm.clone(), algorithm.name().to_owned());
        fixed.option("--seed", args.every.seed, algorithm.seed());
        fixed.option("--lr", args.every.lr, algorithm.learning_rate().at(0.0));
        let fewer = args.total_steps.filter(|&steps| steps < algorithm.total_steps());
        fixed.option("--total-steps", fewer, algorithm.total_steps());
        fixed.check(run)?;
        settings.base.resume(&args.every);
        *settings.algorithm.total_steps_mut() = args.total_steps.unwrap_or(algorithm.total_steps());
        settings.env_threads = args.env_threads.unwrap_or(self.env_threads);
        settings.asynchronous |= args.asynchronous;
        settings.gym = args.gym.settings(&self.environment, self.gym.as_ref())?;
        Ok(settings)
    }

    fn changes(&self, before: &Self) -> Vec<String> {
        let steps = [before, self].map(|settings| settings.algorithm.total_steps().to_string());
        let note = "; annealed values continue as if it had been set so from the start";
        changed(std::iter::once(("total steps", steps, note)).chain(of_base(&before.base, &self.base)))
    }

    fn title(&self) -> Vec<String> {
        vec![self.environment.clone(), self.network()]
    }

    fn load(&self) -> Result<()> {
        Ok(())
    }

    fn describe(&mut self, (): &()) -> Result<()> {
        Ok(())
    }

    fn other_data(&self, _found: &Self, path: &Path) -> Failure {
        Failure::new(format!("{} was trained in another environment", path.shown()))
    }

    fn train(&self, (): &(), device: &Device, session: Session<'_>) -> Result<Trained> {
        manual_seed(self.algorithm.seed());
        let spec = self.spec()?;
        let mut agent = self.agent(spec, device, session.team.group())?;
        let total = agent.total_steps();
        let about = [
            format!(
                "{}: {}; {}, {} steps",
                spec.name,
                spec.description,
                environments(self.envs),
                grouped(total)
            ),
            format!(
                "{} of {} parameters with {}, {} steps an iteration, learning rate {}, on {device}",
                self.network(),
                grouped(agent.num_parameters() as u64),
                agent.algorithm(),
                grouped(agent.steps_per_advance()),
                short(self.algorithm.learning_rate().at(0.0))
            ),
        ];
        session.introduce(&about, "as many environments");
        let folder = session.folder.clone();
        let options = session.options(self, RunConfig::steps(total), "steps", "--total-steps")?;
        let summary = options.train(&mut *agent).map_err(|error| match error.kind() {
            ErrorKind::Io if folder.checkpoint().exists() => {
                Failure::from(error).then(&format!("go on from the last checkpoint: {}", resume_command(&folder)))
            }
            _ => error.into(),
        })?;
        for Standing { name, rating, games } in agent.standings() {
            say(&format!("  Elo {rating:6.0}  {name}, {} games", grouped(games)));
        }
        let result = agent.mean_return().map(|mean| {
            let solved = match spec.reward_threshold {
                Some(threshold) if mean >= threshold => {
                    format!(", which counts as solved (from {} on)", short(threshold))
                }
                Some(threshold) => format!(", which does not count as solved (from {} on)", short(threshold)),
                None => String::new(),
            };
            format!("mean return of the last episodes {mean:.1}{solved},")
        });
        Ok(Trained { summary, result })
    }

    fn metrics(&self, device: &Device) -> Result<Vec<String>> {
        let spec = self.spec()?;
        let agent = match self.taught {
            Some(_) => self.agent(spec, device, None)?,
            None => {
                let envs = spec.make(self.envs, Stepping::Serial)?;
                self.algorithm.agent(envs, &self.policy, device, None)?
            }
        };
        Ok(agent.metrics().into_iter().map(str::to_owned).collect())
    }

    fn length(&self) -> f64 {
        self.algorithm.total_steps() as f64
    }

    fn next(&self, path: &str) -> Vec<String> {
        vec![format!("polygrad play {path}"), format!("polygrad eval {path}")]
    }
}
