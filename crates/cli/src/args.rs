//! What the commands are told.

use std::path::PathBuf;

use clap::Args;
pub(crate) use polygrad_console::arguments::positive;

use crate::onnx::Given;
use crate::run::config::{self, COUNTS};

// What every training is told. A doc comment would be shown as help.
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

    /// The folder for what the run leaves [default: a new one under runs/]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,

    /// Go on with the run in this folder from its last checkpoint, with its own settings
    #[arg(long, value_name = "RUN")]
    pub(crate) resume: Option<PathBuf>,
}

// What training on examples is told beside.
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
    /// A folder of IDX files: MNIST, Fashion-MNIST, EMNIST or your own under the same names; of table the file; for an
    /// ONNX file also a folder of images, a CSV file, or an .npz file of its inputs and `labels` or `targets`
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

    /// What the model may take of memory in all, such as 2GB; little for a file of unknown origin [default: 3/4 of the
    /// machine's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max_memory: Option<usize>,

    /// The most nodes that a run may execute, those in loops counted each time [default: 2^40]
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// An .onnx or .safetensors file, or the folder that `train` left
    pub(crate) model: PathBuf,

    /// The size of a named extent, for the FLOPs; may be given several times [default: 1 each]
    #[arg(long, value_name = "NAME=N", value_parser = extent)]
    pub(crate) dim: Vec<(String, usize)>,

    /// What the tensors of an ONNX file may take of memory in all, such as 2GB [default: 3/4 of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max_memory: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportRun {
    /// The folder that `train` left
    pub(crate) run: PathBuf,

    /// The file to write
    #[arg(long, value_name = "FILE.onnx")]
    pub(crate) onnx: PathBuf,

    /// The version of ONNX's ops: 17, 18, 20 or 23
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = opset)]
    pub(crate) opset: i64,

    /// The extents that are known only when the file is run [default: batch]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "fixed")]
    pub(crate) dynamic: Vec<String>,

    /// For batches of one example alone
    #[arg(long)]
    pub(crate) fixed: bool,

    /// What to compare with [default: what the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

/// `2GB`, `512MiB`, `1000000`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "kb" => Some(1000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        "tb" => Some(1_000_000_000_000),
        "kib" => Some(1 << 10),
        "mib" => Some(1 << 20),
        "gib" => Some(1 << 30),
        "tib" => Some(1 << 40),
        _ => None,
    };
    let size = unit
        .zip(number.parse::<usize>().ok())
        .and_then(|(unit, number)| number.checked_mul(unit));
    size.ok_or_else(|| "give a size such as 2GB, 512MiB or 1000000".into())
}

/// `NAME=N`.
fn extent(text: &str) -> Result<(String, usize), String> {
    let parsed = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let parsed = parsed.and_then(|(name, extent)| Some((name.to_owned(), extent.parse().ok()?)));
    parsed.ok_or_else(|| "give NAME=N, such as batch=8".into())
}

/// What `config.json` can hold, too.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| COUNTS.contains(count));
    count.ok_or_else(|| format!("give a whole number, {} to {}", COUNTS.start(), COUNTS.end()))
}

pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("give a whole number, 0 to {}", u64::MAX))
}

/// From 0 on.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0);
    number.ok_or_else(|| "give a number from 0 on, such as 0.8".into())
}

fn opset(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "give 17, 18, 20 or 23".into())
}

fn learning_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().unwrap_or(f64::NAN);
    config::learning_rate(rate)?;
    Ok(rate)
}

fn dataset_name(text: &str) -> Result<String, String> {
    config::dataset(text)?;
    Ok(text.to_owned())
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

    #[test]
    fn sizes_have_units() {
        let sizes = ["2GB", "512MiB", "1000000", "3 kb", "1b"].map(bytes);
        assert_eq!(sizes, [2_000_000_000, 512 << 20, 1_000_000, 3000, 1].map(Ok));
        for text in ["", "GB", "2XB", "-1", "1.5GB", "99999999999999999999", "20000000TiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
