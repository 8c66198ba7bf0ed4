//! What `polygrad train` is told of an environment.

use std::path::PathBuf;

use clap::Args;
use polygrad::rl::zoo::Algorithm;

use super::PolicyKind;
use crate::args::{Every, count, positive, seed};
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

    /// Threads that step them [default: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) env_threads: Option<usize>,

    /// Let them step in threads of their own while the policy computes
    #[arg(long = "async")]
    pub(crate) asynchronous: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Play {
    /// The folder that `train` left
    pub(crate) run: PathBuf,

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
