//! The trained models: a language model, a text classifier, or a text encoder.

use polygrad::nn::loss::{CrossEntropyLoss, Reduction, cross_entropy};
use polygrad::nn::models::{Bert, BertClassifier, BertInput, CausalLm, CausalLmCache, Gpt2, Llama};
use polygrad::nn::{Module, Visit, Visitor};
use polygrad::text::Pooling;
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
    Lm(Lm),
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
                let losses = model.losses(x, y)?;
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

/// A language model of a kind that can be finetuned.
#[derive(Debug, Module)]
pub(crate) enum Lm {
    Llama(Box<Llama>),
    Gpt2(Box<Gpt2>),
}

impl Lm {
    /// The cross entropy of each of the tokens `targets [N, S]` that follow `x [N, S]`. For packed examples,
    /// `x [N, 2, S]` also has the position at which each token's example begins.
    fn losses(&self, x: &Tensor, targets: &Tensor) -> polygrad::Result<Tensor> {
        let (ids, starts) = match x.rank() {
            3 => (x.select(1, 0)?, Some(x.select(1, 1)?)),
            _ => (x.clone(), None),
        };
        let (x, head) = match (self, &starts) {
            (Self::Llama(own), None) => (own.model.forward(&ids)?, &own.lm_head),
            (Self::Llama(own), Some(starts)) => (own.model.forward_packed(&ids, starts)?, &own.lm_head),
            (Self::Gpt2(own), None) => (own.transformer.forward(&ids)?, &own.lm_head),
            (Self::Gpt2(own), Some(starts)) => (own.transformer.forward_packed(&ids, starts)?, &own.lm_head),
        };
        let head = head.clone();
        let rows = MOST_LOGITS / self.vocab_size().max(1);
        let loss = CrossEntropyLoss::new().reduction(Reduction::None);
        loss.forward_chunked(&x, targets, rows, move |x| head.forward(x))
    }
}

/// Calls a method of either kind of model.
macro_rules! either {
    ($lm:expr, $method:ident($($argument:expr),*)) => {
        match $lm {
            Self::Llama(model) => CausalLm::$method(&**model $(, $argument)*),
            Self::Gpt2(model) => CausalLm::$method(&**model $(, $argument)*),
        }
    };
}

impl CausalLm<AnyBackend> for Lm {
    fn name(&self) -> &'static str {
        either!(self, name())
    }

    fn vocab_size(&self) -> usize {
        either!(self, vocab_size())
    }

    fn num_positions(&self) -> usize {
        either!(self, num_positions())
    }

    fn new_cache(&self) -> CausalLmCache<AnyBackend> {
        either!(self, new_cache())
    }

    fn forward_cached(&self, ids: &Tensor, cache: &mut CausalLmCache<AnyBackend>) -> polygrad::Result<Tensor> {
        either!(self, forward_cached(ids, cache))
    }

    fn next_logits(&self, ids: &Tensor, cache: &mut CausalLmCache<AnyBackend>) -> polygrad::Result<Tensor> {
        either!(self, next_logits(ids, cache))
    }

    fn next_logits_each(
        &self,
        ids: &Tensor,
        lengths: &[usize],
        caches: &mut [&mut CausalLmCache<AnyBackend>],
    ) -> polygrad::Result<Tensor> {
        either!(self, next_logits_each(ids, lengths, caches))
    }
}

#[cfg(test)]
mod tests {
    use polygrad::nn::models::{CausalLm, Gpt2, Gpt2Config, Llama, LlamaConfig};
    use polygrad::{Device, Tensor};

    use super::Lm;

    #[test]
    fn sequences_of_a_batch_are_computed_at_once() {
        let device = Device::new("cpu").unwrap();
        let (vocab_size, n_layer, n_head) = (11, 1, 2);
        let gpt2 = Gpt2Config {
            vocab_size,
            n_positions: 8,
            n_embd: 8,
            n_layer,
            n_head,
            ..Gpt2Config::default()
        };
        let llama = LlamaConfig {
            vocab_size,
            hidden_size: 8,
            intermediate_size: 8,
            num_hidden_layers: n_layer,
            num_attention_heads: n_head,
            ..LlamaConfig::default()
        };
        let ids = Tensor::new([[1i64, 2, 3]], &device).unwrap();
        for lm in [
            Lm::Gpt2(Box::new(Gpt2::new(&gpt2, &device).unwrap())),
            Lm::Llama(Box::new(Llama::new(&llama, &device).unwrap())),
        ] {
            let padded = || lm.new_cache().with_left_padding(&[1], &device).unwrap();
            // Padding is rejected if sequences share products, and works if they are computed in turn.
            let at_once = lm.next_logits_each(&ids, &[1, 2], &mut [&mut padded(), &mut padded()]);
            let error = at_once.unwrap_err().to_string();
            assert!(error.contains("a cache with padding"), "{error}");
            lm.next_logits_in_turn(&ids, &[1, 2], &mut [&mut padded(), &mut padded()])
                .unwrap();
        }
    }
}
