//! The goal of the training.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The values of `--task`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Named {
    /// Generate completions, or the assistant's messages in chats
    Text,
    /// Classify texts
    Classify,
    /// Embed texts, so that related texts get similar vectors
    Embed,
}

/// The same, in the form of settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Goal {
    /// Writing text.
    #[default]
    Text,
    /// Classifying, with these class names by index; empty until the data are read.
    Classify(Vec<String>),
    /// Computing vectors.
    Embed,
}

impl From<Named> for Goal {
    fn from(named: Named) -> Self {
        match named {
            Named::Text => Self::Text,
            Named::Classify => Self::Classify(Vec::new()),
            Named::Embed => Self::Embed,
        }
    }
}

impl Goal {
    /// For `skip_serializing_if`: settings of runs that write text omit the goal.
    pub(super) fn is_text(&self) -> bool {
        *self == Self::Text
    }

    /// The name on the command line.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Classify(_) => "classify",
            Self::Embed => "embed",
        }
    }

    /// The default epochs, examples per step and learning rate.
    pub(super) fn defaults(&self, has_adapter: bool) -> (usize, usize, f64) {
        let batch_size = match self {
            Self::Text => 8,
            Self::Classify(_) => 16,
            // A larger batch has more texts to distinguish.
            Self::Embed => 32,
        };
        (3, batch_size, if has_adapter { 2e-4 } else { 2e-5 })
    }

    /// The format of a line of examples.
    pub(super) fn form(&self) -> &'static str {
        match self {
            Self::Text => {
                r#"write each line as {"prompt": "…", "completion": "…"} or {"messages": [{"role": "user", …}, …]}"#
            }
            Self::Classify(_) => r#"write each line as {"text": "…", "label": "…"}, perhaps with "text_pair": "…""#,
            Self::Embed => r#"write each line as {"anchor": "…", "positive": "…"}, perhaps with "negative": "…""#,
        }
    }

    /// The models that can be trained for it.
    pub(super) fn models(&self) -> &'static str {
        match self {
            Self::Text => {
                "give the folder of a Llama, Mistral, Qwen2 or GPT-2 model as the Hub has it, or the GGUF file of a \
                 Llama or Qwen2"
            }
            Self::Classify(_) => {
                "give the folder of a BERT as the Hub has it, or the ONNX file of an encoder or a classifier"
            }
            Self::Embed => {
                "give the folder of a BERT as sentence-transformers has it, or the ONNX file of an encoder in such a \
                 folder"
            }
        }
    }
}
