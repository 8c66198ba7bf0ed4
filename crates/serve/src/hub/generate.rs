//! Language models that take texts and go on writing them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use polygrad_core::{AnyBackend, DType, Error, ErrorKind, Result, Shape};
use polygrad_nn::models::{CausalLm, GenerateConfig};
use polygrad_onnx::graph::{Dim, ElementType};
use polygrad_onnx::{Engine, Options};
use polygrad_tensor::{Device, Tensor, manual_seed, no_grad};
use polygrad_text::Tokenizer;
use serde_json::Value as Json;

use super::record::{Folder, read_json};
use super::text::utf8;
use crate::value::Strings;
use crate::{Model, Signature, TensorSpec, Value};

/// The model of a folder whose `model_type` can write.
pub(super) fn load(path: &Path, device: &Device, options: Options) -> Result<Option<Arc<dyn Model>>> {
    let folder = Folder::open(path, device)?;
    let kind = folder.kind();
    if !matches!(kind, "gpt2" | "llama") {
        return Ok(None);
    }
    if options.engine != Engine::Native {
        return Err(
            Error::unsupported(format!("the engine {} cannot write texts", options.engine))
                .with_hint("take the engine native, or --ids, which serves the logits"),
        );
    }
    let tokens = Tokens::of(&folder)?;
    Ok(Some(match kind {
        "gpt2" => Arc::new(WritingService::new(
            folder.gpt2_model()?,
            tokens,
            options.max_run_bytes,
        )?),
        _ => Arc::new(WritingService::new(
            folder.llama_model()?,
            tokens,
            options.max_run_bytes,
        )?),
    }))
}

/// Between texts and tokens.
struct Tokens {
    tokenizer: Tokenizer,
    /// What an empty text begins with.
    first: i64,
    /// What ends a text.
    last: Vec<i64>,
}

impl Tokens {
    fn of(folder: &Folder<'_>) -> Result<Self> {
        let path = folder.path.join("generation_config.json");
        let own = path.is_file().then(|| read_json(&path)).transpose()?;
        let found = |name: &str| -> Vec<i64> {
            let in_own = own.as_ref().and_then(|config| config.get(name));
            match in_own.or_else(|| folder.config.get(name)) {
                Some(Json::Array(ids)) => ids.iter().filter_map(Json::as_i64).collect(),
                Some(id) => id.as_i64().into_iter().collect(),
                None => Vec::new(),
            }
        };
        let last = found("eos_token_id");
        let first = found("bos_token_id").first().or(last.first()).copied();
        Ok(Self {
            tokenizer: Tokenizer::from_file(folder.path.join("tokenizer.json"))?,
            first: first.ok_or_else(|| {
                Error::invalid("neither generation_config.json nor config.json says what token begins or ends a text")
                    .with_hint("write its eos_token_id there, or take --ids, which serves the logits")
            })?,
            last,
        })
    }

    fn prompt(&self, text: &[u8], most: usize) -> Result<Vec<i64>> {
        let ids = self.tokenizer.encode_within(utf8(text)?, true, most)?;
        Ok(if ids.is_empty() { vec![self.first] } else { ids })
    }

    /// What `tokens` say after those of the prompt.
    fn continuation(&self, prompt: &[i64], tokens: &[i64]) -> Result<String> {
        let whole = self.tokenizer.decode(tokens, true)?;
        // Some tokenizers drop the space before the first of the tokens that they are given.
        match whole.strip_prefix(&self.tokenizer.decode(prompt, true)?) {
            Some(rest) => Ok(rest.to_owned()),
            None => self.tokenizer.decode(&tokens[prompt.len()..], true),
        }
    }
}

/// A language model that writes.
struct WritingService<M> {
    model: M,
    tokens: Tokens,
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
    fn new<M: CausalLm<AnyBackend>>(model: &M, token: i64, most: usize) -> Result<Self> {
        let mut cache = model.new_cache();
        let logits = no_grad(|| {
            let parameters = model.parameters();
            let device = parameters.first().map(|param| param.device());
            let device = device.ok_or_else(|| Error::invalid("a model without parameters"))?;
            model.next_logits(&Tensor::from_vec(vec![token], [1, 1], &device)?, &mut cache)
        })?;
        Ok(Self {
            of_token: cache.num_bytes(),
            of_logits: logits.numel() * (logits.dtype().size() + size_of::<f64>()),
            most,
        })
    }

    /// How many sequences of so many tokens fit, which is at least one.
    ///
    /// # Errors
    /// When not even one does.
    fn rows(&self, tokens: usize) -> Result<usize> {
        let row = self.of_token.saturating_mul(tokens).saturating_add(self.of_logits);
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
    fn new(model: M, tokens: Tokens, max_bytes: usize) -> Result<Self> {
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
            memory: Memory::new(&model, tokens.first, max_bytes)?,
            model,
            tokens,
            signature,
            seed: AtomicU64::new(RandomState::new().hash_one(0)),
        })
    }

    /// Continues texts whose requests have the same options, as many at a time as there is memory for.
    fn write(&self, prompts: &[Vec<i64>], count: usize, temperature: f64) -> Result<Vec<String>> {
        let ends = self.tokens.last.iter();
        let config = ends.fold(GenerateConfig::greedy().temperature(temperature), |config, &id| {
            config.stop_sequence([id])
        });
        manual_seed(self.seed.fetch_add(1, Ordering::Relaxed));
        // What the model has no positions for is refused by it, in its own words.
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0).saturating_add(count);
        let together = self.memory.rows(longest.min(self.model.num_positions()))?;
        let mut texts = Vec::with_capacity(prompts.len());
        for prompts in prompts.chunks(together) {
            let rows = self.model.generate_batch(prompts, count, &config)?;
            for (prompt, tokens) in prompts.iter().zip(&rows) {
                texts.push(self.tokens.continuation(prompt, tokens)?);
            }
        }
        Ok(texts)
    }
}

impl<M: CausalLm<AnyBackend> + Send + Sync + 'static> Model for WritingService<M> {
    fn signature(&self) -> &Signature {
        &self.signature
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
            let prompts = rows
                .iter()
                .map(|&row| self.tokens.prompt(&texts.strings()[row], self.model.num_positions()));
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
