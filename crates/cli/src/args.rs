//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::compare::work::Work;
use crate::onnx::Given;
use crate::profile::args::Profile;
use crate::run::config::{Model, Optimizer};

/// Train, evaluate and use image classifiers on any backend, and check the backends
#[derive(Debug, Parser)]
#[command(name = "polygrad", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model and leave it, its checkpoints and its curves in a run folder
    Train(Box<Train>),
    /// Measure a trained model on its test images
    Eval(Eval),
    /// Say what a trained model sees in a PNG file
    Predict(Predict),
    /// Run a model from an ONNX file
    Run(Run),
    /// Say what an ONNX file, a safetensors file or a run folder holds: graph, tensors, shapes, FLOPs
    Show(Show),
    /// Write a trained model as an ONNX file
    Export(ExportRun),
    /// Hold a backend to PyTorch: values, gradients and errors of every op
    Check(Check),
    /// Time the same work at several sizes on every backend that is there
    Compare(Compare),
    /// Time training steps and ops as other libraries are timed on them, and beside those libraries
    Bench(Bench),
    /// Say where the time of training steps goes: by op, shape and module, as tables and as a trace
    Profile(Profile),
    /// List the backends, their devices, and why others are missing
    Devices(Devices),
}

#[derive(Debug, Args)]
pub(crate) struct Train {
    /// The data set: fashion-mnist (a subset comes with Polygrad), or any name together with --data
    #[arg(value_name = "DATASET", value_parser = dataset_name, required_unless_present = "resume")]
    pub(crate) dataset: Option<String>,

    #[command(flatten)]
    pub(crate) data: Data,

    /// What to compute with, such as cpu or cpu:kernels=scalar; `polygrad devices` lists what there is [default: cpu]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// The network [default: cnn]
    #[arg(long, value_enum)]
    pub(crate) model: Option<Model>,

    /// How often to go through the training images; with --resume, a larger number trains on
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) epochs: Option<usize>,

    /// Images per step
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) batch_size: Option<usize>,

    /// The highest learning rate, reached after the warm-up; the default depends on the optimizer
    #[arg(long, value_name = "RATE", value_parser = learning_rate)]
    pub(crate) lr: Option<f64>,

    /// How the weights are updated [default: adamw]
    #[arg(long, value_enum)]
    pub(crate) optimizer: Option<Optimizer>,

    /// Where the random numbers start; the same seed gives the same run [default: 0]
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// The folder for what the run leaves [default: a new one under runs/]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,

    /// Go on with the run in this folder from its last checkpoint, with its own settings
    #[arg(long, value_name = "RUN")]
    pub(crate) resume: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Data {
    /// A folder of IDX files: MNIST, Fashion-MNIST, EMNIST or your own under the same names
    #[arg(long = "data", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,

    /// Use all 60,000 + 10,000 images of Fashion-MNIST, downloading them if need be (31 MB)
    #[arg(long, conflicts_with = "folder")]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Eval {
    /// The folder that `train` left
    pub(crate) run: PathBuf,

    #[command(flatten)]
    pub(crate) data: Data,

    /// What to compute with [default: what the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// The folder that `train` left
    pub(crate) run: PathBuf,

    /// A PNG file of any size and colour; Fashion-MNIST and MNIST are light on a dark ground
    #[arg(value_name = "IMAGE.png")]
    pub(crate) image: PathBuf,

    /// Swap light and dark first, for a picture on a light ground
    #[arg(long)]
    pub(crate) invert: bool,

    /// What to compute with [default: what the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The ONNX file; external data lies beside it
    #[arg(value_name = "MODEL.onnx")]
    pub(crate) model: PathBuf,

    /// What the native engine computes with, such as cpu
    #[arg(long, default_value = "cpu")]
    pub(crate) backend: String,

    /// What runs the model: native, ort (ONNX Runtime) or rten; the last two run on the CPU
    #[arg(long, default_value = "native")]
    pub(crate) engine: String,

    /// Threads of the CPU backend or the engine [default: its own choice]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// An input: NAME=FILE.npy, NAME=FILE.npz (the array NAME in it) or NAME=random; once for each
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) input: Vec<Given>,

    /// The size of a named extent, for random inputs; may be given several times
    #[arg(long, value_name = "NAME=N", value_parser = extent)]
    pub(crate) dim: Vec<(String, usize)>,

    /// Write the outputs to this file
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) output: Option<PathBuf>,

    /// Run the model that often again, and say how long it took
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) time: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// An .onnx or .safetensors file, or the folder that `train` left
    pub(crate) model: PathBuf,

    /// The size of a named extent, for the FLOPs; may be given several times [default: 1 each]
    #[arg(long, value_name = "NAME=N", value_parser = extent)]
    pub(crate) dim: Vec<(String, usize)>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportRun {
    /// The folder that `train` left
    pub(crate) run: PathBuf,

    /// The file to write
    #[arg(long, value_name = "FILE.onnx")]
    pub(crate) onnx: PathBuf,

    /// The version of ONNX's ops: 17, 18, 20 or 23
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) opset: i64,

    /// The extents that are known only when the file is run [default: batch]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "fixed")]
    pub(crate) dynamic: Vec<String>,

    /// For batches of one image alone
    #[arg(long)]
    pub(crate) fixed: bool,

    /// What to compare with [default: what the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
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

    /// The vectors in this folder instead of the cases that come with Polygrad
    #[arg(long, value_name = "DIR")]
    pub(crate) vectors: Option<PathBuf>,

    /// Write how each case ended to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Only this kind of work; may be given several times [default: all]
    #[arg(long, value_enum)]
    pub(crate) op: Vec<Work>,

    /// Only this device, such as cpu:threads=1; may be given several times [default: each backend that is there]
    #[arg(long)]
    pub(crate) backend: Vec<String>,

    /// Where the chart goes
    #[arg(long, value_name = "FILE", default_value = "compare.png")]
    pub(crate) plot: PathBuf,

    /// Write the figures to this file too
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to time: a workload such as mlp-rl, or some of its cases, such as mlp-rl/adam or elementwise/exp [default: all]
    #[arg(value_name = "WORKLOAD[/CASE]")]
    pub(crate) workloads: Vec<String>,

    /// What to compute with, such as cpu or cpu:kernels=scalar; `polygrad devices` lists what there is
    #[arg(long, default_value = "cpu")]
    pub(crate) backend: String,

    /// Threads of the CPU backend, and of the peers [default: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// How long to time a case; longer where that is too short for 30 steps, but at most five times as long
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Record training steps and replay them; steps as they are written are timed too, in turn with those
    #[arg(long)]
    pub(crate) captured: bool,

    /// Time these peers too, in turn with Polygrad: torch, torch-compile, jax, candle, burn, tch, floor, or programs of your own
    #[arg(long, value_name = "PEERS", value_delimiter = ',')]
    pub(crate) against: Vec<String>,

    /// How long a peer may take for an answer, such as to make a case ready; then it is ended, and the others go on
    #[arg(long, value_name = "S", default_value = "300", value_parser = seconds)]
    pub(crate) patience: f64,

    /// Draw how the peers compare, to this file
    #[arg(long, value_name = "FILE.png", requires = "against")]
    pub(crate) plot: Option<PathBuf>,

    /// Be a peer: answer questions from standard input
    #[arg(long, hide = true)]
    pub(crate) serve: bool,

    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
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
}

