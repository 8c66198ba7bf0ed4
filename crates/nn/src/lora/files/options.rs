//! `adapter_config.json`, PEFT's options of an adapter.

use std::collections::BTreeMap;
use std::path::Path;

use polygrad_core::printable;
use polygrad_tensor::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::LoraConfig;
use crate::module::fits;

/// The options that are read and written. PEFT has defaults for those that are absent.
#[derive(Serialize, Deserialize)]
pub(super) struct PeftConfig {
    #[serde(default)]
    pub(super) alpha_pattern: BTreeMap<String, Number>,
    #[serde(default)]
    pub(super) base_model_name_or_path: Option<String>,
    #[serde(default)]
    bias: Option<String>,
    #[serde(default)]
    pub(super) exclude_modules: Option<Modules>,
    #[serde(default)]
    pub(super) fan_in_fan_out: bool,
    #[serde(default)]
    inference_mode: bool,
    #[serde(default)]
    init_lora_weights: Value,
    pub(super) lora_alpha: Number,
    #[serde(default)]
    pub(super) lora_dropout: f64,
    #[serde(default)]
    pub(super) modules_to_save: Option<Vec<String>>,
    peft_type: String,
    pub(super) r: usize,
    #[serde(default)]
    pub(super) rank_pattern: BTreeMap<String, usize>,
    #[serde(default)]
    pub(super) target_modules: Option<Modules>,
    #[serde(default)]
    pub(super) use_dora: bool,
    #[serde(default)]
    pub(super) use_rslora: bool,
    /// All other options.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Modules by their names or by a regular expression.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Modules {
    Names(Vec<String>),
    Expression(String),
}

/// A number that PEFT writes without a decimal point if it is an integer.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(super) struct Number(pub(super) f64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0.fract() == 0.0 && self.0.abs() < 1e15 {
            true => serializer.serialize_i64(self.0 as i64),
            false => serializer.serialize_f64(self.0),
        }
    }
}

/// Unsupported options that change what an adapter or its base computes; each is off if it is absent, null, false or
/// empty.
const ABSENT: [&str; 12] = [
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_qalora",
    "velora_config",
    "loftq_config",
];

/// Initializations that leave the base unchanged.
const BEGINNINGS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

impl PeftConfig {
    /// The config of an adapter with these options.
    pub(super) fn new(config: &LoraConfig) -> Self {
        Self {
            alpha_pattern: BTreeMap::new(),
            base_model_name_or_path: config.base.clone(),
            bias: Some("none".to_owned()),
            exclude_modules: None,
            fan_in_fan_out: false,
            inference_mode: true,
            init_lora_weights: Value::Bool(true),
            lora_alpha: Number(config.alpha),
            lora_dropout: config.dropout,
            modules_to_save: None,
            peft_type: "LORA".to_owned(),
            r: config.rank,
            rank_pattern: BTreeMap::new(),
            target_modules: None,
            use_dora: config.dora,
            use_rslora: config.rank_stabilized,
            others: Map::new(),
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, is not PEFT's, or has an unsupported option.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let (mut file, _) = crate::open_file(path)?;
        let mut json = String::new();
        std::io::Read::read_to_string(&mut file, &mut json).map_err(|e| Error::io("read", path, e))?;
        let shown = printable(&path.to_string_lossy()).into_owned();
        let config: Self = serde_json::from_str(&json).map_err(|e| {
            Error::new(ErrorKind::Format, format!("{shown}: {e}"))
                .with_hint("take the adapter_config.json that PEFT wrote beside adapter_model.safetensors")
        })?;
        match config.absent() {
            None => Ok(config),
            Some(what) => Err(Error::unsupported(format!("{shown} has {what}, which is not there"))
                .with_hint("merge that adapter with PEFT, and load the merged model")),
        }
    }

    /// An unsupported option that is on; `None` if there is none.
    fn absent(&self) -> Option<String> {
        let off = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(values) => values.is_empty(),
            Value::Object(values) => values.is_empty(),
            _ => false,
        };
        if self.peft_type != "LORA" {
            return Some(format!("peft_type {}", printable(&self.peft_type)));
        }
        if let Some(bias) = self.bias.as_deref().filter(|bias| *bias != "none") {
            return Some(format!("bias {}", printable(bias)));
        }
        match &self.init_lora_weights {
            Value::Null | Value::Bool(_) => {}
            Value::String(name) if BEGINNINGS.contains(&name.as_str()) => {}
            other => return Some(format!("init_lora_weights {other}, by which PEFT changes the base")),
        }
        let patterns = self.rank_pattern.keys().chain(self.alpha_pattern.keys());
        if let Some(key) = patterns
            .into_iter()
            .find(|key| key.contains(|c| "^$*+?()[]{}|\\".contains(c)))
        {
            return Some(format!(
                "a regular expression, {}, as a pattern of ranks or alphas",
                printable(key)
            ));
        }
        let set = |name: &&&str| self.others.get(**name).is_some_and(|value| !off(value));
        ABSENT.iter().find(set).map(|name| (*name).to_owned())
    }

    /// The rank and the alpha of the layer with this path.
    pub(super) fn of(&self, path: &str) -> (usize, f64) {
        let rank = self.rank_pattern.iter().find(|(name, _)| fits(name, path));
        let alpha = self.alpha_pattern.iter().find(|(name, _)| fits(name, path));
        (
            rank.map_or(self.r, |(_, rank)| *rank),
            alpha.map_or(self.lora_alpha, |(_, alpha)| *alpha).0,
        )
    }

    /// The options of an adapter in the layers with these paths.
    pub(super) fn options(&self, paths: &[String]) -> LoraConfig {
        let names = |modules: &Option<Modules>| match modules {
            Some(Modules::Names(names)) => Some(names.clone()),
            _ => None,
        };
        let config = LoraConfig::new(self.r)
            .alpha(self.lora_alpha.0)
            .dropout(self.lora_dropout)
            .rank_stabilized(self.use_rslora)
            .dora(self.use_dora);
        let config = match &self.base_model_name_or_path {
            Some(base) => config.base(base),
            None => config,
        };
        match (names(&self.target_modules), &self.exclude_modules) {
            (Some(targets), None) => config.targets(targets),
            _ => config.targets(paths),
        }
    }
}
