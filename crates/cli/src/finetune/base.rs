//! Models that others trained, in a folder as the Hub has it.

use std::io::Read;
use std::path::{Path, PathBuf};

use hmac_sha256::Hash;
use polygrad::formats::TensorFile;
use polygrad::nn::models::{CausalLm, CausalLmCache, Gpt2, Gpt2Config, Llama, LlamaConfig, ModelConfig};
use polygrad::nn::{Module, StateDict, open_file, skip_init};
use polygrad::{AnyBackend, Device, Tensor};
use serde_json::Value;

use crate::failure::{Failure, Result, Shown};

/// A longer config is none.
const LONGEST: u64 = 1 << 24;

/// A language model of one of the kinds that can be trained further.
#[derive(Debug, Module)]
pub(crate) enum Lm {
    Llama(Box<Llama>),
    Gpt2(Box<Gpt2>),
}

impl Lm {
    /// Logits `[N, S, vocabulary]` of tokens `[N, S]`.
    pub(super) fn forward(&self, ids: &Tensor) -> polygrad::Result<Tensor> {
        match self {
            Self::Llama(model) => model.forward(ids),
            Self::Gpt2(model) => model.forward(ids),
        }
    }
}

impl CausalLm<AnyBackend> for Lm {
    fn name(&self) -> &'static str {
        self.as_causal().0
    }

    fn vocab_size(&self) -> usize {
        self.as_causal().1
    }

    fn num_positions(&self) -> usize {
        self.as_causal().2
    }

    fn new_cache(&self) -> CausalLmCache<AnyBackend> {
        match self {
            Self::Llama(model) => model.new_cache(),
            Self::Gpt2(model) => model.new_cache(),
        }
    }

    fn forward_cached(&self, ids: &Tensor, cache: &mut CausalLmCache<AnyBackend>) -> polygrad::Result<Tensor> {
        match self {
            Self::Llama(model) => model.forward_cached(ids, cache),
            Self::Gpt2(model) => model.forward_cached(ids, cache),
        }
    }
}

impl Lm {
    fn as_causal(&self) -> (&'static str, usize, usize) {
        match self {
            Self::Llama(model) => (
                CausalLm::name(&**model),
                CausalLm::vocab_size(&**model),
                CausalLm::num_positions(&**model),
            ),
            Self::Gpt2(model) => (
                CausalLm::name(&**model),
                CausalLm::vocab_size(&**model),
                CausalLm::num_positions(&**model),
            ),
        }
    }
}

/// What a folder says of its model.
pub(super) struct Base {
    folder: PathBuf,
    kind: Kind,
    /// The token behind the end of a text.
    pub(super) end: Option<i64>,
}

enum Kind {
    Llama(Box<LlamaConfig>),
    Gpt2(Gpt2Config),
}

