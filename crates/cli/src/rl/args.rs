//! The arguments of `polygrad train` for environments.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use polygrad::rl::gym::{self, GymConfig};
use polygrad::rl::zoo::Algorithm;
use polygrad_console::arguments::{json_file, png_file};

use super::PolicyKind;
use crate::args::{Every, count, positive, seed};
use crate::failure::{Failure, Result};
use crate::train::line::RunArgs;

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) every: Every,

    /// Learning algorithm, with the environment's first preset for it [default: that of the preset]
    #[arg(long, value_name = "NAME", value_parser = Algorithm::NAMES)]
    pub(crate) algorithm: Option<String>,

    /// Preset of settings for the environment; `polygrad list` shows them [default: the first]
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub(crate) preset: Option<String>,

    /// File written by `polygrad play --record` for bc to learn from; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) demonstrations: Vec<PathBuf>,

    /// Run whose policy distill learns from
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    pub(crate) teacher: Option<PathBuf>,

    /// TOML file with settings of the algorithm, such as `gamma = 0.98`
    #[arg(long, value_name = "FILE.toml", conflicts_with = "resume")]
    pub(crate) settings: Option<PathBuf>,

    /// Setting of the algorithm, such as gamma=0.98, learning_rate=[1e-3,0] or policy.shared=true; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) set: Vec<String>,

    /// Number of environments that step together, in each process
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) envs: Option<usize>,

    /// Kind of policy [default: what the environment needs]
    #[arg(long, value_enum)]
    pub(crate) policy: Option<PolicyKind>,

    /// Total steps of all environments in all processes; with --resume, a larger number continues training
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 48))]
    pub(crate) total_steps: Option<u64>,

    /// Threads that step the environments; for Gymnasium, processes [default: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) env_threads: Option<usize>,

    /// Step the environments in their own threads or processes while the policy computes
    #[arg(long = "async")]
    pub(crate) asynchronous: bool,

    #[command(flatten)]
    pub(crate) gym: Gym,
}

/// What environments of Gymnasium are told.
#[derive(Debug, Args)]
pub(crate) struct Gym {
    /// Python with gymnasium, for environments gym:ID, gym:MODULE:ID and gym:FILE.py:CLASS [default: POLYGRAD_PYTHON if
    /// set, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,

    /// Keyword argument for such an environment, such as continuous=true or max_episode_steps=200; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) env_arg: Vec<String>,

    /// Seconds after which a Python process that does not respond is restarted [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) env_timeout: Option<f64>,

    /// End the run at the Nth failure of a process, if none of its episodes ended by itself in between [default: 3]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) env_failures: Option<usize>,
}

impl Gym {
    /// The first of these options that is given.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--python", self.python.is_some()),
            ("--env-arg", !self.env_arg.is_empty()),
            ("--env-timeout", self.env_timeout.is_some()),
            ("--env-failures", self.env_failures.is_some()),
        ];
        options.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// The previous settings of a run, or new ones, updated by these options. `None` for an environment that is not
    /// Gymnasium's.
    ///
    /// # Errors
    /// Options that do not apply; a text without a value; an invalid setting.
    pub(crate) fn settings(&self, environment: &str, before: Option<&GymConfig>) -> Result<Option<GymConfig>> {
        if !environment.starts_with(gym::PREFIX) {
            return match self.given() {
                Some(option) => Err(Failure::new(format!(
                    "{option} is for environments of Gymnasium, and {environment} is none"
                ))
                .fix("leave it out, or name one, such as gym:CartPole-v1")),
                None => Ok(None),
            };
        }
        let mut settings = before.cloned().unwrap_or_default();
        if self.python.is_some() {
            settings.python.clone_from(&self.python);
        }
        for text in &self.env_arg {
            let (key, value) = super::set::pair("--env-arg", "continuous=true", text)?;
            settings.args.insert(key, value);
        }
        settings.timeout = self.env_timeout.unwrap_or(settings.timeout);
        settings.max_failures = self.env_failures.unwrap_or(settings.max_failures);
        settings.check()?;
        Ok(Some(settings))
    }
}

/// Options that do not apply if no policy acts.
const OF_POLICIES: [&str; 7] = ["run", "episodes", "record", "sample", "seed", "backend", "threads"];

#[derive(Debug, Args)]
pub(crate) struct Play {
    /// Run folder written by `train`
    #[arg(required_unless_present = "replay")]
    pub(crate) run: Option<PathBuf>,

    /// Replay the episodes of a file written by `--record`, without the policy; fails if the environment behaves
    /// differently
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_POLICIES)]
    pub(crate) replay: Option<PathBuf>,

    /// Write the seed and the actions to this file, for `--replay`
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(json_file))]
    pub(crate) record: Option<PathBuf>,

    /// Number of episodes to play
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub(crate) episodes: usize,

    /// Write an animated PNG to this file, which browsers play
    #[arg(long, value_name = "FILE.png", value_parser = PathBufValueParser::new().try_map(png_file))]
    pub(crate) apng: Option<PathBuf>,

    /// Sample actions, as in training, instead of taking the most likely ones
    #[arg(long)]
    pub(crate) sample: bool,

    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seed)]
    pub(crate) seed: u64,

    /// Backend to compute with [default: the one the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

impl RunArgs for TrainArgs {
    const ABOUT: &'static str = "Train a policy in an environment; `polygrad list` lists them";
    const USAGE: &'static str = "polygrad train ENVIRONMENT [OPTIONS]
       polygrad train --resume RUN [OPTIONS]";

    fn every(&self) -> &Every {
        &self.every
    }
}
