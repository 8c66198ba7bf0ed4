//! `polygrad convert`: the tensors of a file in another format.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use polygrad::DType;
use polygrad::backend::HostTensor;
use polygrad::formats::{Format, TensorFile, Value, save_with_metadata, writable};
use polygrad::nn::StateDict;

use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{grouped, say};

/// So many things are named that are no tensors.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// A .pt, .pth, .safetensors, .npz, .npy or .gguf file, known by what is in it; or a folder or an index of safetensors in shards
    #[arg(value_name = "IN")]
    from: PathBuf,

    /// The file to write: .safetensors, .npz, .pt or .pth
    #[arg(value_name = "OUT")]
    to: PathBuf,

    /// What floats become [default: what they are; quantized ones f32]
    #[arg(long, value_enum)]
    dtype: Option<Floats>,
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

/// Reads all tensors and writes them, the file whole or not at all.
///
/// # Errors
/// A file that cannot be read or written, or holds what no dtype does.
pub(crate) fn command(args: &Convert) -> Result<Outcome> {
    let format = writable(&args.to).map_err(told)?;
    let file = TensorFile::open(&args.from).map_err(told)?;
    say(&format!(
        "{}: {}, {} tensors",
        args.from.shown(),
        file.format(),
        grouped(file.len() as u64)
    ));
    for skipped in file.skipped().iter().take(SHOWN) {
        say(&format!("skipped {}: {}", skipped.name, skipped.what));
    }
    if let Some(more @ 1..) = file.skipped().len().checked_sub(SHOWN) {
        say(&format!("skipped {} more", grouped(more as u64)));
    }
    let (mut state, mut infinite) = (StateDict::new(), 0);
    for name in file.keys() {
        let host = file.read(name).map_err(told)?;
        let host = match args.dtype.map(Floats::dtype) {
            Some(dtype) if host.dtype().is_float() => {
                let cast = host.try_cast(dtype)?;
                if dtype == DType::F16 {
                    infinite += infinities(&cast) - infinities(&host);
                }
                cast
            }
            _ => host,
        };
        state.insert(name, host);
    }
    let kept = |value: &Value| format == Format::Safetensors && value.as_str().is_some();
    let lost = file.metadata().iter().filter(|(_, value)| !kept(value)).count();
    if lost > 0 {
        say(&format!(
            "skipped {} entries of metadata, which a {format} file has no place for",
            grouped(lost as u64)
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
    if infinite > 0 {
        say(&format!(
            "{} values are too large for f16 and became infinite; --dtype bf16 has room for them",
            grouped(infinite)
        ));
    }
    Ok(Outcome::Done)
}

fn infinities(host: &HostTensor) -> u64 {
    let mut count = 0;
    host.each_f64(|value| count += u64::from(value.is_infinite()));
    count
}

/// What the reader says can be done is for those who have PyTorch, and so is said as it is.
fn told(error: polygrad::Error) -> Failure {
    let failure = Failure::new(error.message());
    match error.hint() {
        Some(hint) => failure.fix(hint.to_owned()),
        None => failure,
    }
}
