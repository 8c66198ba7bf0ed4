//! The command line of `polygrad plan`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use polygrad_console::arguments::{json_file, positive};

#[derive(Debug, Args)]
pub struct Plan {
    /// Training to plan: a case of `polygrad bench`, such as gpt or mlp-big/adam
    #[arg(value_name = "WORKLOAD[/CASE]")]
    pub(super) case: String,

    /// Numbers of ranks to predict for
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,8,64,1024", value_parser = positive)]
    pub(super) ranks: Vec<usize>,

    /// Bandwidth between two ranks in each direction, in bits or bytes per second, such as 10Gbit or 1.25GB
    #[arg(long, value_name = "RATE", default_value = "10Gbit", value_parser = bandwidth)]
    pub(super) bandwidth: f64,

    /// Latency of a message, in ns, us, ms or s
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = latency)]
    pub(super) latency: Duration,

    /// Ranks per machine; if they use all of its cores, communication slows computation down [default: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(super) ranks_per_host: Option<usize>,

    /// Shard the optimizer's moments across the ranks
    #[arg(long)]
    pub(super) shard_optimizer: bool,

    /// Backend to compute with, such as cpu or cpu:kernels=scalar; `polygrad devices` lists them
    #[arg(long, default_value = "cpu")]
    pub(super) backend: String,

    /// Threads of the CPU backend of each rank [default: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(super) threads: Option<usize>,

    /// Number of steps to measure
    #[arg(long, value_name = "N", default_value = "30", value_parser = positive)]
    pub(super) steps: usize,

    /// Check the prediction: measure the links between the processes that a launcher started, predict their steps, and
    /// measure those too; mpi for mpirun, gloo for torchrun
    #[arg(
        long,
        value_name = "ENGINE",
        conflicts_with_all = ["ranks", "bandwidth", "latency", "shard_optimizer"]
    )]
    pub(super) parallel: Option<String>,

    /// Write a trace of the steps measured together to this file, for Perfetto (ui.perfetto.dev) or chrome://tracing:
    /// when rank 0 computed, and when gradients were exchanged
    #[arg(
        long,
        value_name = "FILE.json",
        requires = "parallel",
        value_parser = PathBufValueParser::new().try_map(json_file)
    )]
    pub(super) trace: Option<PathBuf>,
}

/// `10Gbit`, `100 Mbit/s`, `1.25GB`: in bytes per second.
fn bandwidth(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text);
    let unit = match unit.strip_suffix("/s").unwrap_or(unit) {
        "bit" => 1.0 / 8.0,
        "kbit" | "Kbit" => 1e3 / 8.0,
        "Mbit" => 1e6 / 8.0,
        "Gbit" => 1e9 / 8.0,
        "Tbit" => 1e12 / 8.0,
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => 0.0,
    };
    let rate = number * unit;
    match rate.is_finite() && rate > 0.0 {
        true => Ok(rate),
        false => Err("give bits or bytes per second, such as 10Gbit, 100Mbit or 1.25GB".into()),
    }
}

/// `50us`, `1.5ms`, `0s`.
fn latency(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let unit = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => f64::NAN,
    };
    let seconds = number * unit;
    let time = (seconds <= 60.0).then(|| Duration::try_from_secs_f64(seconds).ok());
    time.flatten()
        .ok_or_else(|| "give a time up to a minute, such as 50us or 1ms".into())
}

/// A number (NaN if it is invalid), and the text after it.
fn split(text: &str) -> (f64, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.parse().unwrap_or(f64::NAN), unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_and_times_have_units() {
        for (text, rate) in [("10Gbit", 1.25e9), ("8 kbit/s", 1e3), ("1.25GB", 1.25e9), ("3B/s", 3.0)] {
            assert_eq!(bandwidth(text), Ok(rate), "{text}");
        }
        for text in ["", "10", "Gbit", "0Gbit", "-1Gbit", "10gbit", "1.2.3GB", "infGB"] {
            assert!(bandwidth(text).is_err(), "{text}");
        }
        for (text, nanos) in [("50us", 50_000), ("1.5 ms", 1_500_000), ("0s", 0), ("7ns", 7)] {
            assert_eq!(latency(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "50", "us", "-1us", "61s", "1h"] {
            assert!(latency(text).is_err(), "{text}");
        }
    }
}
