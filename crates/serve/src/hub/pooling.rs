//! How sentence-transformers makes one vector of those of the tokens.

use std::path::Path;

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::Tensor;
use serde_json::Value;

use super::record::read_json;

/// Vectors of tokens to one of a text.
pub(super) struct Pooling {
    kind: Kind,
    /// To length 1.
    normalize: bool,
    /// The most tokens of a text, special ones included.
    pub(super) most: Option<usize>,
}

#[derive(Clone, Copy)]
enum Kind {
    Mean,
    /// The first token's.
    Cls,
    Max,
}

/// Fields of `1_Pooling/config.json`, one of which is true.
const KINDS: [(&str, Kind); 3] = [
    ("pooling_mode_mean_tokens", Kind::Mean),
    ("pooling_mode_cls_token", Kind::Cls),
    ("pooling_mode_max_tokens", Kind::Max),
];

impl Pooling {
    /// What the folder's `modules.json` asks for, if it is there.
    pub(super) fn of(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("modules.json");
        if !path.is_file() {
            return Ok(None);
        }
        let modules = read_json(&path)?;
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
        let sentence = folder.join("sentence_bert_config.json");
        let sentence = sentence.is_file().then(|| read_json(&sentence)).transpose()?;
        let most = sentence.and_then(|config| config.get("max_seq_length")?.as_u64());
        Ok(kind.map(|kind| Self {
            kind,
            normalize,
            most: most.map(|most| most as usize),
        }))
    }

    /// `[N, S, width]` and a mask `[N, S]` to `[N, width]`.
    ///
    /// Source: Reimers and Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks" (2019).
    pub(super) fn pool(&self, tokens: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let seen = || mask.unsqueeze(2);
        let pooled = match self.kind {
            Kind::Cls => tokens.select(1, 0)?,
            Kind::Mean => {
                let seen = seen()?.to_dtype(DType::F32)?;
                (tokens.mul(&seen)?.sum(1)? / seen.sum(1)?.clamp(Some(1e-9), None)?)?
            }
            Kind::Max => tokens.masked_fill(&seen()?.eq(0)?, -1e9)?.max(1)?.0,
        };
        if !self.normalize {
            return Ok(pooled);
        }
        let length = pooled.square()?.sum_keepdim(1)?.sqrt()?;
        pooled / length.clamp(Some(1e-12), None)?
    }
}

fn pooling(path: &Path) -> Result<Kind> {
    let config = read_json(path)?;
    let is_on = |name: &str| config.get(name).and_then(Value::as_bool).unwrap_or(false);
    let all = config.as_object().into_iter().flatten();
    let count = all
        .filter(|(name, on)| name.starts_with("pooling_mode_") && on.as_bool() == Some(true))
        .count();
    match KINDS.iter().find(|(name, _)| is_on(name)) {
        Some(&(_, kind)) if count == 1 => Ok(kind),
        _ => Err(
            Error::unsupported(format!("{} asks for a pooling that is not there", path.display()))
                .with_hint("one alone of: mean, cls, max"),
        ),
    }
}
