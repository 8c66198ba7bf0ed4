//! The arguments of the commands.

use std::path::PathBuf;

use clap::Args;
pub(crate) use polygrad_console::arguments::positive;

use crate::run::config::{self, COUNTS};

// Options of every training. A doc comment would be shown as help.
#[derive(Debug, Args)]
pub(crate) struct Every {
    /// Data set or environment to learn from
    #[arg(value_name = "DATASET", value_parser = dataset_name, required_unless_present = "resume", hide = true)]
    pub(crate) dataset: Option<String>,

    /// Backend to compute with, such as cpu or cpu:kernels=scalar; `polygrad devices` lists them [default: cpu]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// Peak learning rate, reached after warm-up [default: depends on the task]
    #[arg(long, value_name = "RATE", value_parser = learning_rate)]
    pub(crate) lr: Option<f64>,

    /// Random seed; the same seed gives the same run [default: 0]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Train together with the other processes that a launcher started, each on its own batches or environments: mpi
    /// for mpirun, gloo for torchrun, nccl for either on CUDA devices; gloo:timeout=60 gives up on the others after 60
    /// seconds
    #[arg(long, value_name = "ENGINE")]
    pub(crate) parallel: Option<String>,

    /// Show curves, throughput and memory in a full-screen dashboard; q stops with a checkpoint
    #[arg(long)]
    pub(crate) tui: bool,

    /// Stop with a checkpoint, as Ctrl-C does, once this file exists; used by `polygrad sweep`
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) stop_file: Option<PathBuf>,

    /// Run folder to write to [default: a new one under runs/]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,

    /// Resume the run in this folder from its last checkpoint, with its own settings
    #[arg(long, value_name = "RUN")]
    pub(crate) resume: Option<PathBuf>,
}

// Options of training on examples.
#[derive(Debug, Args)]
pub(crate) struct Examples {
    /// Passes over the training data; with --resume, a larger number continues training [default: depends on the task]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) epochs: Option<usize>,

    /// Examples per step [default: depends on the task]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) batch_size: Option<usize>,

    /// Shard the optimizer's moments across the processes
    #[arg(long, requires = "parallel")]
    pub(crate) shard_optimizer: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Data {
    /// Data to use: a folder of IDX files (MNIST, Fashion-MNIST, EMNIST or your own under the same names); for table,
    /// the CSV file; for finetune, a file of JSON lines; for an ONNX file, also a folder of images, a CSV file, or an
    /// .npz file with its inputs and `labels` or `targets`
    #[arg(long = "data", value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,

    /// Use all 60,000 + 10,000 images of Fashion-MNIST, downloading them if necessary (31 MB)
    #[arg(long, conflicts_with = "folder")]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Eval {
    /// Run folder written by `train`, or an ONNX file
    #[arg(value_name = "RUN|FILE.onnx")]
    pub(crate) run: PathBuf,

    #[command(flatten)]
    pub(crate) data: Data,

    /// For environments: number of episodes to play [default: 100]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) episodes: Option<usize>,

    /// For environments: sample actions, as in training, instead of taking the most likely ones
    #[arg(long)]
    pub(crate) sample: bool,

    /// For two-player games: opponent to play against: random, greedy, solver or the policy of another run
    #[arg(long, value_name = "random|greedy|solver|RUN")]
    pub(crate) opponent: Option<PathBuf>,

    /// For environments: random seed [default: 0]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Backend to compute with [default: the one the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// Run folder written by `train`, or an ONNX file written by `export` or `quantize`
    #[arg(value_name = "RUN|FILE.onnx")]
    pub(crate) run: PathBuf,

    /// PNG or JPEG file of any size and colour (Fashion-MNIST and MNIST are light on a dark background); for a run on a
    /// table, a CSV file
    #[arg(value_name = "FILE")]
    pub(crate) input: PathBuf,

    /// For images: swap light and dark first, for a picture on a light background
    #[arg(long)]
    pub(crate) invert: bool,

    /// Backend to compute with [default: the one the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

/// A count in the range that `config.json` allows.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| COUNTS.contains(count));
    count.ok_or_else(|| format!("give a whole number, {} to {}", COUNTS.start(), COUNTS.end()))
}

pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("give a whole number, 0 to {}", u64::MAX))
}

/// A number that is not negative.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0);
    number.ok_or_else(|| "give a number from 0 on, such as 0.8".into())
}

fn learning_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().unwrap_or(f64::NAN);
    config::learning_rate(rate)?;
    Ok(rate)
}

fn dataset_name(text: &str) -> Result<String, String> {
    // Gymnasium's names may have slashes and colons.
    if !text.starts_with("gym:") {
        config::dataset(text)?;
    }
    Ok(text.to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// Show instead which backend auto chooses, and why not the others; auto:dtype=f64 requires support for a dtype
    #[arg(long, value_name = "AUTO", num_args = 0..=1, default_missing_value = "auto")]
    pub(crate) explain: Option<String>,
}
