//! Language models that continue texts.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use polygrad_core::{AnyBackend, DType, Error, ErrorKind, Result, Shape};
use polygrad_nn::models::{CausalLm, ContinuousBatch, GenerateConfig, NextToken};
use polygrad_onnx::graph::{Dim, ElementType};
use polygrad_onnx::{Engine, Options};
use polygrad_tensor::{Device, Tensor, manual_seed, no_grad};
use polygrad_text::{TextFormat, TextStream, Tokenizer};

use super::record::Folder;
use super::text::utf8;
use crate::value::Strings;
use crate::{Finish, Language, Model, Piece, Prompt, Signature, Style, TensorSpec, Value, Writing};

/// The most prompt tokens that are read in one step, so that texts in progress do not stall while a long prompt is
/// read: on two cores these take about as long as one or two tokens of 32 texts.
const PROMPT_TOKENS: usize = 64;

/// The model of a folder whose `model_type` can generate text.
pub(super) fn load(path: &Path, device: &Device, options: Options) -> Result<Option<Arc<dyn Model>>> {
    let folder = Folder::open(path, device)?;
    let kind = folder.kind();
    if !matches!(kind, "gpt2" | "llama" | "mistral" | "qwen2") {
        return Ok(None);
    }
    if options.engine != Engine::Native {
        return Err(
            Error::unsupported(format!("the engine {} cannot write texts", options.engine))
                .with_hint("take the engine native, or --ids, which serves the logits"),
        );
    }
    let format = TextFormat::from_folder(path)?;
    if format.first.is_none() {
        return Err(Error::invalid(
            "neither generation_config.json nor config.json says what token begins or ends a text",
        )
        .with_hint("write its eos_token_id there, or take --ids, which serves the logits"));
    }
    Ok(Some(match kind {
        "gpt2" => writing(folder.gpt2_model()?, format, options.max_run_bytes)?,
        _ => writing(folder.llama_model()?, format, options.max_run_bytes)?,
    }))
}

/// Serves a custom language model in the way [`load`](super::load) serves those of folders. The keys and values of
/// texts that are written together take at most `max_run_bytes`.
///
/// # Errors
/// A model without parameters; errors of the device.
pub fn writing<M: CausalLm<AnyBackend> + Send + Sync + 'static>(
    model: M,
    format: TextFormat,
    max_run_bytes: usize,
) -> Result<Arc<dyn Model>> {
    Ok(Arc::new(WritingService::new(model, format, max_run_bytes)?))
}

/// The text of `tokens` after those of the prompt.
fn continuation(tokenizer: &Tokenizer, prompt: &[i64], tokens: &[i64]) -> Result<String> {
    let whole = tokenizer.decode(tokens, true)?;
    // Some tokenizers drop the space before the first token.
    match whole.strip_prefix(&tokenizer.decode(prompt, true)?) {
        Some(rest) => Ok(rest.to_owned()),
        None => tokenizer.decode(&tokens[prompt.len()..], true),
    }
}

/// A language model that generates text.
struct WritingService<M> {
    model: M,
    format: TextFormat,
    signature: Signature,
    /// The seed of the next draw: every thread has its own generator, and all of them start with the same seed.
    seed: AtomicU64,
    memory: Memory,
    /// Tokens of the model that the tokenizer has not.
    lacking: Vec<i64>,
}

/// The memory of sequences that are written together: their keys and values, and the logits of a step, here and on the
/// device. Temporary memory of a step is not counted.
struct Memory {
    of_token: usize,
    of_logits: usize,
    most: usize,
}

impl Memory {
    fn new<M: CausalLm<AnyBackend>>(model: &M, most: usize) -> Result<Self> {
        let mut cache = model.new_cache();
        let logits = no_grad(|| {
            let parameters = model.parameters();
            let device = parameters.first().map(|param| param.device());
            let device = device.ok_or_else(|| Error::invalid("a model without parameters"))?;
            model.next_logits(&Tensor::from_vec(vec![0i64], [1, 1], &device)?, &mut cache)
        })?;
        Ok(Self {
            of_token: cache.num_bytes(),
            of_logits: logits.numel() * (logits.dtype().size() + size_of::<f64>()),
            most,
        })
    }

