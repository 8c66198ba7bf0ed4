//! BERT, and its building blocks for models of your own.

mod config;
mod layer;

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Result, Tensor};

pub use config::BertConfig;

use super::config::{check_heads, layers, only, padding_mask, token_shape};
use crate::{Dropout, Embedding, EmbeddingConfig, LayerNorm, Linear, Module, Slot, watch};
pub use layer::{Attention, Heads, Intermediate, Layer, Output};

const NAME: &str = "Bert";

/// An encoder of texts with a classifier, with the parameter names of Hugging Face's `BertForSequenceClassification`.
///
/// Source: Devlin et al., "BERT: pre-training of deep bidirectional transformers for language understanding" (2018).
///
/// ```
/// use polygrad_nn::models::{BertClassifier, BertConfig, BertInput};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let config = BertConfig {
///     vocab_size: 20,
///     hidden_size: 8,
///     num_hidden_layers: 2,
///     num_attention_heads: 2,
///     intermediate_size: 16,
///     num_labels: Some(3),
///     ..BertConfig::default()
/// };
/// let model = BertClassifier::new(&config, &device)?;
/// let ids = Tensor::new([[4i64, 7, 9], [5, 3, 0]], &device)?;
/// let mask = Tensor::new([[1i64, 1, 1], [1, 1, 0]], &device)?;
/// let logits = model.forward(BertInput::new(&ids).attention_mask(&mask))?;
/// assert_eq!(logits.dims(), [2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct BertClassifier<B: Backend = AnyBackend> {
    /// The model below the head.
    pub bert: Bert<B>,
    /// Dropout before the head.
    pub dropout: Dropout,
    /// Maps the pooled vector of a text to the logits.
    pub classifier: Slot<Linear<B>, B>,
}

/// BERT without a head: a vector for each token, with the names of Hugging Face's `BertModel`. Models for sentence
/// embeddings, such as MiniLM, are files of this kind. [`Slot`] shows how to wrap one of its layers.
///
/// ```
/// # use polygrad_nn::models::{Bert, BertConfig, BertInput};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// let config = BertConfig {
///     vocab_size: 20,
///     hidden_size: 8,
///     num_hidden_layers: 2,
///     num_attention_heads: 2,
///     intermediate_size: 16,
///     ..BertConfig::default()
/// };
/// let model = Bert::new(&config, &device)?;
/// let ids = Tensor::new([[4i64, 7, 9], [5, 3, 0]], &device)?;
/// assert_eq!(model.forward(BertInput::new(&ids))?.dims(), [2, 3, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct Bert<B: Backend = AnyBackend> {
    /// Maps token ids to vectors.
    pub embeddings: Embeddings<B>,
    /// The layers.
    pub encoder: Encoder<B>,
    /// The layer used by [`Bert::pool`].
    pub pooler: Pooler<B>,
    #[module(skip)]
    config: BertConfig,
}

/// Maps token ids to vectors.
#[derive(Debug, Module)]
#[module(unused = "position_ids", unused = "token_type_ids")]
pub struct Embeddings<B: Backend = AnyBackend> {
    /// Vectors of the tokens.
    pub word_embeddings: Slot<Embedding<B>, B>,
    /// Vectors of the positions.
    pub position_embeddings: Slot<Embedding<B>, B>,
    /// Vectors of the text, first or second, that a token belongs to.
    pub token_type_embeddings: Slot<Embedding<B>, B>,
    /// Normalises the sum; "LayerNorm" in names.
    #[module(rename = "LayerNorm")]
    pub layer_norm: Slot<LayerNorm<B>, B>,
    /// Dropout after the norm.
    pub dropout: Dropout,
}

/// The layers of BERT.
#[derive(Debug, Module)]
pub struct Encoder<B: Backend = AnyBackend> {
    /// The layers in order.
    pub layer: Vec<Layer<B>>,
}

/// The layer that maps the first token's vector to a vector of the whole text.
#[derive(Debug, Module)]
pub struct Pooler<B: Backend = AnyBackend> {
    /// The projection before tanh.
    pub dense: Slot<Linear<B>, B>,
}

/// A batch of texts.
#[derive(Clone, Copy, Debug)]
pub struct BertInput<'a, B: Backend = AnyBackend> {
    input_ids: &'a Tensor<B>,
    attention_mask: Option<&'a Tensor<B>>,
    token_type_ids: Option<&'a Tensor<B>>,
}

impl<'a, B: Backend> BertInput<'a, B> {
    /// Token ids `[N, S]` (i64), none of which are padding.
    pub const fn new(input_ids: &'a Tensor<B>) -> Self {
        Self {
            input_ids,
            attention_mask: None,
            token_type_ids: None,
        }
    }

    /// `[N, S]`: 1 (or true) for tokens, 0 (or false) for padding.
    #[must_use]
    pub const fn attention_mask(mut self, mask: &'a Tensor<B>) -> Self {
        self.attention_mask = Some(mask);
        self
    }

    /// `[N, S]` (i64): which of the two texts a token belongs to. Default: the first.
    #[must_use]
    pub const fn token_type_ids(mut self, ids: &'a Tensor<B>) -> Self {
        self.token_type_ids = Some(ids);
        self
    }
}

