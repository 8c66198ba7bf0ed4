//! The arguments of `polygrad train` for environments.

use std::path::PathBuf;

use clap::Args;
use polygrad::rl::gym::{self, GymConfig};
use polygrad::rl::zoo::Algorithm;

use super::PolicyKind;
use crate::args::{Every, count, positive, seed};
use crate::failure::{Failure, Result};
use crate::train::line::RunArgs;

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) every: Every,

    /// How to learn, with the first settings of it that the environment has [default: that of the preset]
    #[arg(long, value_name = "NAME", value_parser = Algorithm::NAMES)]
    pub(crate) algorithm: Option<String>,

    /// Settings that the environment has under this name, as `polygrad list` says [default: the first]
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub(crate) preset: Option<String>,

    /// A file of `polygrad play --record` that bc learns from; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) demonstrations: Vec<PathBuf>,

    /// The run whose policy distill learns from
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    pub(crate) teacher: Option<PathBuf>,

    /// Settings of the algorithm from a TOML file, such as a line `gamma = 0.98`
    #[arg(long, value_name = "FILE.toml", conflicts_with = "resume")]
    pub(crate) settings: Option<PathBuf>,

    /// A setting of the algorithm, such as gamma=0.98, learning_rate=[1e-3,0] or policy.shared=true; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) set: Vec<String>,

    /// How many environments step together, in each process
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) envs: Option<usize>,

    /// The policy [default: what the environment needs]
    #[arg(long, value_enum)]
    pub(crate) policy: Option<PolicyKind>,

    /// Steps of all of them together, in all processes; with --resume, a larger number trains on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 48))]
    pub(crate) total_steps: Option<u64>,

    /// Threads that step them; of environments of Gymnasium, processes [default: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) env_threads: Option<usize>,

    /// Let them step in threads or processes of their own while the policy computes
    #[arg(long = "async")]
    pub(crate) asynchronous: bool,

    #[command(flatten)]
    pub(crate) gym: Gym,
}

/// What environments of Gymnasium are told.
#[derive(Debug, Args)]
pub(crate) struct Gym {
    /// The Python with gymnasium, for environments gym:ID, gym:MODULE:ID and gym:FILE.py:CLASS [default: what
    /// POLYGRAD_PYTHON names, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,

    /// What such an environment is made with, such as continuous=true or max_episode_steps=200; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) env_arg: Vec<String>,

    /// Seconds after which a Python process that does not answer is started anew [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) env_timeout: Option<f64>,

    /// Which failure of a process ends the run, if none of its episodes ends by itself in between [default: 3]
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
    /// The folder that `train` left
    #[arg(required_unless_present = "replay")]
    pub(crate) run: Option<PathBuf>,

    /// Show the episodes of a file that `--record` wrote, without their policy, and fail where the environment gives
    /// anything else than it did then
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_POLICIES)]
    pub(crate) replay: Option<PathBuf>,

    /// Write the seed and the actions to this file, for `--replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// How many episodes to play
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub(crate) episodes: usize,

    /// Write the pictures to this file, which browsers show as a film
    #[arg(long, value_name = "FILE.png")]
    pub(crate) apng: Option<PathBuf>,

    /// Draw actions by chance, as in training, in place of the likeliest ones
    #[arg(long)]
    pub(crate) sample: bool,

    /// Where the random numbers start
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seed)]
    pub(crate) seed: u64,

    /// What to compute with [default: what the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

impl RunArgs for TrainArgs {
    const ABOUT: &'static str = "Learn to act in an environment; `polygrad list` names them";
    const USAGE: &'static str = "polygrad train ENVIRONMENT [OPTIONS]
       polygrad train --resume RUN [OPTIONS]";

    fn every(&self) -> &Every {
        &self.every
    }
}