impl Base {
    /// Reads the config.
    ///
    /// # Errors
    /// A folder without one, or a model of a kind that is not there.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let mut text = String::new();
        let file = open_file(&path)?.0;
        file.take(LONGEST)
            .read_to_string(&mut text)
            .map_err(|e| Failure::io("read", &path, &e))?;
        let bad = |what: &str| {
            Failure::new(format!("{}: {what}", path.shown()))
                .fix("give the folder of a Llama, Mistral, Qwen2 or GPT-2 model as the Hub has it")
        };
        let json: Value = serde_json::from_str(&text).map_err(|e| bad(&e.to_string()))?;
        let kind = match json["model_type"].as_str() {
            Some("llama" | "mistral" | "qwen2") => {
                LlamaConfig::from_json(&text).map(|config| Kind::Llama(Box::new(config)))
            }
            Some("gpt2") => Gpt2Config::from_json(&text).map(Kind::Gpt2),
            Some(other) => {
                return Err(bad(&format!(
                    "a model of the kind {other:?} cannot be trained further here"
                )));
            }
            None => return Err(bad("it has no model_type")),
        };
        let ends = [&json["eos_token_id"], &json["eos_token_id"][0]];
        Ok(Self {
            folder: folder.to_owned(),
            kind: kind.map_err(|e| bad(e.message()))?,
            end: ends.into_iter().find_map(Value::as_i64),
        })
    }

    /// The longest sequence, and how many tokens there are.
    pub(super) fn sizes(&self) -> (usize, usize) {
        match &self.kind {
            Kind::Llama(config) => (config.max_position_embeddings, config.vocab_size),
            Kind::Gpt2(config) => (config.n_positions, config.vocab_size),
        }
    }

    /// The layers that usually have adapters.
    pub(super) fn targets(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Llama(_) => &["q_proj", "v_proj"],
            Kind::Gpt2(_) => &["c_attn"],
        }
    }

    /// The files with the weights: one, or those of an index.
    ///
    /// # Errors
    /// There are none.
    pub(super) fn weights(&self) -> Result<PathBuf> {
        let names = ["model.safetensors.index.json", "model.safetensors"];
        let found = names
            .iter()
            .map(|name| self.folder.join(name))
            .find(|path| path.is_file());
        found.ok_or_else(|| {
            Failure::new(format!("{} has no model.safetensors", self.folder.shown()))
                .fix("give the folder with the weights; `polygrad convert` makes safetensors of other files")
        })
    }

    /// The model without weights.
    ///
    /// # Errors
    /// A config that contradicts itself; those of the device.
    pub(super) fn shell(&self, device: &Device) -> Result<Lm> {
        let model = skip_init(|| match &self.kind {
            Kind::Llama(config) => Llama::new(config, device).map(|model| Lm::Llama(Box::new(model))),
            Kind::Gpt2(config) => Gpt2::new(config, device).map(|model| Lm::Gpt2(Box::new(model))),
        });
        Ok(model?)
    }

    /// The model with its weights.
    ///
    /// # Errors
    /// Files that cannot be read or do not fit; those of the device.
    pub(super) fn model(&self, device: &Device) -> Result<Lm> {
        let path = self.weights()?;
        let state = TensorFile::open(&path)?.state_dict()?;
        let model = self.shell(device)?;
        // Files of GPT-2 may be of the model below the head.
        let below = matches!(self.kind, Kind::Gpt2(_)) && state.keys().all(|name| !name.starts_with("transformer."));
        let state: StateDict = match below {
            true => state
                .iter()
                .map(|(name, value)| (format!("transformer.{name}"), value.clone()))
                .collect(),
            false => state,
        };
        model.load_state_dict(&state, true).map_err(|e| {
            Failure::new(format!(
                "{} does not fit {}: {}",
                path.shown(),
                self.folder.join("config.json").shown(),
                e.message()
            ))
            .fix("take config.json and the weights from the same model")
        })?;
        Ok(model)
    }

    /// What tells the model from another one: a digest of the files with values, its settings and its tokenizer.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub(super) fn digest(&self) -> Result<String> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(&self.folder)
            .map_err(|e| Failure::io("read", &self.folder, &e))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
            .collect();
        files.extend(["config.json", "tokenizer.json"].map(|name| self.folder.join(name)));
        files.sort();
        digest(&files)
    }

    /// Whether a file would lie among those of the base.
    pub(super) fn holds(&self, path: &Path) -> bool {
        is_in(path, &self.folder)
    }
}

/// Whether a file would lie in a folder.
pub(super) fn is_in(path: &Path, folder: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    parent.is_ok_and(|parent| folder.canonicalize().is_ok_and(|folder| parent == folder))
}

/// A digest of the contents of files.
///
/// # Errors
/// One that cannot be read.
pub(super) fn digest(files: &[PathBuf]) -> Result<String> {
    let mut hash = Hash::new();
    let mut part = vec![0; 1 << 20];
    for path in files {
        let mut file = open_file(path)?.0;
        let mut count = 0u64;
        loop {
            match file.read(&mut part).map_err(|e| Failure::io("read", path, &e))? {
                0 => break,
                length => {
                    hash.update(&part[..length]);
                    count += length as u64;
                }
            }
        }
        // So that what moves from one file to the next is seen.
        hash.update(count.to_le_bytes());
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
