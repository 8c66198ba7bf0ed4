//! `polygrad train cartpole` and its kin: policies that learn in environments.

pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod list;
pub(crate) mod play;
mod screen;
mod settings;

use std::path::Path;
use std::sync::Arc;

use polygrad::nn::Module;
use polygrad::rl::zoo;
use polygrad::rl::{Annealed, MemoryConfig, Ppo};
use polygrad::train::RunConfig;
use polygrad::{Device, ErrorKind, manual_seed};

use crate::args::Train;
use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::progress::{grouped, short};
use crate::run::config::Base;
use crate::run::resume_command;
use crate::task::Task;
use crate::train::resumed::{Fixed, changed, of_base};
use crate::train::session::{Session, Trained};
use settings::MEMORY_SIZE;

pub(crate) use settings::{PolicyKind, Settings};

/// Whether an environment is called so.
pub(crate) fn is_environment(name: &str) -> bool {
    zoo::find(name).is_ok()
}

impl Task for Settings {
    type Data = ();

    const LEARNS: &'static str = "policy";

    fn new(args: &Train) -> Result<Self> {
        let spec = zoo::find(args.dataset.as_deref().unwrap_or_default())?;
        let known = spec.hyperparameters();
        let (mut policy, mut ppo) = (known.policy, known.ppo);
        if let Some(kind) = args.rl.policy {
            let size = policy.memory.map_or(MEMORY_SIZE, |memory| memory.hidden_size);
            policy.memory = kind.memory().map(|kind| MemoryConfig::new(kind, size));
        }
        ppo.seed = args.seed.unwrap_or(0);
        ppo.total_steps = args.rl.total_steps.unwrap_or(ppo.total_steps);
        if let Some(rate) = args.lr {
            ppo.learning_rate = match ppo.learning_rate {
                Annealed::Constant(_) => Annealed::Constant(rate),
                Annealed::Linear(..) => Annealed::Linear(rate, 0.0),
            };
        }
        Ok(Self {
            base: Base::new(Kind::Rl, args),
            environment: spec.name.to_owned(),
            envs: args.rl.envs.unwrap_or(known.num_envs),
            env_threads: args.rl.env_threads.unwrap_or(1),
            asynchronous: args.rl.asynchronous,
            policy,
            ppo,
        })
    }

    fn resumed(&self, args: &Train, run: &Path) -> Result<Self> {
        let (mut settings, mut fixed) = (self.clone(), Fixed::default());
        fixed.option("the environment", args.dataset.clone(), self.environment.clone());
        fixed.option("--envs", args.rl.envs, self.envs);
        let policy = PolicyKind::of(&self.policy).name();
        fixed.option("--policy", args.rl.policy.map(PolicyKind::name), policy);
        fixed.option("--seed", args.seed, self.ppo.seed);
        let rate = self.ppo.learning_rate.at(0.0);
        fixed.option("--lr", args.lr, rate);
        let fewer = args.rl.total_steps.filter(|&steps| steps < self.ppo.total_steps);
        fixed.option("--total-steps", fewer, self.ppo.total_steps);
        fixed.check(run)?;
        settings.base.resume(args);
        settings.ppo.total_steps = args.rl.total_steps.unwrap_or(self.ppo.total_steps);
        settings.env_threads = args.rl.env_threads.unwrap_or(self.env_threads);
        settings.asynchronous |= args.rl.asynchronous;
        Ok(settings)
    }

    fn changes(&self, before: &Self) -> Vec<String> {
        let steps = [before, self].map(|settings| settings.ppo.total_steps.to_string());
        let note = "; what is annealed goes on as if that had been so from the start";
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
        manual_seed(self.ppo.seed);
        let spec = self.spec()?;
        let envs = spec.make(self.envs, self.stepping())?;
        let mut ppo = Ppo::new(envs, self.actor_critic(device)?, self.ppo.clone())?;
        if let Some(group) = session.team.group() {
            ppo = ppo.parallel(Arc::clone(group))?;
        }
        let total = ppo.iterations() * ppo.steps_per_iteration();
        let about = [
            format!(
                "{}: {}; {} environments, {} steps",
                spec.name,
                spec.description,
                self.envs,
                grouped(total)
            ),
            format!(
                "{} of {} parameters with PPO, {} steps an iteration, learning rate {}, on {device}",
                self.network(),
                grouped(ppo.policy().num_parameters() as u64),
                grouped(ppo.steps_per_iteration()),
                short(self.ppo.learning_rate.at(0.0))
            ),
        ];
        session.introduce(&about, "as many environments");
        let folder = session.folder.clone();
        let options = session.options(self, RunConfig::steps(total), "steps", "--total-steps")?;
        let summary = options.train(&mut ppo).map_err(|error| match error.kind() {
            ErrorKind::Io if folder.checkpoint().exists() => {
                Failure::from(error).then(&format!("go on from the last checkpoint: {}", resume_command(&folder)))
            }
            _ => error.into(),
        })?;
        let result = ppo.mean_return().map(|mean| {
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

    fn next(&self, path: &str) -> Vec<String> {
        vec![format!("polygrad play {path}"), format!("polygrad eval {path}")]
    }
}
