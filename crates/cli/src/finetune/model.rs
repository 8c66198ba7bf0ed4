//! The trained models: a language model, a text classifier, a text encoder, or a graph that is one of the last two.

use polygrad::nn::loss::{CrossEntropyLoss, Reduction, cross_entropy};
use polygrad::nn::models::{Bert, BertClassifier, BertInput, CausalLm};
use polygrad::nn::{Module, Visit, Visitor};
use polygrad::text::{LanguageModel, Pooling};
use polygrad::train::Step;
use polygrad::{AnyBackend, Error, Tensor};

#[cfg(feature = "onnx")]
use super::graph::GraphModel;
use super::prompts::MASKED;
use crate::task::Batch;

/// The factor of similarities before the softmax, as in sentence-transformers.
const SCALE: f64 = 20.0;

/// The most logits held at a time, 16 MiB in f32.
const MOST_LOGITS: usize = 1 << 22;

/// A pretrained model of a kind that can be finetuned.
#[derive(Debug, Module)]
pub(crate) enum Tuned {
    Lm(LanguageModel),
    Classifier(Box<BertClassifier>),
    Encoder(Box<Encoder>),
    #[cfg(feature = "onnx")]
    Graph(Box<GraphModel>),
}

impl Tuned {
    /// The loss of a batch, and the values for metrics. At most `rows` texts are converted to vectors at a time.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn step(&self, batch: &Batch, rows: usize) -> polygrad::Result<Step> {
        let (loss, predictions, targets) = self.judged(batch, rows)?;
        Ok(Step::new(loss).outputs(predictions, &targets))
    }

    /// The same as loss, predictions and targets.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn judged(&self, (x, y): &Batch, rows: usize) -> polygrad::Result<(Tensor, Tensor, Tensor)> {
        let (predictions, targets) = match self {
            Self::Lm(model) => {
                let losses = losses(model, x, y)?;
                let count = y.ne(MASKED)?.to_dtype(losses.dtype())?.sum_all()?;
                return Ok((losses.sum_all()?.div(&count)?, losses, y.clone()));
            }
            Self::Classifier(_) => (self.logits(x)?, y.clone()),
            #[cfg(feature = "onnx")]
            Self::Graph(model) if model.is_classifier => (self.logits(x)?, y.clone()),
            _ => {
                let scores = scores(x, rows, |texts| self.vectors(texts))?;
                // The text of an anchor has the anchor's index.
                let own = Tensor::arange(0i64, x.dims()[0] as i64, 1, &x.device())?;
                (scores, own)
            }
        };
        Ok((cross_entropy(&predictions, &targets)?, predictions, targets))
    }

    /// The logits `[N, classes]` of a batch of texts.
    ///
    /// # Errors
    /// A model of another kind; those of the device.
    pub(super) fn logits(&self, x: &Tensor) -> polygrad::Result<Tensor> {
        let columns = columns(&x.select(1, 0)?)?;
        match self {
            Self::Classifier(model) => model.forward(input(&columns, model.config().type_vocab_size)),
            #[cfg(feature = "onnx")]
            Self::Graph(model) if model.is_classifier => model.forward(&columns),
            _ => Err(Error::unsupported("the model tells no classes apart")),
        }
    }

    /// Converts texts `[N, 3, S]` to vectors `[N, width]`.
    fn vectors(&self, texts: &Tensor) -> polygrad::Result<Tensor> {
        let columns = columns(texts)?;
        match self {
            Self::Encoder(model) => {
                let hidden = model
                    .bert
                    .forward(input(&columns, model.bert.config().type_vocab_size))?;
                model.pooling.pool(&hidden, &columns[1])
            }
            #[cfg(feature = "onnx")]
            Self::Graph(model) => model.forward(&columns),
            _ => Err(Error::unsupported("the model makes no vectors of texts")),
        }
    }
}

/// A BERT whose token vectors are pooled to one per text. Its parameters keep their names.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub(super) bert: Bert,
    pub(super) pooling: Pooling,
}

impl Visit<AnyBackend> for Encoder {
    fn visit(&self, visitor: &mut Visitor<'_, AnyBackend>) {
        self.bert.visit(visitor);
    }
}

impl Module<AnyBackend> for Encoder {}

/// The similarities of `N` anchors to all other texts of their batch `[N, texts of an example, 3, S]`, the texts that
/// belong to the anchors first, in order: `[N, N · (texts of an example - 1)]`. `vectors` converts at most `rows` texts
/// at a time.
///
/// Source: Henderson et al., "Efficient natural language response suggestion for smart reply" (2017), with cosines as
/// in sentence-transformers.
fn scores(x: &Tensor, rows: usize, vectors: impl Fn(&Tensor) -> polygrad::Result<Tensor>) -> polygrad::Result<Tensor> {
    let dims = x.dims();
    let (count, each) = (dims[0], dims[1]);
    let all = count * each;
    // All anchors come first.
    let texts = x.transpose(0, 1)?.reshape([all, dims[2], dims[3]])?;
    let parts = (0..all).step_by(rows.max(1));
    let found = parts.map(|from| vectors(&texts.narrow(0, from, rows.min(all - from))?));
    let found = found.collect::<polygrad::Result<Vec<_>>>()?;
    let found = match &found[..] {
        [only] => only.clone(),
        parts => Tensor::cat(parts, 0)?,
    };
    let found = Pooling::normalized(&found)?;
    let others = found.narrow(0, count, all - count)?;
    found.narrow(0, 0, count)?.matmul(&others.t()?)? * SCALE
}

/// The tokens, the mask and the types of texts `[N, 3, S]`, each `[N, S]`.
fn columns(texts: &Tensor) -> polygrad::Result<[Tensor; 3]> {
    Ok([texts.select(1, 0)?, texts.select(1, 1)?, texts.select(1, 2)?])
}

fn input([ids, mask, types]: &[Tensor; 3], kinds: usize) -> BertInput<'_> {
    let input = BertInput::new(ids).attention_mask(mask);
    match kinds {
        0 | 1 => input,
        _ => input.token_type_ids(types),
    }
}

/// The cross entropy of each of the tokens `targets [N, S]` that follow `x [N, S]`. For packed examples, `x [N, 2, S]`
/// also has the position at which each token's example begins.
fn losses(model: &LanguageModel, x: &Tensor, targets: &Tensor) -> polygrad::Result<Tensor> {
    let (ids, starts) = match x.rank() {
        3 => (x.select(1, 0)?, Some(x.select(1, 1)?)),
        _ => (x.clone(), None),
    };
    let x = model.hidden(&ids, starts.as_ref())?;
    let head = model.head().clone();
    let rows = MOST_LOGITS / model.vocab_size().max(1);
    let loss = CrossEntropyLoss::new().reduction(Reduction::None);
    loss.forward_chunked(&x, targets, rows, move |x| head.forward(x))
}
