//! The settings that define a run.

use std::path::PathBuf;

use polygrad::nn::models::Gpt2Config;
use serde::{Deserialize, Serialize};

use crate::run::config::Training;

/// The settings of a run, as `config.json` has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    #[serde(flatten)]
    pub(super) training: Training,
    /// The file, as an absolute path; `None` for the plays that come with Polygrad.
    #[serde(default, with = "crate::run::any_path")]
    pub(super) text: Option<PathBuf>,
    /// The characters of the text, each once; their indices are the tokens.
    pub(super) characters: String,
    pub(super) context: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) width: usize,
}

impl Settings {
    /// The model.
    pub(super) fn config(&self) -> Gpt2Config {
        Gpt2Config {
            vocab_size: self.characters.chars().count(),
            n_positions: self.context,
            n_embd: self.width,
            n_layer: self.layers,
            n_head: self.heads,
            resid_pdrop: 0.0,
            embd_pdrop: 0.0,
            attn_pdrop: 0.0,
            ..Gpt2Config::default()
        }
    }
}
