//! What `polygrad train` is told of an environment.

use clap::Args;

use super::PolicyKind;
use crate::args::{Every, count, positive};
use crate::train::line::RunArgs;

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) every: Every,

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

impl RunArgs for TrainArgs {
    const ABOUT: &'static str = "Learn to act in an environment; `polygrad list` names them";
    const USAGE: &'static str = "polygrad train ENVIRONMENT [OPTIONS]
       polygrad train --resume RUN [OPTIONS]";

    fn every(&self) -> &Every {
        &self.every
    }
}
