//! The command line of the laboratory.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use polygrad::DType;
use polygrad_console::arguments::{json_file, png_file, positive};

use crate::plan::args::Plan;
use crate::profile::args::Profile;
use crate::profile::subject::Training;

/// The commands, for the command line of a program that can train with the options `T`.
#[derive(Debug, Subcommand)]
pub enum Command<T: Training> {
    /// Compare a backend with PyTorch: values, gradients and errors of every op
    Check(Check),
    /// Time training steps and ops, on one or several backends and against other libraries
    Bench(Bench),
    /// Show where training steps spend their time: by op, shape and module, as tables and as a trace
    Profile(Profile<T>),
    /// Predict the time, communication and memory of a training step on many ranks
    Plan(Plan),
    /// Train policies with several seeds, and compare their returns with published ones
    Returns(Returns),
}

#[derive(Debug, Args)]
pub struct Check {
    /// Backend to check, such as cpu or cpu:kernels=scalar; `polygrad devices` lists them
    pub(crate) backend: String,

    /// What to check
    #[arg(long, value_enum, default_value = "test")]
    pub(crate) mode: Mode,

    /// Run only cases of this op, by its PyTorch name, such as nn.functional.linear
    #[arg(long)]
    pub(crate) op: Option<String>,

    /// Run only the case of this name, as reports print it, with or without its dtype
    #[arg(long, value_name = "NAME")]
    pub(crate) case: Option<String>,

    /// Run only N cases of each op in each dtype, for a quick check or a slow device
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) sample: Option<usize>,

    /// Use the test vectors in this folder instead of the cases that come with Polygrad
    #[arg(long, value_name = "DIR")]
    pub(crate) vectors: Option<PathBuf>,

    /// Write the result of each case to this file
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(json_file))]
    pub(crate) json: Option<PathBuf>,

    /// With --mode programs, graphs or trainings: random seed [default: 0]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,

    /// With --mode programs, graphs or trainings: how many to generate [default: 500]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// With --mode programs, graphs or trainings: number of the first one [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) first: Option<u64>,

    /// With --mode programs: float dtype to run them in: f16, bf16, f32 or f64 [default: f32]
    #[arg(long, value_name = "DTYPE", value_parser = float)]
    pub(crate) dtype: Option<DType>,

    /// With --mode programs or graphs: save failures to this folder; programs in it are run first
    #[arg(long, value_name = "DIR")]
    pub(crate) cases: Option<PathBuf>,

    /// Run ONNX graphs with third-party engines for a search, as requested on standard input
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
}

#[derive(Debug, Args)]
pub struct Bench {
    /// Workload to time, such as mlp-rl, or some of its cases, such as mlp-rl/adam or elementwise/exp [default: all]
    #[arg(value_name = "WORKLOAD[/CASE]")]
    pub(crate) workloads: Vec<String>,

    /// Backend to compute with, such as cpu or cpu:kernels=scalar, or all for every available one; if repeated, the
    /// backends take turns and are compared with the first
    #[arg(long, default_value = "cpu")]
    pub(crate) backend: Vec<String>,

    /// Threads of the CPU backend and of the peers [default: 1, or all cores with several backends]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// Seconds to time each case; up to five times as long if it is too short for 30 steps
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Capture training steps and replay them; uncaptured steps are timed too, in turn with those
    #[arg(long)]
    pub(crate) captured: bool,

    /// Also time these peers, in turn with Polygrad: torch, torch-compile, jax, candle, burn, tch, floor, or your own
    /// programs
    #[arg(long, value_name = "PEERS", value_delimiter = ',')]
    pub(crate) against: Vec<String>,

    /// Seconds that a peer may take to respond, for example to prepare a case; after that it is ended, and the others
    /// continue
    #[arg(long, value_name = "S", default_value = "300", value_parser = seconds)]
    pub(crate) patience: f64,

    /// Plot how the others compare with the first, to this file
    #[arg(long, value_name = "FILE.png", value_parser = PathBufValueParser::new().try_map(png_file))]
    pub(crate) plot: Option<PathBuf>,

    /// Act as a peer: answer requests from standard input
    #[arg(long, hide = true)]
    pub(crate) serve: bool,

    /// Act as a peer of several processes, which a launcher started; the first one answers
    #[arg(long, value_name = "ENGINE", hide = true, requires = "serve")]
    pub(crate) parallel: Option<String>,

    /// Write the figures to this file
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(json_file))]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Returns {
    /// Environment to train in, such as cartpole, or a single training, such as cartpole/cleanrl [default: all]
    #[arg(value_name = "ENVIRONMENT[/SETTINGS]")]
    pub(crate) trainings: Vec<String>,

    /// Number of seeds to train with: 0, 1 and so on
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    pub(crate) seeds: usize,

    /// Backend to compute with, such as cpu; `polygrad devices` lists them
    #[arg(long, default_value = "cpu")]
    pub(crate) backend: String,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// Distribute the seeds over the processes that a launcher started (engines as for `train --parallel`); a process
    /// waits at most its timeout for the longest training
    #[arg(long, value_name = "ENGINE")]
    pub(crate) parallel: Option<String>,

    /// Plot the returns over the steps, to this file
    #[arg(long, value_name = "FILE.png", value_parser = PathBufValueParser::new().try_map(png_file))]
    pub(crate) plot: Option<PathBuf>,
}

/// The questions of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Values, recorded gradients and errors
    Test,
    /// Gradients: against recorded ones, and against finite differences of first and second order
    Grad,
    /// Time of common calls
    Perf,
    /// Table of supported ops and dtypes, written to docs/ops.md
    Support,
    /// Random programs, compared with the reference in f64: as written, captured, compiled and trained
    Programs,
    /// Random ONNX graphs, compared node by node, fused, and with ONNX Runtime if it is available
    Graphs,
    /// Small random trainings, compared with other thread counts, captured, resumed, and on two ranks
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
