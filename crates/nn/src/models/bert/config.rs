//! The config of BERT.

use std::collections::BTreeMap;

use polygrad_tensor::{Backend, Device, Result};
use serde::{Deserialize, Serialize};

use super::super::{ActivationFn, ModelConfig};
use crate::{Init, LayerNorm, LayerNormConfig, Linear, LinearConfig};

/// The config of a [`BertClassifier`](super::BertClassifier), with the fields and defaults of Hugging
/// Face's `BertConfig`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BertConfig {
    /// Size of the vocabulary. Default: 30,522.
    pub vocab_size: usize,
    /// Width of the vectors. Default: 768.
    pub hidden_size: usize,
    /// Number of layers. Default: 12.
    pub num_hidden_layers: usize,
    /// Number of attention heads, which must divide `hidden_size`. Default: 12.
    pub num_attention_heads: usize,
    /// Width between the two linear layers of a layer. Default: 3,072.
    pub intermediate_size: usize,
    /// The activation between them. Default: GELU.
    pub hidden_act: ActivationFn,
    /// Dropout of embeddings and after each part of a layer. Default: 0.1.
    pub hidden_dropout_prob: f64,
    /// Dropout of attention weights. Default: 0.1.
    pub attention_probs_dropout_prob: f64,
    /// Tokens of the longest text. Default: 512.
    pub max_position_embeddings: usize,
    /// Number of texts that an input may consist of. Default: 2.
    pub type_vocab_size: usize,
    /// Standard deviation of the initial weights. Default: 0.02.
    pub initializer_range: f64,
    /// Added to the variance in the norms. Default: 1e-12.
    pub layer_norm_eps: f64,
    /// The token whose vector begins as 0 and gets no gradient. Default: 0.
    pub pad_token_id: Option<isize>,
    /// Dropout before the classifier. Default: `hidden_dropout_prob`.
    pub classifier_dropout: Option<f64>,
    /// Number of classes. Default: the number of names in `id2label`, else 2.
    pub num_labels: Option<usize>,
    /// Names of the classes by their numbers, as in the Hub's files.
    pub id2label: BTreeMap<String, String>,
    /// Any value other than "absolute" is an error.
    pub position_embedding_type: Option<String>,
    /// True is an error.
    pub is_decoder: bool,
}

impl Default for BertConfig {
    fn default() -> Self {
        Self {
            vocab_size: 30_522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: ActivationFn::Gelu,
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            pad_token_id: Some(0),
            classifier_dropout: None,
            num_labels: None,
            id2label: BTreeMap::new(),
            position_embedding_type: None,
            is_decoder: false,
        }
    }
}

impl ModelConfig for BertConfig {}

impl BertConfig {
    /// Number of classes.
    pub fn labels(&self) -> usize {
        match (self.num_labels, self.id2label.len()) {
            (Some(count), _) => count,
            (None, 0) => 2,
            (None, named) => named,
        }
    }

    pub(super) fn init(&self) -> Init {
        Init::Normal {
            mean: 0.0,
            std: self.initializer_range,
        }
    }

    pub(super) fn linear<B: Backend>(&self, inputs: usize, outputs: usize, device: &Device<B>) -> Result<Linear<B>> {
        LinearConfig::new(inputs, outputs)
            .init(self.init())
            .bias_init(Init::ZEROS)
            .build(device)
    }

    pub(super) fn norm<B: Backend>(&self, device: &Device<B>) -> Result<LayerNorm<B>> {
        LayerNormConfig::new([self.hidden_size])
            .eps(self.layer_norm_eps)
            .build(device)
    }
}
