//! Language models that write: of runs, of folders as the Hub has them, and of GGUF files.

use std::path::Path;

use polygrad::formats::{Metadata, TensorFile, Value};
use polygrad::nn::models::{GgufTensor, GgufValue, Llama, llama_from_gguf_packed};
use polygrad::nn::{Module, lora, skip_init};
use polygrad::text::{ChatTemplate, TextFormat, Tokenizer};
use polygrad::{Device, Error};

use super::Settings;
use super::base::Base;
use super::goal::Goal;
use super::model::{Lm, Tuned};
use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::run;
use crate::trained::{self, Trained};

/// A model that writes, in evaluation mode, and how texts become its tokens.
pub(crate) struct Language {
    pub(crate) model: Lm,
    pub(crate) format: TextFormat,
}

impl Language {
    /// The model that lies under a path, on the device that `backend` names: by default that of a run's training, else
    /// the CPU.
    ///
    /// # Errors
    /// No model of a kind that writes, files that are damaged or do not fit together; those of the device.
    pub(crate) fn open(path: &Path, backend: Option<&str>, threads: Option<usize>) -> Result<Self> {
        let device = || backend::open(backend.unwrap_or("cpu"), threads);
        let language = if path.is_file() {
            of_gguf(path, &device()?)?
        } else if run::is_of_others(path) {
            let base = Base::open(path, &Goal::Text)?;
            let model = writer(base.model(&device()?, &Goal::Text)?, path, &Goal::Text)?;
            let format = TextFormat::from_folder(path)?;
            Self { model, format }
        } else {
            of_run(path, backend, threads)?
        };
        language.model.eval();
        Ok(language)
    }
}

/// The base of a run with what was learnt in its weights.
fn of_run(path: &Path, backend: Option<&str>, threads: Option<usize>) -> Result<Language> {
    let Trained { config, model, .. } = trained::load::<Settings>(path, backend, threads)?;
    let mut format = config.format()?;
    // What completions were learnt to end with.
    let end = Settings::base(&config)?.end.filter(|end| !format.ends.contains(end));
    format.ends.extend(end);
    let model = model.into_inner();
    lora::merge_and_unload(&model)?;
    let model = writer(model, path, &config.goal)?;
    Ok(Language { model, format })
}

/// A model that writes.
fn writer(model: Tuned, path: &Path, goal: &Goal) -> Result<Lm> {
    match model {
        Tuned::Lm(model) => Ok(model),
        Tuned::Classifier(_) | Tuned::Encoder(_) => Err(Failure::new(format!(
            "{} is for --task {}, and does not write",
            path.shown(),
            goal.name()
        ))
        .fix("`polygrad eval RUN` judges it; `polygrad merge RUN --out FOLDER` writes what `polygrad serve FOLDER` takes")),
    }
}

/// A Llama whose quantized weights stay packed.
fn of_gguf(path: &Path, device: &Device) -> Result<Language> {
    let wrong = |error: Error| {
        Failure::new(format!("{}: {error}", path.shown()))
            .fix("give a GGUF file of a Llama or Qwen2 with its tokenizer")
    };
    let file = TensorFile::open(path)?;
    let tensor = |name: &str| match file.read_packed(name)? {
        Some(blocks) => Ok((name.to_owned(), GgufTensor::Packed(blocks))),
        None => Ok((name.to_owned(), GgufTensor::Plain(file.read(name)?))),
    };
    let tensors = file.keys().map(tensor).collect::<polygrad::Result<Vec<_>>>()?;
    let metadata = file.metadata();
    let (config, state, schemes) = llama_from_gguf_packed(tensors, |name| value(metadata, name)).map_err(wrong)?;
    let mut model = skip_init(|| Llama::new(&config, device))?;
    model.pack(&state, &schemes).map_err(wrong)?;
    model.load_state_dict(&state, true).map_err(wrong)?;
    let format = format_of(metadata).map_err(wrong)?;
    let model = Lm::Llama(Box::new(model));
    Ok(Language { model, format })
}

fn value(metadata: &Metadata, name: &str) -> Option<GgufValue> {
    let value = metadata.get(name)?;
    let number = value
        .as_i64()
        .map(GgufValue::Int)
        .or_else(|| value.as_f64().map(GgufValue::Float));
    number.or_else(|| Some(GgufValue::Text(value.as_str()?.to_owned())))
}

/// The tokenizer and the template that the metadata describe.
fn format_of(metadata: &Metadata) -> polygrad::Result<TextFormat> {
    let own = |name: &str| metadata.get(&format!("tokenizer.{name}"));
    let list = |name: &str| own(name).and_then(Value::as_list);
    let texts = |name: &str| -> polygrad::Result<Vec<String>> {
        let list = list(name).ok_or_else(|| Error::invalid(format!("the file has no tokenizer.{name}")))?;
        let texts = list
            .iter()
            .map(|text| text.as_str().map(str::to_owned))
            .collect::<Option<_>>();
        texts.ok_or_else(|| Error::invalid(format!("tokenizer.{name} has what is no text")))
    };
    let kind = own("ggml.model").and_then(Value::as_str).unwrap_or_default();
    if kind != "gpt2" {
        return Err(Error::unsupported(format!("the tokenizer is of the kind {kind:?}")).with_hint("there is gpt2"));
    }
    let tokens = texts("ggml.tokens")?;
    let types = list("ggml.token_type").unwrap_or_default().iter().map(Value::as_i64);
    let types: Vec<i64> = types
        .collect::<Option<_>>()
        .ok_or_else(|| Error::invalid("tokenizer.ggml.token_type has what is no whole number"))?;
    let pre = own("ggml.pre").and_then(Value::as_str).unwrap_or("default");
    let tokenizer = Tokenizer::from_gguf(pre, &tokens, &texts("ggml.merges")?, &types)?;
    let id = |name: &str| own(&format!("ggml.{name}_token_id")).and_then(Value::as_i64);
    let names = [
        ("bos_token", "bos"),
        ("eos_token", "eos"),
        ("pad_token", "padding"),
        ("unk_token", "unknown"),
    ];
    let named = names
        .into_iter()
        .filter_map(|(name, key)| Some((name, tokens.get(usize::try_from(id(key)?).ok()?)?)));
    let template = own("chat_template")
        .and_then(Value::as_str)
        .map(ChatTemplate::new)
        .transpose()?;
    let template = template.map(|own| named.fold(own, |own, (name, token)| own.token(name, token)));
    let ends: Vec<i64> = ["eos", "eot"].into_iter().filter_map(id).collect();
    Ok(TextFormat {
        tokenizer,
        template,
        first: id("bos").or(ends.first().copied()),
        ends,
    })
}
