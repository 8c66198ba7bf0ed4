//! The trained models: a language model, a text classifier, or a text encoder.

use polygrad::nn::loss::{CrossEntropyLoss, Reduction, cross_entropy};
use polygrad::nn::models::{Bert, BertClassifier, BertInput, CausalLm};
use polygrad::nn::{Module, Visit, Visitor};
use polygrad::text::{LanguageModel, Pooling};
use polygrad::train::Step;
use polygrad::{AnyBackend, Error, Tensor};

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
            Self::Encoder(model) => {
                let scores = model.scores(x, rows)?;
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
        let Self::Classifier(model) = self else {
            return Err(Error::unsupported("the model tells no classes apart"));
        };
        let [ids, mask, types] = columns(&x.select(1, 0)?)?;
        model.forward(input(&[&ids, &mask, &types], model.config().type_vocab_size))
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

impl Encoder {
    /// The similarities of `N` anchors to all other texts of their batch `[N, texts of an example, 3, S]`, the texts
    /// that belong to the anchors first, in order: `[N, N · (texts of an example - 1)]`.
    ///
    /// Source: Henderson et al., "Efficient natural language response suggestion for smart reply" (2017), with cosines
    /// as in sentence-transformers.
    fn scores(&self, x: &Tensor, rows: usize) -> polygrad::Result<Tensor> {
        let dims = x.dims();
        let (count, each) = (dims[0], dims[1]);
        let all = count * each;
        // All anchors come first.
        let texts = x.transpose(0, 1)?.reshape([all, dims[2], dims[3]])?;
        let parts = (0..all).step_by(rows.max(1));
        let vectors = parts.map(|from| self.vectors(&texts.narrow(0, from, rows.min(all - from))?));
        let vectors = vectors.collect::<polygrad::Result<Vec<_>>>()?;
        let vectors = match &vectors[..] {
            [only] => only.clone(),
            parts => Tensor::cat(parts, 0)?,
        };
        let vectors = Pooling::normalized(&vectors)?;
        let others = vectors.narrow(0, count, all - count)?;
        vectors.narrow(0, 0, count)?.matmul(&others.t()?)? * SCALE
    }

    /// Converts texts `[N, 3, S]` to vectors `[N, width]`.
    fn vectors(&self, texts: &Tensor) -> polygrad::Result<Tensor> {
        let [ids, mask, types] = columns(texts)?;
        let input = input(&[&ids, &mask, &types], self.bert.config().type_vocab_size);
        self.pooling.pool(&self.bert.forward(input)?, &mask)
    }
}

/// The tokens, the mask and the types of texts `[N, 3, S]`, each `[N, S]`.
fn columns(texts: &Tensor) -> polygrad::Result<[Tensor; 3]> {
    Ok([texts.select(1, 0)?, texts.select(1, 1)?, texts.select(1, 2)?])
}

fn input<'a>([ids, mask, types]: &[&'a Tensor; 3], kinds: usize) -> BertInput<'a> {
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