    /// The bytes of a sequence with this many tokens.
    fn row(&self, tokens: usize) -> usize {
        self.of_token.saturating_mul(tokens).saturating_add(self.of_logits)
    }

    /// How many sequences with this many tokens fit, at least one.
    ///
    /// # Errors
    /// If not even one fits.
    fn rows(&self, tokens: usize) -> Result<usize> {
        let row = self.row(tokens);
        match self.most / row.max(1) {
            0 => {
                let text = format!(
                    "a text of {tokens} tokens takes {row} bytes, and the limit is {}",
                    self.most
                );
                Err(Error::new(ErrorKind::OutOfMemory, text)
                    .with_hint("raise it if this is meant: --max-memory, or Options::max_run_bytes"))
            }
            rows => Ok(rows),
        }
    }
}

impl<M: CausalLm<AnyBackend>> WritingService<M> {
    fn new(model: M, format: TextFormat, max_bytes: usize) -> Result<Self> {
        let spec = |name: &str, element: ElementType| TensorSpec::new(name, element, [Dim::Named("batch".to_owned())]);
        let mut signature = Signature {
            inputs: vec![
                spec("text", ElementType::String),
                spec("max_tokens", ElementType::I32).with_default(16),
                spec("temperature", ElementType::F32).with_default(0),
            ],
            outputs: vec![spec("text", ElementType::String)],
            states: Vec::new(),
        };
        signature.batch_by_name();
        Ok(Self {
            memory: Memory::new(&model, max_bytes)?,
            lacking: format.tokenizer.lacking(model.vocab_size()),
            model,
            format,
            signature,
            seed: AtomicU64::new(RandomState::new().hash_one(0)),
        })
    }

    fn next_seed(&self) -> u64 {
        self.seed.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds the tokens that end a text, and those that cannot be shown, to the options.
    fn ending(&self, config: GenerateConfig) -> GenerateConfig {
        let ends = self.format.ends.iter();
        let config = config.suppress_tokens(&self.lacking);
        ends.fold(config, |config, &id| config.stop_sequence([id]))
    }

    /// Continues texts whose requests have the same options, as many at a time as memory allows.
    fn write(&self, prompts: &[Vec<i64>], count: usize, temperature: f64) -> Result<Vec<String>> {
        let config = self.ending(GenerateConfig::greedy().temperature(temperature));
        manual_seed(self.next_seed());
        // The model itself rejects texts that are longer than its positions.
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0).saturating_add(count);
        let together = self.memory.rows(longest.min(self.model.num_positions()))?;
        let mut texts = Vec::with_capacity(prompts.len());
        for prompts in prompts.chunks(together) {
            let rows = self.model.generate_batch(prompts, count, &config)?;
            for (prompt, tokens) in prompts.iter().zip(&rows) {
                texts.push(continuation(&self.format.tokenizer, prompt, tokens)?);
            }
        }
        Ok(texts)
    }
}

impl<M: CausalLm<AnyBackend> + Send + Sync + 'static> Model for WritingService<M> {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn language(&self) -> Option<&dyn Language> {
        Some(self)
    }

    fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        let [Value::Strings(texts), counts, temperatures] = inputs else {
            return Err(Error::dtype("the model takes texts, max_tokens and temperature"));
        };
        let counts = counts.tensor()?.host().to_vec::<i32>()?;
        let temperatures = temperatures.tensor()?.host().cast(DType::F32).to_vec::<f32>()?;
        // Rows with the same options are written together.
        let mut alike = BTreeMap::<_, Vec<usize>>::new();
        for (row, (&count, temperature)) in counts.iter().zip(&temperatures).enumerate() {
            alike.entry((count, temperature.to_bits())).or_default().push(row);
        }
        let mut written = vec![Bytes::new(); texts.strings().len()];
        for ((count, temperature), rows) in alike {
            let count = usize::try_from(count)
                .map_err(|_| Error::invalid(format!("max_tokens is {count}, and no number from 0 on")))?;
            let prompts = rows.iter().map(|&row| {
                self.format
                    .prompt(utf8(&texts.strings()[row])?, self.model.num_positions())
            });
            let prompts = prompts.collect::<Result<Vec<_>>>()?;
            let texts = self.write(&prompts, count, f32::from_bits(temperature).into())?;
            for (row, text) in rows.into_iter().zip(texts) {
                written[row] = text.into();
            }
        }
        let shape = Shape::new(&[written.len()])?;
        Ok(vec![Value::Strings(Strings::new(shape, written)?)])
    }
}

