//! The command line of the laboratory.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use polygrad::DType;
use polygrad_console::arguments::positive;

use crate::plan::args::Plan;
use crate::profile::args::Profile;
use crate::profile::subject::Training;

/// The commands, for the command line of a program that can train with the options `T`.
#[derive(Debug, Subcommand)]
pub enum Command<T: Training> {
    /// Hold a backend to PyTorch: values, gradients and errors of every op
    Check(Check),
    /// Time training steps and ops: on one backend, on several in turn, and beside other libraries
    Bench(Bench),
    /// Say where the time of training steps goes: by op, shape and module, as tables and as a trace
    Profile(Profile<T>),
    /// Predict a training step on many ranks: time, communication and memory of each
    Plan(Plan),
    /// Train policies with several seeds, and compare what they reach with what is published
    Returns(Returns),
}

#[derive(Debug, Args)]
pub struct Check {
    /// What to check, such as cpu or cpu:kernels=scalar; `polygrad devices` lists what there is
    pub(crate) backend: String,

    /// Which questions to ask
    #[arg(long, value_enum, default_value = "test")]
    pub(crate) mode: Mode,

    /// Only cases of this op, by its PyTorch name, such as nn.functional.linear
    #[arg(long)]
    pub(crate) op: Option<String>,

    /// Only the case of this name, as reports print it, with or without its dtype
    #[arg(long, value_name = "NAME")]
    pub(crate) case: Option<String>,

    /// Only so many cases of each op in each dtype: a first look, or for a device that is slow
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) sample: Option<usize>,

    /// The vectors in this folder instead of the cases that come with Polygrad
    #[arg(long, value_name = "DIR")]
    pub(crate) vectors: Option<PathBuf>,

    /// Write how each case ended to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// With --mode programs, graphs or trainings: what they are drawn from [default: 0]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,

    /// With --mode programs, graphs or trainings: how many are drawn [default: 500]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// With --mode programs, graphs or trainings: the number of the first one [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) first: Option<u64>,

    /// With --mode programs: the float dtype that they run in: f16, bf16, f32 or f64 [default: f32]
    #[arg(long, value_name = "DTYPE", value_parser = float)]
    pub(crate) dtype: Option<DType>,

    /// With --mode programs or graphs: keep in this folder what fails; programs in it are run first
    #[arg(long, value_name = "DIR")]
    pub(crate) cases: Option<PathBuf>,

    /// Run ONNX graphs by the engines of others for a search: questions come from standard input
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
}

#[derive(Debug, Args)]
pub struct Bench {
    /// What to time: a workload such as mlp-rl, or some of its cases, such as mlp-rl/adam or elementwise/exp [default:
    /// all]
    #[arg(value_name = "WORKLOAD[/CASE]")]
    pub(crate) workloads: Vec<String>,

    /// What to compute with, such as cpu or cpu:kernels=scalar; given several times, they take turns and are compared
    /// with the first; all stands for every backend that is there
    #[arg(long, default_value = "cpu")]
    pub(crate) backend: Vec<String>,

    /// Threads of the CPU backend, and of the peers [default: 1, with several backends all cores]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// How long to time a case; longer where that is too short for 30 steps, but at most five times as long
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Record training steps and replay them; steps as they are written are timed too, in turn with those
    #[arg(long)]
    pub(crate) captured: bool,

    /// Time these peers too, in turn with Polygrad: torch, torch-compile, jax, candle, burn, tch, floor, or programs of
    /// your own
    #[arg(long, value_name = "PEERS", value_delimiter = ',')]
    pub(crate) against: Vec<String>,

    /// How long a peer may take for an answer, such as to make a case ready; then it is ended, and the others go on
    #[arg(long, value_name = "S", default_value = "300", value_parser = seconds)]
    pub(crate) patience: f64,

    /// Draw how the others compare with the first, to this file
    #[arg(long, value_name = "FILE.png")]
    pub(crate) plot: Option<PathBuf>,

