//! `polygrad convert`: the tensors of a file in another format.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use polygrad::DType;
use polygrad::backend::HostTensor;
use polygrad::formats::{Format, Skipped, TensorFile, Value, save_with_metadata, writable};
use polygrad::nn::StateDict;

use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{grouped, note, say};

/// The most items of a kind that are listed.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// .pt, .pth, .safetensors, .npz, .npy or .gguf file, recognized by its contents; or a folder or an index of
    /// sharded safetensors
    #[arg(value_name = "IN")]
    from: PathBuf,

    /// File to write: .safetensors, .npz, .pt or .pth
    #[arg(value_name = "OUT")]
    to: PathBuf,

    /// Convert floats to this dtype [default: unchanged; f32 for quantized ones]
    #[arg(long, value_enum)]
    dtype: Option<Floats>,

    /// Fail if a tensor would be left out, or a value would become infinite or 0
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Floats {
    F16,
    Bf16,
    F32,
}

impl Floats {
    fn dtype(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
            Self::F32 => DType::F32,
        }
    }
}

/// Reads all tensors and writes them to a file atomically. Tensors that no dtype can store are left out and named.
///
/// # Errors
/// A file that cannot be read or written, or of which nothing would be left; with `--strict`, one that would lose
/// anything.
pub(crate) fn command(args: &Convert) -> Result<Outcome> {
    let format = writable(&args.to).map_err(told)?;
    let file = TensorFile::open(&args.from).map_err(told)?;
    say(&format!(
        "{}: {}, {} tensors",
        args.from.shown(),
        file.format(),
        grouped(file.len() as u64)
    ));
    let (mut state, mut left_out, mut lost, mut widened) = (StateDict::new(), Vec::new(), Vec::new(), 0);
    for name in file.keys() {
        let host = match file.read_or_skip(name).map_err(told)? {
            Ok(host) => host,
            Err(skipped) => {
                left_out.push(skipped);
                continue;
            }
        };
        let host = match args.dtype.map(Floats::dtype) {
            Some(dtype) if host.dtype().is_float() => {
                let cast = host.try_cast(dtype)?;
                lost.extend(loss(name, &host, &cast));
                cast
            }
            _ => host,
        };
        let host = match (format, host.dtype()) {
            (Format::Npz, DType::BF16) => {
                widened += 1;
                host.try_cast(DType::F32)?
            }
            _ => host,
        };
        state.insert(name, host);
    }
    let (tensors, others): (Vec<&Skipped>, Vec<&Skipped>) = file
        .skipped()
        .iter()
        .chain(&left_out)
        .partition(|skipped| skipped.holds_tensors);
    let named = |skipped: &&Skipped| format!("{}: {}", skipped.name, skipped.what);
    list(others.iter().map(named), "skipped ");
    list(tensors.iter().map(named), "left out ");
    if args.strict && !(tensors.is_empty() && lost.is_empty()) {
        let what = match tensors.first() {
            Some(first) => format!(
                "{} of its tensors cannot be converted, such as {}",
                tensors.len(),
                named(first)
            ),
            None => lost.join("; "),
        };
        return Err(Failure::new(format!("{}: {what}", args.from.shown()))
            .fix("leave --strict out: what cannot be converted is then left out, and named"));
    }
    if let (true, Some(first)) = (state.is_empty(), tensors.first()) {
        let what = format!("nothing of {} can be converted: {}", args.from.shown(), named(first));
        return Err(Failure::new(what).fix("convert its tensors before they are saved"));
    }
    let kept = |value: &Value| format == Format::Safetensors && value.as_str().is_some();
    let dropped = file.metadata().iter().filter(|(_, value)| !kept(value)).count();
    if dropped > 0 {
        say(&format!(
            "skipped {} metadata entries, which a {format} file cannot store",
            grouped(dropped as u64)
        ));
    }
    if widened > 0 {
        say(&format!(
            "{} tensors of bf16 are written as f32, since NumPy has no bf16",
            grouped(widened)
        ));
    }
    save_with_metadata(&args.to, &state, file.metadata()).map_err(told)?;
    let bytes: usize = state.iter().map(|(_, host)| host.bytes().len()).sum();
    say(&format!(
        "wrote {}: {} tensors, {} bytes of values",
        args.to.shown(),
        grouped(state.len() as u64),
        grouped(bytes as u64)
    ));
    if !tensors.is_empty() {
        note(&format!(
            "warning: {} of its tensors were left out; with --strict that is an error",
            grouped(tensors.len() as u64)
        ));
    }
    list(lost.into_iter(), "warning: ");
    Ok(Outcome::Done)
}

/// Prints the first lines, and how many more there are.
fn list(mut lines: impl ExactSizeIterator<Item = String>, word: &str) {
    lines
        .by_ref()
        .take(SHOWN)
        .for_each(|line| say(&format!("{word}{line}")));
    if lines.len() > 0 {
        say(&format!("{word}{} more", grouped(lines.len() as u64)));
    }
}

/// How many of a tensor's values another dtype cannot represent, if any.
fn loss(name: &str, host: &HostTensor, cast: &HostTensor) -> Option<String> {
    let ((infinite, zero), dtype) = (host.lost_in(cast), cast.dtype());
    let parts = [
        (infinite, format!("too large for {dtype} and became infinite")),
        (zero, format!("too small for {dtype} and became 0")),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|&(count, _)| count > 0)
        .map(|(count, what)| format!("{} values are {what}", grouped(count)))
        .collect();
    (!parts.is_empty()).then(|| format!("{name}: {}", parts.join(", ")))
}

/// The reader's hints are for users of PyTorch, and are passed on unchanged.
fn told(error: polygrad::Error) -> Failure {
    let failure = Failure::new(error.message());
    match error.hint() {
        Some(hint) => failure.fix(hint.to_owned()),
        None => failure,
    }
}
