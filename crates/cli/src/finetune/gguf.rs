//! A Llama in a GGUF file, with its tokenizer and its template.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polygrad::formats::{Format, Metadata, TensorFile, Value};
use polygrad::nn::models::{GgufTensor, GgufValue, LlamaConfig, llama_config_from_gguf, llama_from_gguf_packed};
use polygrad::text::{ChatTemplate, LanguageModel, TextFormat, Tokenizer};
use polygrad::{Device, Error};

use crate::failure::{Failure, Result, Shown};

/// What llama.cpp has computed out of a scaling of rotary positions.
const FACTORS: &str = "rope_freqs.weight";

/// Names of special tokens in templates, and in the metadata.
const SPECIAL: [(&str, &str); 4] = [
    ("bos_token", "bos"),
    ("eos_token", "eos"),
    ("pad_token", "padding"),
    ("unk_token", "unknown"),
];

/// A file, of which names, shapes and metadata are read.
pub(super) struct Gguf {
    path: PathBuf,
    file: TensorFile,
    pub(super) config: LlamaConfig,
}

impl Gguf {
    /// # Errors
    /// A file that cannot be read, is damaged or is none of GGUF's; a model of another kind, or with a tensor of a type
    /// that is not there.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = TensorFile::open(path)?;
        if file.format() != Format::Gguf {
            let what = format!("{} is a file of {}, not of GGUF", path.shown(), file.format());
            return Err(Failure::new(what).fix("give a GGUF file, or the folder of a model as the Hub has it"));
        }
        let read = || -> polygrad::Result<LlamaConfig> {
            let mut rows = BTreeMap::new();
            for name in file.keys() {
                rows.insert(name, file.info(name)?.shape.first().copied().unwrap_or(0));
            }
            let factors = rows.contains_key(FACTORS).then(|| file.read(FACTORS)).transpose()?;
            let factors = factors.map(|factors| factors.try_to_f64_vec()).transpose()?;
            llama_config_from_gguf(&rows, factors.as_deref(), |name| value(file.metadata(), name))
        };
        let config = read().map_err(|e| wrong(path, &e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            config,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether any weights are quantized, and so cannot be trained themselves.
    ///
    /// # Errors
    /// None: [`Gguf::open`] has looked at all tensors.
    pub(super) fn is_quantized(&self) -> Result<bool> {
        for name in self.file.keys() {
            // The names of floats are in small letters.
            if self.stored(name)?.starts_with('Q') {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The number of weights that stay packed, and so are no parameters.
    pub(super) fn num_packed(&self) -> polygrad::Result<usize> {
        let mut sum = 0;
        for name in self.file.keys() {
            if self.file.is_packed(name)? {
                sum += self.file.info(name)?.shape.numel();
            }
        }
        Ok(sum)
    }

    /// What the values of a tensor are in the file.
    ///
    /// # Errors
    /// There is none of this name.
    pub(super) fn stored(&self, name: &str) -> polygrad::Result<String> {
        Ok(self.file.info(name)?.stored)
    }

    /// The model; if `packed`, with quantized weights that stay so.
    ///
    /// # Errors
    /// Tensors that cannot be read or do not fit together; those of the device.
    pub(super) fn model(&self, device: &Device, packed: bool) -> Result<LanguageModel> {
        let wrong = |error: Error| wrong(&self.path, &error);
        let tensor = |name: &str| match self.file.read_packed(name)?.filter(|_| packed) {
            Some(blocks) => Ok((name.to_owned(), GgufTensor::Packed(blocks))),
            None => Ok((name.to_owned(), GgufTensor::Plain(self.file.read(name)?))),
        };
        let tensors = self.file.keys().map(tensor).collect::<polygrad::Result<Vec<_>>>()?;
        let read = llama_from_gguf_packed(tensors, |name| value(self.file.metadata(), name));
        let (config, state, schemes) = read.map_err(wrong)?;
        LanguageModel::packed(&config, &state, &schemes, device).map_err(wrong)
    }

    /// The token that is learnt behind the end of a text.
    pub(super) fn end(&self) -> Option<i64> {
        id(self.file.metadata(), "eos")
    }

    /// Special tokens by their names in templates.
    pub(super) fn special(&self) -> Vec<(&'static str, i64, String)> {
        let metadata = self.file.metadata();
        let tokens = own(metadata, "ggml.tokens")
            .and_then(Value::as_list)
            .unwrap_or_default();
        let found = SPECIAL.into_iter().filter_map(|(name, key)| {
            let id = id(metadata, key)?;
            Some((name, id, tokens.get(usize::try_from(id).ok()?)?.as_str()?.to_owned()))
        });
        found.collect()
    }

    /// The text of the template for chats.
    pub(super) fn template(&self) -> Option<&str> {
        own(self.file.metadata(), "chat_template").and_then(Value::as_str)
    }

    /// The tokenizer and the template that the metadata describe.
    ///
    /// # Errors
    /// A file without a tokenizer, or with one of a kind that is not there; a template that is none.
    pub(super) fn format(&self) -> Result<TextFormat> {
        self.read_format().map_err(|e| wrong(&self.path, &e))
    }

    fn read_format(&self) -> polygrad::Result<TextFormat> {
        let metadata = self.file.metadata();
        let list = |name: &str| own(metadata, name).and_then(Value::as_list);
        let texts = |name: &str| -> polygrad::Result<Vec<String>> {
            let list = list(name).ok_or_else(|| Error::invalid(format!("the file has no tokenizer.{name}")))?;
            let texts = list.iter().map(|text| text.as_str().map(str::to_owned));
            let texts = texts.collect::<Option<_>>();
            texts.ok_or_else(|| Error::invalid(format!("tokenizer.{name} has what is no text")))
        };
        match own(metadata, "ggml.model").and_then(Value::as_str) {
            Some("gpt2") => {}
            None => {
                return Err(Error::invalid(
                    "the file has no tokenizer: it lacks tokenizer.ggml.model",
                ));
            }
            Some(kind) => {
                let text = format!("the tokenizer is of the kind {kind:?}");
                return Err(Error::unsupported(text).with_hint("there is gpt2"));
            }
        }
        let types = list("ggml.token_type").unwrap_or_default().iter().map(Value::as_i64);
        let types: Vec<i64> = types
            .collect::<Option<_>>()
            .ok_or_else(|| Error::invalid("tokenizer.ggml.token_type has what is no whole number"))?;
        let pre = own(metadata, "ggml.pre").and_then(Value::as_str).unwrap_or("default");
        let tokenizer = Tokenizer::from_gguf(pre, &texts("ggml.tokens")?, &texts("ggml.merges")?, &types)?;
        let template = self.template().map(ChatTemplate::new).transpose()?;
        let named = self.special().into_iter();
        let template = template.map(|own| named.fold(own, |own, (name, _, token)| own.token(name, token)));
        let ends: Vec<i64> = ["eos", "eot"]
            .into_iter()
            .filter_map(|name| id(metadata, name))
            .collect();
        Ok(TextFormat {
            tokenizer,
            template,
            first: id(metadata, "bos").or(ends.first().copied()),
            ends,
        })
    }
}

fn wrong(path: &Path, error: &Error) -> Failure {
    Failure::new(format!("{}: {error}", path.shown())).fix("give a GGUF file of a Llama or Qwen2 with its tokenizer")
}

fn value(metadata: &Metadata, name: &str) -> Option<GgufValue> {
    let value = metadata.get(name)?;
    let number = value
        .as_i64()
        .map(GgufValue::Int)
        .or_else(|| value.as_f64().map(GgufValue::Float));
    number.or_else(|| Some(GgufValue::Text(value.as_str()?.to_owned())))
}

fn own<'a>(metadata: &'a Metadata, name: &str) -> Option<&'a Value> {
    metadata.get(&format!("tokenizer.{name}"))
}

/// The number of a special token.
fn id(metadata: &Metadata, name: &str) -> Option<i64> {
    own(metadata, &format!("ggml.{name}_token_id")).and_then(Value::as_i64)
}
