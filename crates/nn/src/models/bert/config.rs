//! The config of BERT.

use std::collections::BTreeMap;

use polygrad_tensor::{Backend, Device, Result};
use serde::{Deserialize, Serialize};

use super::super::{ActivationFn, ModelConfig};
use crate::{Init, LayerNorm, LayerNormConfig, Linear, LinearConfig, defaults};

defaults! {
    /// The config of a [`BertClassifier`](super::BertClassifier), with the fields and defaults of Hugging
    /// Face's `BertConfig`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct BertConfig {
        /// Size of the vocabulary. Default: 30,522.
        pub vocab_size: usize = 30_522,
        /// Width of the vectors. Default: 768.
        pub hidden_size: usize = 768,
        /// Number of layers. Default: 12.
        pub num_hidden_layers: usize = 12,
        /// Number of attention heads, which must divide `hidden_size`. Default: 12.
        pub num_attention_heads: usize = 12,
        /// Width between the two linear layers of a layer. Default: 3,072.
        pub intermediate_size: usize = 3072,
        /// The activation between them. Default: GELU.
        pub hidden_act: ActivationFn = ActivationFn::Gelu,
        /// Dropout of embeddings and after each part of a layer. Default: 0.1.
        pub hidden_dropout_prob: f64 = 0.1,
        /// Dropout of attention weights. Default: 0.1.
        pub attention_probs_dropout_prob: f64 = 0.1,
        /// Tokens of the longest text. Default: 512.
        pub max_position_embeddings: usize = 512,
        /// Number of texts that an input may consist of. Default: 2.
        pub type_vocab_size: usize = 2,
        /// Standard deviation of the initial weights. Default: 0.02.
        pub initializer_range: f64 = 0.02,
        /// Added to the variance in the norms. Default: 1e-12.
        pub layer_norm_eps: f64 = 1e-12,
        /// The token whose vector begins as 0 and gets no gradient. Default: 0.
        pub pad_token_id: Option<isize> = Some(0),
        /// Dropout before the classifier. Default: `hidden_dropout_prob`.
        pub classifier_dropout: Option<f64> = None,
        /// Number of classes. Default: the number of names in `id2label`, else 2.
        pub num_labels: Option<usize> = None,
        /// Names of the classes by their numbers, as in the Hub's files.
        pub id2label: BTreeMap<String, String> = BTreeMap::new(),
        /// Any value other than "absolute" is an error.
        pub position_embedding_type: Option<String> = None,
        /// True is an error.
        pub is_decoder: bool = false,
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
