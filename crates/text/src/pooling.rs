//! Pooling of token vectors as in sentence-transformers.

use std::path::Path;

use polygrad_tensor::{Backend, DType, Error, Result, Tensor};
use serde_json::Value;

use crate::format::read;

/// Pools the vectors of tokens to one for the text, as configured in `modules.json` of a sentence-transformers folder.
#[derive(Clone, Debug)]
pub struct Pooling {
    kind: Kind,
    /// Whether vectors are normalized to length 1.
    normalize: bool,
    max_length: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Mean,
    /// The first token's vector.
    Cls,
    Max,
}

/// The names in `1_Pooling/config.json`.
const KINDS: [(&str, Kind); 3] = [("mean", Kind::Mean), ("cls", Kind::Cls), ("max", Kind::Max)];

impl Pooling {
    /// The pooling in the folder's `modules.json`; `None` without such a file, or if it has no pooling.
    ///
    /// # Errors
    /// If a file is missing or damaged; if there is a module other than Transformer, Pooling and Normalize; if the
    /// pooling is not by mean, maximum or the first token.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Option<Self>> {
        let folder = folder.as_ref();
        let modules = read(&folder.join("modules.json"))?;
        let of = |module: &Value, field: &str| module.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut kind, mut normalize) = (None, false);
        for module in modules.as_array().into_iter().flatten() {
            match of(module, "type").rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Pooling" => kind = Some(pooling(&folder.join(of(module, "path")).join("config.json"))?),
                "Normalize" => normalize = true,
                other => {
                    return Err(
                        Error::unsupported(format!("modules.json asks for {other:?}, which is not there"))
                            .with_hint("Transformer, Pooling and Normalize are"),
                    );
                }
            }
        }
        // Since version 6 of sentence-transformers, the tokenizer has this setting.
        let places = [
            ("sentence_bert_config.json", "max_seq_length"),
            ("tokenizer_config.json", "model_max_length"),
        ];
        let mut max_length = None;
        for (file, field) in places {
            // Huge numbers, which mean no limit, do not fit u64.
            let found = read(&folder.join(file))?.get(field).and_then(Value::as_u64);
            max_length = max_length.or(found);
        }
        Ok(kind.map(|kind| Self {
            kind,
            normalize,
            max_length: max_length.map(|most| most as usize),
        }))
    }

    /// The most tokens of a text, including special ones, if the folder has a limit.
    pub fn max_length(&self) -> Option<usize> {
        self.max_length
    }

    /// Pools the vectors of tokens `[N, S, width]`, with a mask `[N, S]` that is 1 for tokens and 0 for padding, to
    /// vectors of texts `[N, width]`.
    ///
    /// # Errors
    /// If shapes do not fit; those of the device.
    ///
    /// Source: Reimers and Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks" (2019).
    pub fn pool<B: Backend>(&self, tokens: &Tensor<B>, mask: &Tensor<B>) -> Result<Tensor<B>> {
        let seen = || mask.unsqueeze(2);
        let pooled = match self.kind {
            Kind::Cls => tokens.select(1, 0)?,
            Kind::Mean => {
                let seen = seen()?.to_dtype(DType::F32)?;
                (tokens.mul(&seen)?.sum(1)? / seen.sum(1)?.clamp(Some(1e-9), None)?)?
            }
            Kind::Max => tokens.masked_fill(&seen()?.eq(0)?, -1e9)?.max(1)?.0,
        };
        match self.normalize {
            true => Self::normalized(&pooled),
            false => Ok(pooled),
        }
    }

    /// Vectors `[N, width]` scaled to length 1, except zero vectors.
    ///
    /// # Errors
    /// Those of the device.
    pub fn normalized<B: Backend>(vectors: &Tensor<B>) -> Result<Tensor<B>> {
        let length = vectors.square()?.sum_keepdim(1)?.sqrt()?;
        vectors / length.clamp(Some(1e-12), None)?
    }
}

fn pooling(path: &Path) -> Result<Kind> {
    let config = read(path)?;
    let modes: Vec<&str> = match config.get("pooling_mode") {
        Some(Value::Array(modes)) => modes.iter().filter_map(Value::as_str).collect(),
        Some(mode) => mode.as_str().into_iter().collect(),
        // Before version 6 of sentence-transformers, each kind had its own field.
        None => {
            let on = config.as_object().into_iter().flatten();
            on.filter(|(_, on)| on.as_bool() == Some(true))
                .filter_map(|(name, _)| name.strip_prefix("pooling_mode_")?.split("_token").next())
                .collect()
        }
    };
    let known = KINDS.iter().find(|(name, _)| modes == [*name]);
    match known {
        Some(&(_, kind)) => Ok(kind),
        None => Err(
            Error::unsupported(format!("{} asks for a pooling that is not there", path.display()))
                .with_hint("one alone of: mean, cls, max"),
        ),
    }
}
