//! The arguments of the commands.

use std::path::PathBuf;

use clap::Args;
pub(crate) use polygrad_console::arguments::positive;

use crate::run::config::{self, COUNTS};

// Options of every training. A doc comment would be shown as help.
#[derive(Debug, Args)]
pub(crate) struct Every {
    /// What to learn from
    #[arg(value_name = "DATASET", value_parser = dataset_name, required_unless_present = "resume", hide = true)]
    pub(crate) dataset: Option<String>,

    /// What to compute with, such as cpu or cpu:kernels=scalar; `polygrad devices` lists what there is [default: cpu]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// The highest learning rate, reached after the warm-up; the default depends on what learns
    #[arg(long, value_name = "RATE", value_parser = learning_rate)]
    pub(crate) lr: Option<f64>,

    /// Where the random numbers start; the same seed gives the same run [default: 0]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Train together with the other processes that a launcher has started, each with batches or environments of its
    /// own: mpi for those of mpirun, gloo for those of torchrun, nccl for either on CUDA devices; gloo:timeout=60 gives
    /// up on them after a minute
    #[arg(long, value_name = "ENGINE")]
    pub(crate) parallel: Option<String>,

    /// Show curves, throughput and memory on the whole of the terminal; q stops, with a checkpoint
    #[arg(long)]
    pub(crate) tui: bool,

    /// Stop with a checkpoint, as Ctrl-C does, once this file is there; `polygrad sweep` stops its runs so
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) stop_file: Option<PathBuf>,

    /// The folder for what the run leaves [default: a new one under runs/]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,

    /// Go on with the run in this folder from its last checkpoint, with its own settings
    #[arg(long, value_name = "RUN")]
    pub(crate) resume: Option<PathBuf>,
}

// Options of training on examples.
#[derive(Debug, Args)]
pub(crate) struct Examples {
    /// How often to go through the training data; with --resume, a larger number trains on
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) epochs: Option<usize>,

    /// Examples per step
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) batch_size: Option<usize>,

    /// Spread the optimizer's moments over the processes
    #[arg(long, requires = "parallel")]
    pub(crate) shard_optimizer: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Data {
    /// A folder of IDX files: MNIST, Fashion-MNIST, EMNIST or your own under the same names; of table the file; of
    /// finetune a file of lines; for an ONNX file also a folder of images, a CSV file, or an .npz file of its inputs
    /// and `labels` or `targets`
    #[arg(long = "data", value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,

    /// Use all 60,000 + 10,000 images of Fashion-MNIST, downloading them if need be (31 MB)
    #[arg(long, conflicts_with = "folder")]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Eval {
    /// The folder that `train` left, or an ONNX file
    #[arg(value_name = "RUN|FILE.onnx")]
    pub(crate) run: PathBuf,

    #[command(flatten)]
    pub(crate) data: Data,

    /// Of a run in an environment: how many episodes to play [default: 100]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) episodes: Option<usize>,

    /// Of a run in an environment: draw actions by chance, as in training, in place of the likeliest ones
    #[arg(long)]
    pub(crate) sample: bool,

    /// Of a run in a game for two: play against random, greedy, solver or the policy of another run
    #[arg(long, value_name = "random|greedy|solver|RUN")]
    pub(crate) opponent: Option<PathBuf>,

    /// Of a run in an environment: where the random numbers start [default: 0]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// What to compute with [default: what the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// The folder that `train` left, or an ONNX file of `export` or `quantize`
    #[arg(value_name = "RUN|FILE.onnx")]
    pub(crate) run: PathBuf,

    /// A PNG or JPEG file of any size and colour; Fashion-MNIST and MNIST are light on a dark ground. Of a run on a
    /// table a CSV file
    #[arg(value_name = "FILE")]
    pub(crate) input: PathBuf,

    /// For images: swap light and dark first, for a picture on a light ground
    #[arg(long)]
    pub(crate) invert: bool,

    /// What to compute with [default: what the run was trained on]
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
    /// Say instead which backend auto chooses, and why not another; auto:dtype=f64 asks for one that has a dtype
    #[arg(long, value_name = "AUTO", num_args = 0..=1, default_missing_value = "auto")]
    pub(crate) explain: Option<String>,
}