impl<B: Backend> Bert<B> {
    /// A model with random weights, initialised like BERT.
    ///
    /// # Errors
    /// When the config is contradictory or requires something that is not implemented, or memory runs out.
    pub fn new(config: &BertConfig, device: &Device<B>) -> Result<Self> {
        let width = config.hidden_size;
        check_heads(NAME, config.num_attention_heads, width)?;
        let absolute = config
            .position_embedding_type
            .as_deref()
            .is_none_or(|kind| kind == "absolute");
        only(NAME, "a position_embedding_type other than absolute", absolute)?;
        only(NAME, "is_decoder", !config.is_decoder)?;
        let embedding = |rows: usize| EmbeddingConfig::new(rows, width).init(config.init());
        let mut words = embedding(config.vocab_size);
        if let Some(id) = config.pad_token_id {
            words = words.padding_idx(id);
        }
        let layers = layers(NAME, config.num_hidden_layers)?.map(|_| Layer::new(config, device));
        Ok(Self {
            embeddings: Embeddings {
                word_embeddings: words.build(device)?.into(),
                position_embeddings: embedding(config.max_position_embeddings).build(device)?.into(),
                token_type_embeddings: embedding(config.type_vocab_size).build(device)?.into(),
                layer_norm: config.norm(device)?.into(),
                dropout: Dropout::new(config.hidden_dropout_prob)?,
            },
            encoder: Encoder {
                layer: layers.collect::<Result<_>>()?,
            },
            pooler: Pooler {
                dense: config.linear(width, width, device)?.into(),
            },
            config: config.clone(),
        })
    }

    /// The config.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// The vectors of all tokens after the last layer `[N, S, hidden_size]`.
    ///
    /// # Errors
    /// When a text is longer than `max_position_embeddings`, a token is outside the vocabulary, or shapes do not fit.
    pub fn forward(&self, input: BertInput<'_, B>) -> Result<Tensor<B>> {
        watch::layer(self, input.input_ids, || self.run(input, |_| {}))
    }

    /// The vectors `[N, S, hidden_size]` after the embeddings and after each layer, the last of which are the result of
    /// [`Bert::forward`]: Hugging Face's `hidden_states`.
    ///
    /// # Errors
    /// As [`Bert::forward`].
    pub fn hidden_states(&self, input: BertInput<'_, B>) -> Result<Vec<Tensor<B>>> {
        let mut states = Vec::with_capacity(self.encoder.layer.len() + 1);
        self.run(input, |x| states.push(x.clone()))?;
        Ok(states)
    }

    fn run(&self, input: BertInput<'_, B>, mut each: impl FnMut(&Tensor<B>)) -> Result<Tensor<B>> {
        let ids = input.input_ids;
        let (n, length) = token_shape(NAME, ids)?;
        if length == 0 || length > self.config.max_position_embeddings {
            return Err(Error::out_of_range(format!(
                "{length} tokens, but there are 1 to {} positions",
                self.config.max_position_embeddings
            ))
            .with_op(NAME)
            .with_hint("cut the text into parts"));
        }
        let mask = (input.attention_mask)
            .map(|mask| padding_mask(NAME, mask, (n, length)))
            .transpose()?;
        let mut x = self.embeddings.forward(ids, input.token_type_ids)?;
        each(&x);
        for layer in &self.encoder.layer {
            x = layer.forward(&x, mask.as_ref())?;
            each(&x);
        }
        Ok(x)
    }

    /// A vector for each text, `[N, hidden_size]`, from the vectors of its tokens: a layer and tanh applied to the
    /// first token's vector.
    ///
    /// # Errors
    /// When the shape is not that of [`Bert::forward`]'s result.
    pub fn pool(&self, hidden: &Tensor<B>) -> Result<Tensor<B>> {
        self.pooler.dense.forward(&hidden.select(1, 0)?)?.tanh()
    }
}

impl<B: Backend> BertClassifier<B> {
    /// A model with random weights, initialised like BERT.
    ///
    /// # Errors
    /// As [`Bert::new`].
    pub fn new(config: &BertConfig, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            bert: Bert::new(config, device)?,
            dropout: Dropout::new(config.classifier_dropout.unwrap_or(config.hidden_dropout_prob))?,
            classifier: config.linear(config.hidden_size, config.labels(), device)?.into(),
        })
    }

    /// The config.
    pub fn config(&self) -> &BertConfig {
        &self.bert.config
    }

    /// The logits of the classes `[N, num_labels]`.
    ///
    /// # Errors
    /// As [`Bert::forward`].
    pub fn forward(&self, input: BertInput<'_, B>) -> Result<Tensor<B>> {
        watch::layer(self, input.input_ids, || {
            let pooled = self.bert.pool(&self.bert.forward(input)?)?;
            self.classifier.forward(&self.dropout.forward(&pooled)?)
        })
    }
}

impl<B: Backend> Embeddings<B> {
    fn forward(&self, ids: &Tensor<B>, types: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        watch::layer(self, ids, || {
            let device = ids.device();
            let first = match types {
                Some(types) if types.shape() != ids.shape() => {
                    return Err(Error::shape("there is one token type for each token")
                        .with_op(NAME)
                        .with_operands([(ids.shape(), ids.dtype()), (types.shape(), types.dtype())]));
                }
                Some(types) => types.clone(),
                None => Tensor::full(ids.shape(), 0i64, (&device, DType::I64))?,
            };
            let places = Tensor::arange(0i64, ids.shape()[1] as i64, 1, &device)?;
            let x = self.word_embeddings.forward(ids)?;
            let x = x.add(&self.token_type_embeddings.forward(&first)?)?;
            let x = x.add(&self.position_embeddings.forward(&places)?)?;
            self.dropout.forward(&self.layer_norm.forward(&x)?)
        })
    }
}