pub(crate) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("give a whole number, 1 or more".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("give a number of seconds above 0, at most 3600".into()),
    }
}

/// `NAME=N`.
fn extent(text: &str) -> Result<(String, usize), String> {
    let parsed = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let parsed = parsed.and_then(|(name, extent)| Some((name.to_owned(), extent.parse().ok()?)));
    parsed.ok_or_else(|| "give NAME=N, such as batch=8".into())
}

fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("give a number above 0, such as 0.001".into()),
    }
}

/// The name becomes part of folder names.
fn dataset_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !text.is_empty() && !text.starts_with('.') && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("a name is made of letters, digits, `-`, `_` and `.`; a folder goes with --data".into())
    }
}

#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// Say instead which backend auto chooses, and why not another; auto:dtype=f64 asks for one that has a dtype
    #[arg(long, value_name = "AUTO", num_args = 0..=1, default_missing_value = "auto")]
    pub(crate) explain: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, String> {
        Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_training_are_read() {
        let line = "polygrad train fashion-mnist --model mlp --epochs 3 --lr 0.1 --optimizer sgd --full --threads 2";
        let Command::Train(train) = parse(line).unwrap().command else {
            panic!();
        };
        assert_eq!(train.dataset.as_deref(), Some("fashion-mnist"));
        assert_eq!(
            (train.model, train.epochs, train.lr),
            (Some(Model::Mlp), Some(3), Some(0.1))
        );
        assert_eq!((train.optimizer, train.threads), (Some(Optimizer::Sgd), Some(2)));
        assert!(train.data.full);
        assert!(parse("polygrad train --resume runs/a").is_ok());
        assert!(parse("polygrad train fashion-mnist --resume runs/a --epochs 9").is_ok());
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (line, words) in [
            ("polygrad train", "DATASET"),
            ("polygrad train ../x", "a folder goes with --data"),
            ("polygrad train mnist --epochs 0", "1 or more"),
            ("polygrad train mnist --lr -1", "-1"),
            ("polygrad train mnist --lr=nan", "above 0"),
            ("polygrad train mnist --model vit", "mlp, cnn"),
            ("polygrad train mnist --full --data x", "cannot be used with"),
            ("polygrad train --resume x --out y", "cannot be used with"),
            ("polygrad eval", "<RUN>"),
            ("polygrad compare --op sort", "matmul"),
            ("polygrad bench --seconds 0", "above 0"),
        ] {
            let text = parse(line).unwrap_err();
            assert!(text.contains(words), "{line}: {text}\nshould contain {words}");
        }
    }
}
