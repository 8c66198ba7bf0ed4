//! The arguments of `polygrad serve`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::positive;
use crate::onnx::args::bytes;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// What to serve: an ONNX or GGUF file, what `train` or `finetune` left, a folder with config.json and weights;
    /// NAME=PATH names it
    #[arg(value_name = "PATH", required_unless_present = "repository")]
    pub(super) paths: Vec<String>,

    /// A folder of models: NAME/VERSION/model.onnx, or in place of the file what PATH can be
    #[arg(long, value_name = "DIR")]
    pub(super) repository: Option<PathBuf>,

    /// What the native engine computes with; devices of the CPU get one thread unless they say [default: cpu]
    #[arg(long, default_value = "cpu", hide_default_value = true)]
    pub(super) backend: String,

    /// What runs the models: native, ort (ONNX Runtime) or rten; the last two run on the CPU
    #[arg(long, default_value = "native")]
    pub(super) engine: String,

    /// Threads that run models, each one batch at a time, up to 1024 [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<usize>,

    /// The address to listen on; 0.0.0.0 for other machines
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(super) host: IpAddr,

    /// The port for HTTP and gRPC; 0 for one that is free
    #[arg(long, default_value_t = 8000)]
    pub(super) port: u16,

    /// The most rows of several requests that are computed at once; 1 keeps requests apart
    #[arg(long, value_name = "ROWS", default_value_t = 32, value_parser = positive)]
    pub(super) max_batch: usize,

    /// What the values of one run may take of memory, beside the model, with the native engine
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = bytes)]
    pub(super) max_memory: usize,

    /// What the states of a model's open sequences may take of memory
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = bytes)]
    pub(super) max_sequence_memory: usize,

    /// The most requests that wait for a model; more are turned away
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive)]
    pub(super) max_queue: usize,

    /// Default timeout of requests, in seconds; 0 for none
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(super) timeout: Duration,

    /// The longest body of a request
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes)]
    pub(super) max_body: usize,

    /// The most connections; more are told to come later, but for questions about health
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = positive)]
    pub(super) max_connections: usize,

    /// The most connections of one address, or of one network of 64 bits of IPv6
    #[arg(long, value_name = "N", default_value_t = 750, value_parser = positive)]
    pub(super) max_connections_per_peer: usize,

    /// Seconds that an answer may wait to be read, and one more for each 16 KiB that have left
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(super) write_timeout: Duration,

    /// The most bytes of answers that may wait to be read on one connection, beside one answer
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes)]
    pub(super) max_unread: usize,

    /// The most that may wait to be read on all connections
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = bytes)]
    pub(super) max_unread_in_all: usize,

    /// Without tokens and HTTPS: a host name that requests may use beside localhost and IP addresses; * for any
    #[arg(long, value_name = "NAME")]
    pub(super) allowed_host: Vec<String>,

    /// Seconds between two looks for changed and new models; 0 never looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(super) watch: Duration,

    /// Let requests load and unload models
    #[arg(long)]
    pub(super) control: bool,

    /// Write a line for each request to standard error
    #[arg(long)]
    pub(super) access_log: bool,

    /// Send a span for each request to this OTLP collector, such as http://127.0.0.1:4317; OTEL_* say the rest
    #[arg(long, value_name = "URL")]
    pub(super) otlp: Option<String>,

    /// A PEM file with the certificate for HTTPS, and those that sign it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,

    /// The PEM file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,

    /// A file with a token in each line, of which requests need one: Authorization: Bearer TOKEN
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// Seconds that requests have to end in after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(super) drain: Duration,

    /// Take token ids, not text, where a folder has a tokenizer.json
    #[arg(long)]
    pub(super) ids: bool,
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = positive(text)?;
    // No machine has so many cores, and starting so many threads would starve other processes.
    match threads <= 1024 {
        true => Ok(threads),
        false => Err("give 1 to 1024".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // A clock cannot represent more.
    let seconds = seconds.filter(|seconds| seconds.as_secs() < 1 << 31);
    seconds.ok_or_else(|| "give seconds from 0 on, such as 0.5".into())
}
