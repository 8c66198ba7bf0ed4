//! Models that others trained, in a folder as the Hub has it or in a GGUF file.

#[cfg(feature = "onnx")]
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hmac_sha256::Hash;
use polygrad::Device;
use polygrad::formats::TensorFile;
use polygrad::nn::models::{Bert, BertClassifier, BertConfig, Gpt2Config, LlamaConfig, ModelConfig};
use polygrad::nn::{Init, LinearConfig, Module, StateDict, open_file, skip_init};
use polygrad::text::{LanguageModel, Pooling, TextFormat};
use serde_json::Value;

use super::gguf::Gguf;
use super::goal::Goal;
#[cfg(feature = "onnx")]
use super::graph::{self, GraphModel};
use super::model::{Encoder, Tuned};
use crate::failure::{Failure, Result, Shown};

/// Longer configs are rejected.
const LONGEST: u64 = 1 << 24;

/// The classification head in parameter names.
pub(super) const HEAD: &str = "classifier";

/// What a folder or a file says of its model.
pub(super) struct Base {
    path: PathBuf,
    kind: Kind,
    /// The token that ends a text.
    pub(super) end: Option<i64>,
    /// The file `config.json`, or what it would be.
    pub(super) config: Value,
}

enum Kind {
    Llama(Box<LlamaConfig>),
    Gpt2(Gpt2Config),
    Bert(Box<BertConfig>, Option<Pooling>),
    Gguf(Box<Gguf>),
    /// An ONNX file, with the folder that has its config and tokenizer.
    #[cfg(feature = "onnx")]
    Graph(PathBuf, Option<Pooling>),
}