impl<M: CausalLm<AnyBackend> + Send + Sync> Language for WritingService<M> {
    fn positions(&self) -> usize {
        // As many as memory allows.
        let row = self.memory.most.saturating_sub(self.memory.of_logits);
        self.model.num_positions().min(row / self.memory.of_token.max(1))
    }

    fn tokens(&self, prompt: &Prompt) -> Result<Vec<i64>> {
        let most = self.positions();
        match prompt {
            Prompt::Text(text) => self.format.prompt(text, most),
            Prompt::Tokens(ids) if ids.is_empty() => self.format.prompt("", most),
            Prompt::Tokens(ids) => Ok(ids.clone()),
            Prompt::Chat(messages) => self.format.chat(messages, most),
        }
    }

    fn begin(&self) -> Result<Box<dyn Writing + '_>> {
        Ok(Box::new(Desk {
            service: self,
            batch: ContinuousBatch::new(&self.model)?,
            texts: BTreeMap::new(),
            bytes: 0,
        }))
    }
}

/// Texts in progress.
struct Desk<'a, M> {
    service: &'a WritingService<M>,
    batch: ContinuousBatch<'a, AnyBackend, M>,
    /// By the numbers of their sequences.
    texts: BTreeMap<usize, Text<'a>>,
    /// The memory that all of them may need by their end.
    bytes: usize,
}

struct Text<'a> {
    stream: TextStream<'a>,
    bytes: usize,
}

impl<M: CausalLm<AnyBackend> + Send + Sync> Desk<'_, M> {
    /// The addition of a token to a text.
    fn piece(&mut self, number: usize, next: &NextToken) -> Result<Piece> {
        let gone = || Error::invalid(format!("text {number} is not being written"));
        let text = self.texts.get_mut(&number).ok_or_else(gone)?;
        let mut piece = Piece {
            text: text.stream.push(next.token)?,
            finish: None,
        };
        let has_stopped = text.stream.has_stopped();
        if has_stopped || next.is_last {
            piece.finish = Some(Finish {
                tokens: text.stream.tokens(),
                is_stop: has_stopped || next.is_end,
            });
            if let Some(text) = self.take(number) {
                piece.text.push_str(&text.stream.finish()?);
            }
        }
        Ok(piece)
    }

    fn take(&mut self, number: usize) -> Option<Text<'_>> {
        self.batch.leave(number);
        let text = self.texts.remove(&number)?;
        self.bytes -= text.bytes;
        Some(text)
    }
}

impl<M: CausalLm<AnyBackend> + Send + Sync> Writing for Desk<'_, M> {
    fn has_room(&self, tokens: usize) -> bool {
        let memory = &self.service.memory;
        self.bytes.saturating_add(memory.row(tokens)) <= memory.most
    }

    fn join(&mut self, prompt: &[i64], count: usize, style: &Style) -> Result<usize> {
        let config = GenerateConfig::greedy()
            .temperature(style.temperature)
            .top_p(style.top_p)
            .min_p(style.min_p)
            .repetition_penalty(style.repetition_penalty);
        let config = style.top_k.into_iter().fold(config, GenerateConfig::top_k);
        let stream = TextStream::new(&self.service.format.tokenizer, prompt, &style.stop)?;
        let seed = style.seed.unwrap_or_else(|| self.service.next_seed());
        let number = self.batch.join(prompt, count, &self.service.ending(config), seed)?;
        let bytes = self.service.memory.row(prompt.len().saturating_add(count));
        self.bytes = self.bytes.saturating_add(bytes);
        self.texts.insert(number, Text { stream, bytes });
        Ok(number)
    }

    fn leave(&mut self, text: usize) {
        self.take(text);
    }

    fn step(&mut self) -> Result<Vec<(usize, Result<Piece>)>> {
        let chosen = self.batch.step(PROMPT_TOKENS)?;
        let mut pieces = Vec::with_capacity(chosen.len());
        for (number, next) in chosen {
            let piece = next.and_then(|next| self.piece(number, &next));
            if piece.is_err() {
                self.take(number);
            }
            pieces.push((number, piece));
        }
        Ok(pieces)
    }
}