    /// Be a peer: answer questions from standard input
    #[arg(long, hide = true)]
    pub(crate) serve: bool,

    /// Be a peer that is several processes, which a launcher has started; the first one answers
    #[arg(long, value_name = "ENGINE", hide = true, requires = "serve")]
    pub(crate) parallel: Option<String>,

    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Returns {
    /// What to train: an environment such as cartpole, or one training, such as cartpole/cleanrl [default: all]
    #[arg(value_name = "ENVIRONMENT[/SETTINGS]")]
    pub(crate) trainings: Vec<String>,

    /// How often to train, with the seeds 0, 1 and so on
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    pub(crate) seeds: usize,

    /// What to compute with, such as cpu; `polygrad devices` lists what there is
    #[arg(long, default_value = "cpu")]
    pub(crate) backend: String,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// Deal the seeds out to the processes that a launcher has started, as train's option of this name has them; a
    /// process waits as long as its timeout says for the longest training
    #[arg(long, value_name = "ENGINE")]
    pub(crate) parallel: Option<String>,

    /// Draw the returns over the steps, to this file
    #[arg(long, value_name = "FILE.png")]
    pub(crate) plot: Option<PathBuf>,
}

/// The questions of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Are values, recorded gradients and errors right?
    Test,
    /// Are gradients right: recorded ones, and differences of values to first and second order?
    Grad,
    /// How long do common calls take?
    Perf,
    /// Which ops in which dtypes? Written to docs/ops.md
    Support,
    /// Do whole programs, drawn at random, give what the reference gives in f64: as written, captured, compiled and
    /// trained?
    Programs,
    /// Do ONNX graphs, drawn at random, give the same node by node, fused, and by ONNX Runtime where it is there?
    Graphs,
    /// Do small trainings, drawn at random, end the same with other threads, captured, resumed, and by two ranks?
    Trainings,
}

impl Check {
    /// The first given option that does not apply to the mode.
    pub(crate) fn misplaced(&self) -> Option<&'static str> {
        let drawn = [
            ("--seed", self.seed.is_some()),
            ("--count", self.count.is_some()),
            ("--first", self.first.is_some()),
        ];
        let cases = [("--cases", self.cases.is_some())];
        let dtype = [("--dtype", self.dtype.is_some())];
        let asked = [
            ("--op", self.op.is_some()),
            ("--case", self.case.is_some()),
            ("--sample", self.sample.is_some()),
            ("--vectors", self.vectors.is_some()),
            ("--json", self.json.is_some()),
        ];
        let options: Vec<(&'static str, bool)> = match self.mode {
            Mode::Programs => asked.to_vec(),
            Mode::Graphs => [&asked[..], &dtype].concat(),
            Mode::Trainings => [&asked[..], &dtype, &cases].concat(),
            _ => [&drawn[..], &cases, &dtype].concat(),
        };
        options.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }
}

fn float(text: &str) -> Result<DType, String> {
    match text.parse::<DType>() {
        Ok(dtype) if dtype.is_float() => Ok(dtype),
        _ => Err("give f16, bf16, f32 or f64".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("give a number of seconds above 0, at most 3600".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use polygrad::Device;
    use polygrad_console::failure::{Failure, Result};

    use super::*;
    use crate::Subject;

    #[derive(Debug, Args)]
    struct Nothing {}

    impl Training for Nothing {
        fn subject(&self) -> Result<(Box<dyn Subject>, Device)> {
            Err(Failure::new("nothing is trained here"))
        }
    }

    #[derive(Debug, Parser)]
    struct Program {
        #[command(subcommand)]
        _command: Command<Nothing>,
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Program::command().debug_assert();
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (line, words) in [
            ("polygrad bench --seconds 0", "above 0"),
            ("polygrad check cpu --sample 0", "1 or more"),
            ("polygrad check cpu --mode programs --dtype i64", "bf16"),
        ] {
            let text = Program::try_parse_from(line.split(' ')).unwrap_err().to_string();
            assert!(text.contains(words), "{line}: {text}\nshould contain {words}");
        }
    }
}
