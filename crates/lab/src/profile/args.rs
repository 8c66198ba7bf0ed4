//! The command line of `polygrad profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use polygrad_console::arguments::positive;

use super::subject::Training;

#[derive(Debug, Args)]
pub struct Profile<T: Training> {
    #[command(subcommand)]
    pub(super) what: What<T>,
}

#[derive(Debug, Subcommand)]
pub(super) enum What<T: Training> {
    /// The steps that `polygrad train` would take with these options; no run is left
    Train(Box<Steps<T>>),
    /// The steps of a case of `polygrad bench`
    Bench(Bench),
}

#[derive(Debug, Args)]
pub(super) struct Steps<T: Training> {
    #[command(flatten)]
    pub(super) train: T,

    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub(super) struct Bench {
    /// The case, such as cnn or mlp-rl/adam
    #[arg(value_name = "WORKLOAD[/CASE]")]
    pub(super) case: String,

    /// What to compute with, such as cpu or cpu:kernels=scalar; `polygrad devices` lists what there is
    #[arg(long, default_value = "cpu")]
    pub(super) backend: String,

    /// Threads of the CPU backend [default: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(super) threads: Option<usize>,

    #[command(flatten)]
    pub(super) how: How,
}

/// What is measured, and what is shown of it.
#[derive(Debug, Args)]
pub(super) struct How {
    /// How many steps to measure
    #[arg(long, value_name = "N", default_value = "20", value_parser = positive)]
    pub(super) steps: usize,

    /// How many steps to take before
    #[arg(long, value_name = "N", default_value = "3")]
    pub(super) warmup: usize,

    /// How many rows of a table to print; what they leave out is summed up in one more
    #[arg(long, value_name = "N", default_value = "25", value_parser = positive)]
    pub(super) rows: usize,

    /// Write every op of the measured steps to this file, for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub(super) trace: Option<PathBuf>,

    /// Do not wait for the device after each op: on a device that computes later, times are then those of handing the
    /// work over
    #[arg(long)]
    pub(super) no_sync: bool,
}
