//! The command line of `polygrad profile`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use polygrad_console::arguments::{json_file, positive};

use super::subject::Training;

#[derive(Debug, Args)]
pub struct Profile<T: Training> {
    #[command(subcommand)]
    pub(super) what: What<T>,
}

#[derive(Debug, Subcommand)]
pub(super) enum What<T: Training> {
    /// Profile the steps of `polygrad train` with these options, without writing a run folder
    Train(Box<Steps<T>>),
    /// Profile the steps of a case of `polygrad bench`
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
    /// Case to profile, such as cnn or mlp-rl/adam
    #[arg(value_name = "WORKLOAD[/CASE]")]
    pub(super) case: String,

    /// Backend to compute with, such as cpu or cpu:kernels=scalar; `polygrad devices` lists them
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
    /// Number of steps to measure
    #[arg(long, value_name = "N", default_value = "20", value_parser = positive)]
    pub(super) steps: usize,

    /// Number of warm-up steps before
    #[arg(long, value_name = "N", default_value = "3")]
    pub(super) warmup: usize,

    /// Number of table rows to print; one more row sums up the rest
    #[arg(long, value_name = "N", default_value = "25", value_parser = positive)]
    pub(super) rows: usize,

    /// Write every op of the measured steps to this file, for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long, value_name = "FILE.json", value_parser = PathBufValueParser::new().try_map(json_file))]
    pub(super) trace: Option<PathBuf>,

    /// Do not wait for the device after each op; on an asynchronous device, times are then those of launching the work
    #[arg(long)]
    pub(super) no_sync: bool,
}
