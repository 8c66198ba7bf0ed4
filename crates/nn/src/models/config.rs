//! Shared parts of model configs.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use polygrad_tensor::{Backend, Error, ErrorKind, Result, Tensor};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::io::{open_file, replace_file};

/// The sizes and options of a model, as JSON with the field names of PyTorch's or Hugging Face's counterpart. Missing
/// fields have their defaults. If the counterpart has such a file, like Hugging Face's `config.json`, unknown fields
/// are ignored, since many of its fields do not affect the model's function; otherwise unknown fields are errors.
pub trait ModelConfig: Serialize + DeserializeOwned {
    /// Converts to JSON.
    ///
    /// # Errors
    /// When a number is not finite.
    fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|e| Error::new(ErrorKind::Format, format!("config: {e}")))
    }

    /// Parses JSON.
    ///
    /// # Errors
    /// When it is not valid JSON, or a field has another type; the error says where.
    fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|e| Error::new(ErrorKind::Format, format!("config: {e}")))
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// As [`ModelConfig::to_json`], and when the file cannot be written.
    fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let json = self.to_json()?;
        replace_file(path.as_ref(), |file| file.write_all(json.as_bytes()))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`ModelConfig::from_json`], and when the file cannot be read.
    fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (mut file, _) = open_file(path)?;
        let mut json = String::new();
        file.read_to_string(&mut json).map_err(|e| Error::io("read", path, e))?;
        serde_json::from_str(&json).map_err(|e| Error::new(ErrorKind::Format, format!("{}: {e}", path.display())))
    }
}

/// The most layers of a model, far more than any has; a wrong number in a file would otherwise fill the memory with
/// layers before their weights are missed.
const MAX_LAYERS: usize = 1 << 14;

/// The indices of a model's layers.
pub(super) fn layers(model: &'static str, count: usize) -> Result<Range<usize>> {
    match count <= MAX_LAYERS {
        true => Ok(0..count),
        false => {
            let error = Error::invalid(format!("the config asks for {count} layers"));
            Err(error
                .with_op(model)
                .with_hint(format!("give a number up to {MAX_LAYERS}")))
        }
    }
}

/// Fails unless the option has a value that this library supports.
pub(super) fn only(model: &'static str, option: &str, holds: bool) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::unsupported(format!("the config asks for {option}, which is not there")).with_op(model))
}

/// Fails unless the number of heads divides the width, and 4 times the width is still a valid size.
pub(super) fn check_heads(model: &'static str, heads: usize, width: usize) -> Result<()> {
    if heads > 0 && width.is_multiple_of(heads) && width.checked_mul(4).is_some() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{heads} heads do not divide a width of {width}, or it is too large"
    ))
    .with_op(model))
}

/// The extents of token ids `[N, S]`.
pub(super) fn token_shape<B: Backend>(model: &'static str, ids: &Tensor<B>) -> Result<(usize, usize)> {
    match ids.dims()[..] {
        [n, s] => Ok((n, s)),
        _ => Err(Error::shape("takes token ids [N, S]")
            .with_op(model)
            .with_operands([(ids.shape(), ids.dtype())])
            .with_hint("a single sequence has N = 1: add it with unsqueeze(0)")),
    }
}

/// Converts a mask `[N, T]`, 1 (or true) for tokens and 0 (or false) for padding, to a bool mask `[N, 1, 1, T]` of
/// visible keys.
pub(super) fn padding_mask<B: Backend>(
    model: &'static str,
    mask: &Tensor<B>,
    (n, t): (usize, usize),
) -> Result<Tensor<B>> {
    if mask.dims() != [n, t] {
        return Err(Error::shape(format!("the attention mask must be [{n}, {t}]"))
            .with_op(model)
            .with_operands([(mask.shape(), mask.dtype())]));
    }
    mask.ne(0)?.reshape([n, 1, 1, t])
}