impl Base {
    /// Reads the config of a model to be trained.
    ///
    /// # Errors
    /// A folder without one, a file that is none of GGUF's or is damaged, or a model of a kind that is not there or
    /// cannot learn that.
    pub(super) fn open(path: &Path, goal: &Goal) -> Result<Self> {
        let is_onnx = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("onnx"));
        match path.is_file() {
            true if is_onnx => Self::of_graph(path, goal),
            true => Self::of_file(path, goal),
            false => Self::of_folder(path, goal),
        }
    }

    #[cfg(not(feature = "onnx"))]
    fn of_graph(_: &Path, _: &Goal) -> Result<Self> {
        Err(crate::absent::instead("finetuning an ONNX file", "onnx"))
    }

    #[cfg(feature = "onnx")]
    fn of_graph(path: &Path, goal: &Goal) -> Result<Self> {
        if *goal == Goal::Text {
            let what = format!("{} is an ONNX file, and not for --task text", path.shown());
            return Err(Failure::new(what).fix(goal.models()));
        }
        let folder = graph::folder_of(path)?;
        let config = read_config(&folder)?;
        let config = serde_json::from_str(&config).map_err(|e| {
            let place = folder.join("config.json");
            Failure::new(format!("{}: {e}", place.shown())).fix(goal.models())
        })?;
        let pooling = match goal {
            Goal::Embed => Pooling::from_folder(&folder)?,
            Goal::Text | Goal::Classify(_) => None,
        };
        Ok(Self {
            path: path.to_owned(),
            kind: Kind::Graph(folder, pooling),
            end: None,
            config,
        })
    }

    fn of_file(path: &Path, goal: &Goal) -> Result<Self> {
        if *goal != Goal::Text {
            let what = format!("{} is a file, and not for --task {}", path.shown(), goal.name());
            return Err(Failure::new(what).fix(goal.models()));
        }
        let gguf = Gguf::open(path)?;
        let config = gguf.config.to_json()?;
        let mut config: Value = serde_json::from_str(&config).map_err(|e| Failure::new(e.to_string()))?;
        config["model_type"] = gguf.config.model_type.clone().into();
        config["architectures"] = match &*gguf.config.model_type {
            "qwen2" => vec!["Qwen2ForCausalLM"].into(),
            _ => vec!["LlamaForCausalLM"].into(),
        };
        for (name, id, _) in gguf.special() {
            config[format!("{name}_id")] = id.into();
        }
        Ok(Self {
            path: path.to_owned(),
            end: gguf.end(),
            kind: Kind::Gguf(Box::new(gguf)),
            config,
        })
    }

    fn of_folder(folder: &Path, goal: &Goal) -> Result<Self> {
        let (path, text) = (folder.join("config.json"), read_config(folder)?);
        let bad = |what: &str| Failure::new(format!("{}: {what}", path.shown())).fix(goal.models());
        let json: Value = serde_json::from_str(&text).map_err(|e| bad(&e.to_string()))?;
        let kind = match (json["model_type"].as_str(), goal) {
            (Some("llama" | "mistral" | "qwen2"), Goal::Text) => {
                LlamaConfig::from_json(&text).map(|config| Kind::Llama(Box::new(config)))
            }
            (Some("gpt2"), Goal::Text) => Gpt2Config::from_json(&text).map(Kind::Gpt2),
            (Some("bert"), Goal::Classify(_)) => {
                BertConfig::from_json(&text).map(|config| Kind::Bert(Box::new(config), None))
            }
            (Some("bert"), Goal::Embed) => {
                let Some(pooling) = Pooling::from_folder(folder)? else {
                    let what = "has no modules.json, which says how vectors of tokens become one of a text";
                    return Err(Failure::new(format!("{} {what}", folder.shown())).fix(goal.models()));
                };
                BertConfig::from_json(&text).map(|config| Kind::Bert(Box::new(config), Some(pooling)))
            }
            (Some(kind @ ("llama" | "mistral" | "qwen2" | "gpt2" | "bert")), _) => {
                return Err(bad(&format!(
                    "a model of the kind {kind:?} is not for --task {}",
                    goal.name()
                )));
            }
            (Some(other), _) => {
                return Err(bad(&format!(
                    "a model of the kind {other:?} cannot be trained further here"
                )));
            }
            (None, _) => return Err(bad("it has no model_type")),
        };
        let ends = [&json["eos_token_id"], &json["eos_token_id"][0]];
        let end = ends.into_iter().find_map(Value::as_i64);
        Ok(Self {
            path: folder.to_owned(),
            kind: kind.map_err(|e| bad(e.message()))?,
            end,
            config: json,
        })
    }

    /// The longest sequence, and the size of the vocabulary.
    pub(super) fn sizes(&self) -> (usize, usize) {
        match &self.kind {
            Kind::Llama(config) => (config.max_position_embeddings, config.vocab_size),
            Kind::Gguf(file) => (file.config.max_position_embeddings, file.config.vocab_size),
            Kind::Gpt2(config) => (config.n_positions, config.vocab_size),
            Kind::Bert(config, pooling) => {
                let (places, most) = (
                    config.max_position_embeddings,
                    pooling.as_ref().and_then(Pooling::max_length),
                );
                (most.unwrap_or(places).min(places), config.vocab_size)
            }
            #[cfg(feature = "onnx")]
            Kind::Graph(_, pooling) => {
                let number = |name: &str| self.config[name].as_u64().map(|number| number as usize);
                let most = pooling.as_ref().and_then(Pooling::max_length).unwrap_or(usize::MAX);
                // RoBERTa's positions begin behind that of padding.
                let skipped = match self.config["model_type"].as_str() {
                    Some("roberta" | "xlm-roberta" | "camembert" | "mpnet") => {
                        number("pad_token_id").map_or(0, |id| id + 1)
                    }
                    _ => 0,
                };
                let places = number("max_position_embeddings").unwrap_or(512).saturating_sub(skipped);
                (most.min(places), number("vocab_size").unwrap_or(usize::MAX))
            }
        }
    }

    /// What the names of its architectures begin with.
    pub(super) fn architecture(&self) -> &str {
        let name = self.config["architectures"][0].as_str();
        let named = name.and_then(|name| {
            name.split_once("For")
                .map(|(kind, _)| kind)
                .or(name.strip_suffix("Model"))
        });
        named.unwrap_or("Bert")
    }

    /// The layers that usually get adapters.
    pub(super) fn targets(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Llama(_) | Kind::Gguf(_) => &["q_proj", "v_proj"],
            Kind::Gpt2(_) => &["c_attn"],
            Kind::Bert(..) => &["query", "value"],
            // All linear layers, whatever they are called.
            #[cfg(feature = "onnx")]
            Kind::Graph(..) => &[],
        }
    }

    /// The names of its head's classes, by index; empty without a head.
    pub(super) fn labels(&self) -> Vec<String> {
        let (names, count) = match &self.kind {
            Kind::Bert(config, _) => (config.id2label.clone(), config.labels()),
            #[cfg(feature = "onnx")]
            Kind::Graph(..) => {
                let names = self.config["id2label"].as_object().into_iter().flatten();
                let names = names.filter_map(|(class, name)| Some((class.clone(), name.as_str()?.to_owned())));
                let names: BTreeMap<String, String> = names.collect();
                let count = if names.is_empty() { 2 } else { names.len() };
                (names, count)
            }
            Kind::Llama(_) | Kind::Gpt2(_) | Kind::Gguf(_) => return Vec::new(),
        };
        let is_classifier = |name: &Value| {
            name.as_str()
                .is_some_and(|name| name.ends_with("ForSequenceClassification"))
        };
        if !self.config["architectures"]
            .as_array()
            .is_some_and(|names| names.iter().any(is_classifier))
        {
            return Vec::new();
        }
        // If there are two unnamed classes, the file omits them.
        let name = |class: usize| names.get(&class.to_string()).cloned();
        (0..count)
            .map(|class| name(class).unwrap_or_else(|| format!("LABEL_{class}")))
            .collect()
    }

    /// The file with the weights: a single one, or an index of several.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn weights(&self) -> Result<PathBuf> {
        if self.path.is_file() {
            return Ok(self.path.clone());
        }
        let names = ["model.safetensors.index.json", "model.safetensors"];
        let found = names
            .iter()
            .map(|name| self.path.join(name))
            .find(|path| path.is_file());
        found.ok_or_else(|| {
            Failure::new(format!("{} has no model.safetensors", self.path.shown()))
                .fix("give the folder with the weights; `polygrad convert` makes safetensors of other files")
        })
    }

    /// The model without weights.
    ///
    /// # Errors
    /// If the config contradicts itself; those of the device.
    pub(super) fn shell(&self, device: &Device, goal: &Goal) -> Result<Tuned> {
        skip_init(|| {
            let model = match (&self.kind, goal) {
                (Kind::Llama(config), _) => LanguageModel::llama(config, device).map(Tuned::Lm),
                (Kind::Gguf(file), _) => LanguageModel::llama(&file.config, device).map(Tuned::Lm),
                (Kind::Gpt2(config), _) => LanguageModel::gpt2(config, device).map(Tuned::Lm),
                (Kind::Bert(config, Some(pooling)), _) => Bert::new(config, device).map(|bert| {
                    let pooling = pooling.clone();
                    Tuned::Encoder(Box::new(Encoder { bert, pooling }))
                }),
                (Kind::Bert(config, None), goal) => {
                    let classes = match goal {
                        Goal::Classify(labels) => labels.len(),
                        Goal::Text | Goal::Embed => 0,
                    };
                    let config = BertConfig {
                        num_labels: Some(classes.max(1)),
                        ..(**config).clone()
                    };
                    BertClassifier::new(&config, device).map(|model| Tuned::Classifier(Box::new(model)))
                }
                // Its layers are known from the whole file.
                #[cfg(feature = "onnx")]
                (Kind::Graph(_, pooling), goal) => return self.graph(pooling.as_ref(), device, goal),
            };
            model.map_err(|e| {
                let path = match self.kind {
                    Kind::Gguf(_) => self.path.clone(),
                    _ => self.path.join("config.json"),
                };
                Failure::new(format!("{}: {}", path.shown(), e.message()))
                    .fix("take the file that the model was published with")
            })
        })
    }

    #[cfg(feature = "onnx")]
    fn graph(&self, pooling: Option<&Pooling>, device: &Device, goal: &Goal) -> Result<Tuned> {
        let model = GraphModel::open(&self.path, &self.config, &self.labels(), pooling, goal, device)?;
        Ok(Tuned::Graph(Box::new(model)))
    }

    /// The model with its weights, all trainable except those that do not affect the loss. If the folder has no head,
    /// the head starts with weights from this thread's generator.
    ///
    /// # Errors
    /// If files cannot be read or do not fit; those of the device.
    pub(super) fn model(&self, device: &Device, goal: &Goal) -> Result<Tuned> {
        if let Kind::Gguf(file) = &self.kind {
            return Ok(Tuned::Lm(file.model(device, true)?));
        }
        #[cfg(feature = "onnx")]
        if let Kind::Graph(_, pooling) = &self.kind {
            return self.graph(pooling.as_ref(), device, goal);
        }
        let path = self.weights()?;
        let state = TensorFile::open(&path)?.state_dict()?;
        let mut model = self.shell(device, goal)?;
        let has_head = *goal == Goal::Classify(self.labels());
        let state = self.named(state, has_head);
        let misfit = |what: &str| {
            Failure::new(format!(
                "{} does not fit {}: {what}",
                path.shown(),
                self.path.join("config.json").shown(),
            ))
            .fix("take config.json and the weights from the same model")
        };
        match &mut model {
            Tuned::Classifier(model) if !has_head => {
                let report = model.load_state_dict(&state, false).map_err(|e| misfit(e.message()))?;
                let lacks = report.missing.iter().find(|name| !name.starts_with(HEAD));
                if let Some(name) = lacks {
                    return Err(misfit(&format!("it has no {name}")));
                }
                if let Some(name) = report.unexpected.first() {
                    return Err(misfit(&format!("{name} is no part of the model")));
                }
                let std = model.config().initializer_range;
                let (width, classes) = (model.config().hidden_size, model.config().labels());
                let head = LinearConfig::new(width, classes)
                    .init(Init::Normal { mean: 0.0, std })
                    .bias_init(Init::ZEROS);
                model.classifier = head.build(device)?.into();
            }
            model => {
                model.load_state_dict(&state, true).map_err(|e| misfit(e.message()))?;
            }
        }
        if let Tuned::Encoder(model) = &model {
            // The pooler does not contribute to vectors of texts.
            model.freeze(["pooler"])?;
        }
        Ok(model)
    }

    /// The weights of a file under the model's names, without those of other heads.
    fn named(&self, state: StateDict, has_head: bool) -> StateDict {
        let is_whole = |prefix: &str| state.keys().any(|name| name.starts_with(prefix));
        let pooled = match &self.kind {
            Kind::Llama(_) | Kind::Gguf(_) => return state,
            #[cfg(feature = "onnx")]
            Kind::Graph(..) => return state,
            // Files of GPT-2 may be of the model below the head.
            Kind::Gpt2(_) if is_whole("transformer.") => return state,
            Kind::Gpt2(_) => {
                let all = state.iter();
                return all
                    .map(|(name, value)| (format!("transformer.{name}"), value.clone()))
                    .collect();
            }
            Kind::Bert(_, pooling) => pooling.is_some(),
        };
        let is_whole = is_whole("bert.");
        let own = |name: &str| {
            // The names in BERT's first files.
            let name = name
                .replace("LayerNorm.gamma", "LayerNorm.weight")
                .replace("LayerNorm.beta", "LayerNorm.bias");
            if name.starts_with(HEAD) {
                return has_head.then_some(name);
            }
            let below = match is_whole {
                true => name.strip_prefix("bert.")?,
                false => &name,
            };
            Some(if pooled {
                below.to_owned()
            } else {
                format!("bert.{below}")
            })
        };
        let all = state.iter();
        all.filter_map(|(name, value)| Some((own(name)?, value.clone())))
            .collect()
    }

    /// Identifies the model: a digest of the weight files, its settings and its tokenizer.
    ///
    /// # Errors
    /// If files cannot be read.
    pub(super) fn digest(&self) -> Result<String> {
        if let Kind::Gguf(_) = self.kind {
            return digest(std::slice::from_ref(&self.path));
        }
        let folder = self.folder();
        let mut files: Vec<PathBuf> = match &self.kind {
            #[cfg(feature = "onnx")]
            Kind::Graph(..) => graph::files(&self.path)?,
            _ => std::fs::read_dir(folder)
                .map_err(|e| Failure::io("read", folder, &e))?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
                .collect(),
        };
        files.extend(["config.json", "tokenizer.json"].map(|name| folder.join(name)));
        if self.has_pooling() {
            let pooled = ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json"];
            let pooled = pooled.map(|name| folder.join(name));
            files.extend(pooled.into_iter().filter(|path| path.is_file()));
        }
        files.sort();
        digest(&files)
    }

    /// How texts become tokens.
    ///
    /// # Errors
    /// No tokenizer, or files that are damaged.
    pub(super) fn format(&self) -> Result<TextFormat> {
        match &self.kind {
            Kind::Gguf(file) => file.format(),
            _ => Ok(TextFormat::from_folder(self.folder())?),
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder with its config and tokenizer; a GGUF file itself, which has both.
    pub(super) fn folder(&self) -> &Path {
        match &self.kind {
            #[cfg(feature = "onnx")]
            Kind::Graph(folder, _) => folder,
            _ => &self.path,
        }
    }

    /// Whether the folder says how vectors of tokens become one of a text.
    fn has_pooling(&self) -> bool {
        match &self.kind {
            #[cfg(feature = "onnx")]
            Kind::Graph(_, pooling) => pooling.is_some(),
            kind => matches!(kind, Kind::Bert(_, Some(_))),
        }
    }

    /// Whether it is an ONNX file.
    pub(super) fn is_graph(&self) -> bool {
        #[cfg(feature = "onnx")]
        if let Kind::Graph(..) = self.kind {
            return true;
        }
        false
    }

    /// The GGUF file that it is.
    pub(super) fn gguf(&self) -> Option<&Gguf> {
        match &self.kind {
            Kind::Gguf(file) => Some(file),
            _ => None,
        }
    }

    /// Whether the projection to the vocabulary has the weight of the token embedding; `None` without a projection.
    fn tied(&mut self) -> Option<&mut bool> {
        match &mut self.kind {
            Kind::Llama(config) => Some(&mut config.tie_word_embeddings),
            Kind::Gguf(file) => Some(&mut file.config.tie_word_embeddings),
            Kind::Gpt2(config) => Some(&mut config.tie_word_embeddings),
            Kind::Bert(..) => None,
            #[cfg(feature = "onnx")]
            Kind::Graph(..) => None,
        }
    }

    /// Gives the projection to the vocabulary a weight of its own, if it shares that of the token embedding. Returns
    /// whether it did.
    pub(super) fn untie(&mut self) -> bool {
        let was_tied = self.tied().is_some_and(std::mem::take);
        if was_tied {
            self.config["tie_word_embeddings"] = false.into();
        }
        was_tied
    }

    /// Whether it has weights that stay packed.
    ///
    /// # Errors
    /// As [`Gguf::is_quantized`].
    pub(super) fn is_quantized(&self) -> Result<bool> {
        self.gguf().map_or(Ok(false), Gguf::is_quantized)
    }

    /// Whether a file would be one of the base, or lie among them.
    pub(super) fn holds(&self, path: &Path) -> bool {
        match self.kind {
            Kind::Gguf(_) => {
                let own = self.path.canonicalize();
                path.canonicalize().is_ok_and(|path| own.is_ok_and(|own| own == path))
            }
            #[cfg(feature = "onnx")]
            Kind::Graph(..) => is_in(path, self.folder()) || is_in(path, self.path.parent().unwrap_or(&self.path)),
            _ => is_in(path, &self.path),
        }
    }
}

/// Whether a file would be in a folder.
pub(super) fn is_in(path: &Path, folder: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    parent.is_ok_and(|parent| folder.canonicalize().is_ok_and(|folder| parent == folder))
}

/// The text of the config in a folder.
fn read_config(folder: &Path) -> Result<String> {
    let path = folder.join("config.json");
    let mut text = String::new();
    let file = open_file(&path)?.0;
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(|e| Failure::io("read", &path, &e))?;
    Ok(text)
}

/// The files of a digest, and the size and time of the last change of each.
type Stamp = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// A digest of the contents of files. It is computed once for as long as they are unchanged: a gigabyte takes seconds.
///
/// # Errors
/// If one cannot be read.
pub(super) fn digest(files: &[PathBuf]) -> Result<String> {
    static KNOWN: Mutex<Vec<(Stamp, String)>> = Mutex::new(Vec::new());
    let mut stamp = Stamp::new();
    for path in files {
        let data = std::fs::metadata(path).map_err(|e| Failure::io("read", path, &e))?;
        stamp.push((path.clone(), data.len(), data.modified().ok()));
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, digest)) = known.iter().find(|(known, _)| *known == stamp) {
        return Ok(digest.clone());
    }
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
        // Makes moving bytes from one file to the next change the digest.
        hash.update(count.to_le_bytes());
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    known.push((stamp, digest.clone()));
    Ok(digest)
}
