//! Language models that take texts and go on writing them.

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

/// How many tokens of prompts are read in one step at most, so that texts that are being written do not stand still
/// behind a long prompt: on two cores these take about as long as a token of 32 texts does, or two.
const PROMPT_TOKENS: usize = 64;

/// The model of a folder whose `model_type` can write.
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

/// A language model of one's own as [`load`](super::load) serves those of folders; texts that are written together take
/// at most `max_run_bytes` for their keys and values.
///
/// # Errors
/// A model without parameters; those of the device.
pub fn writing<M: CausalLm<AnyBackend> + Send + Sync + 'static>(
    model: M,
    format: TextFormat,
    max_run_bytes: usize,
) -> Result<Arc<dyn Model>> {
    Ok(Arc::new(WritingService::new(model, format, max_run_bytes)?))
}

/// What `tokens` say after those of the prompt.
fn continuation(tokenizer: &Tokenizer, prompt: &[i64], tokens: &[i64]) -> Result<String> {
    let whole = tokenizer.decode(tokens, true)?;
    // Some tokenizers drop the space before the first of the tokens that they are given.
    match whole.strip_prefix(&tokenizer.decode(prompt, true)?) {
        Some(rest) => Ok(rest.to_owned()),
        None => tokenizer.decode(&tokens[prompt.len()..], true),
    }
}

/// A language model that writes.
struct WritingService<M> {
    model: M,
    format: TextFormat,
    signature: Signature,
    /// The seed of the next draw: every thread has its own generator, and all of them start with the same seed.
    seed: AtomicU64,
    memory: Memory,
}

/// What sequences that are written together take of memory: their keys and values, and the logits of a step, here and
/// on the device. What a step computes in between is not counted.
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

    /// The bytes of a sequence of so many tokens.
    fn row(&self, tokens: usize) -> usize {
        self.of_token.saturating_mul(tokens).saturating_add(self.of_logits)
    }

    /// How many sequences of so many tokens fit, which is at least one.
    ///
    /// # Errors
    /// When not even one does.
    fn rows(&self, tokens: usize) -> Result<usize> {
        let row = self.row(tokens);
        match self.most / row.max(1) {
            0 => {
                let text = format!(
                    "a text of {tokens} tokens takes {row} bytes, and the limit is {}",
                    self.most
                );
                Err(Error::new(ErrorKind::OutOfMemory, text).with_hint("raise Options::max_run_bytes if this is meant"))
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
            model,
            format,
            signature,
            seed: AtomicU64::new(RandomState::new().hash_one(0)),
        })
    }

    fn next_seed(&self) -> u64 {
        self.seed.fetch_add(1, Ordering::Relaxed)
    }

    /// The options with the tokens that end a text.
    fn ending(&self, config: GenerateConfig) -> GenerateConfig {
        let ends = self.format.ends.iter();
        ends.fold(config, |config, &id| config.stop_sequence([id]))
    }

    /// Continues texts whose requests have the same options, as many at a time as there is memory for.
    fn write(&self, prompts: &[Vec<i64>], count: usize, temperature: f64) -> Result<Vec<String>> {
        let config = self.ending(GenerateConfig::greedy().temperature(temperature));
        manual_seed(self.next_seed());
        // What the model has no positions for is refused by it, in its own words.
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
        // Rows for which the same was asked are written together.
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
        // As many as there is memory for.
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

/// Texts that are being written.
struct Desk<'a, M> {
    service: &'a WritingService<M>,
    batch: ContinuousBatch<'a, AnyBackend, M>,
    /// By the numbers of their sequences.
    texts: BTreeMap<usize, Text<'a>>,
    /// What all of them may take of memory in the end.
    bytes: usize,
}

struct Text<'a> {
    stream: TextStream<'a>,
    bytes: usize,
}

impl<M: CausalLm<AnyBackend> + Send + Sync> Desk<'_, M> {
    /// What a token adds to a text.
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
