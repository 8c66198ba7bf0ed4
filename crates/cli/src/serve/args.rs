//! The arguments of `polygrad serve`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::positive;
use crate::onnx::args::bytes;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Models: an ONNX or GGUF file, a run of `train` or `finetune`, or a folder with config.json and weights;
    /// NAME=PATH sets the name
    #[arg(value_name = "PATH", required_unless_present = "repository")]
    pub(super) paths: Vec<String>,

    /// Folder of models, as NAME/VERSION/model.onnx, or anything that PATH accepts in place of the file
    #[arg(long, value_name = "DIR")]
    pub(super) repository: Option<PathBuf>,

    /// Backend of the native engine; CPU devices use one thread unless they set a number [default: cpu]
    #[arg(long, default_value = "cpu", hide_default_value = true)]
    pub(super) backend: String,

    /// Engine for models: native, ort (ONNX Runtime) or rten; the last two run on the CPU
    #[arg(long, default_value = "native")]
    pub(super) engine: String,

    /// Threads that run models, each one batch at a time, at most 1024 [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<usize>,

    /// Address to listen on; 0.0.0.0 accepts connections from other machines
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(super) host: IpAddr,

    /// Port for HTTP and gRPC; 0 picks a free one
    #[arg(long, default_value_t = 8000)]
    pub(super) port: u16,

    /// Maximum rows in a batch of several requests; 1 disables batching
    #[arg(long, value_name = "ROWS", default_value_t = 32, value_parser = positive)]
    pub(super) max_batch: usize,

    /// Maximum memory for the values of one run, besides the model, with the native engine
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = bytes)]
    pub(super) max_memory: usize,

    /// Maximum memory for the states of a model's open sequences
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = bytes)]
    pub(super) max_sequence_memory: usize,

    /// Maximum requests waiting for a model; further ones are rejected
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive)]
    pub(super) max_queue: usize,

    /// Default timeout of requests, in seconds; 0 for none
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(super) timeout: Duration,

    /// Maximum size of a request body
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = body)]
    pub(super) max_body: usize,

    /// Maximum connections; further ones are told to retry later, except for health checks
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = positive)]
    pub(super) max_connections: usize,

    /// Maximum connections from one address, or from one /64 network of IPv6
    #[arg(long, value_name = "N", default_value_t = 750, value_parser = positive)]
    pub(super) max_connections_per_peer: usize,

    /// Seconds that a client may take to read a response, plus one for each 16 KiB already sent
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(super) write_timeout: Duration,

    /// Maximum unread bytes of responses on one connection, besides one response
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes)]
    pub(super) max_unread: usize,

    /// Maximum unread bytes of responses on all connections
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = bytes)]
    pub(super) max_unread_in_all: usize,

    /// Without tokens and HTTPS: host name that requests may use besides localhost and IP addresses; * for any
    #[arg(long, value_name = "NAME")]
    pub(super) allowed_host: Vec<String>,

    /// Seconds between checks for new and changed models; 0 never checks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(super) watch: Duration,

    /// Allow requests to load and unload models
    #[arg(long)]
    pub(super) control: bool,

    /// Log each request to standard error
    #[arg(long)]
    pub(super) access_log: bool,

    /// Send a span for each request to this OTLP collector, such as http://127.0.0.1:4317; OTEL_* set the rest
    #[arg(long, value_name = "URL")]
    pub(super) otlp: Option<String>,

    /// PEM file with the certificate for HTTPS, and the chain of certificates that sign it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,

    /// PEM file with the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,

    /// File with one token per line; requests must send one of them, as Authorization: Bearer TOKEN
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// Seconds that running requests may take to finish after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(super) drain: Duration,

    /// Take token ids instead of text, even if a folder has a tokenizer.json
    #[arg(long)]
    pub(super) ids: bool,
}

/// Without any bytes, every request would be refused.
fn body(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        0 => Err("give a size of at least 1 byte, such as 64MiB".into()),
        size => Ok(size),
    }
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
