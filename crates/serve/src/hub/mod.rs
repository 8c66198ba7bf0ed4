//! Models in folders of the Hub's form: `config.json`, weights, and for texts `tokenizer.json`.

mod generate;
mod record;
mod text;

use std::path::Path;
use std::sync::Arc;

use polygrad_core::{AnyBackend, Error, Result};
use polygrad_nn::models::{Bert, BertClassifier};
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{OnnxModel, Options};
use polygrad_tensor::Device;
use polygrad_text::{Pooling, Tokenizer};

use crate::{Model, OnnxService};
pub use generate::writing;
use record::Recorded;
use text::{TextService, Texts};

/// Reads a model of a folder that has `config.json`, with a `model_type` of `bert`, `gpt2`, `llama` (or `mistral` or
/// `qwen2`, for texts), `t5`, `resnet` or `vit`, and `model.safetensors`, its shards, or `pytorch_model.bin`. The last
/// two types have the fields of [`ResNetConfig`] and [`VitConfig`], and torchvision's names for the weights.
///
/// Models of images take `images` `[batch, channels, height, width]`; language models `input_ids` `[batch, sequence]`,
/// to which T5 adds `attention_mask` and `decoder_input_ids`; all of these give `logits`. BERT takes `input_ids`,
/// `attention_mask` and, unless there is only one type, `token_type_ids`, which default to 0. It gives `logits` with a
/// classifier, `sentence_embedding` `[batch, width]` if the folder says how sentence-transformers pools it, else
/// `last_hidden_state` and `pooler_output`.
///
/// If the folder has `tokenizer.json` and `as_ids` is false, the input is `text` `[batch]` instead, strings. BERT gives
/// the same outputs for it. GPT-2 and Llama give `text`, the continuation: up to `max_tokens` further tokens (default
/// 16), drawn at `temperature` (default 0, which always takes the likeliest token). They stop at a token of
/// `eos_token_id` in `generation_config.json`, or else in `config.json`, and run only with the native engine. Texts of
/// several requests are written together as long as their keys and values fit in [`Options::max_run_bytes`]. These
/// models are also a [`Language`](crate::Language), with the folder's chat template.
///
/// [`ResNetConfig`]: polygrad_nn::models::ResNetConfig
/// [`VitConfig`]: polygrad_nn::models::VitConfig
///
/// # Errors
/// A file that is missing or damaged, or asks for something unsupported.
pub fn load(folder: &Path, device: &Device, options: Options, as_ids: bool) -> Result<Arc<dyn Model>> {
    let inside = |error: Error| error.in_module(folder.display().to_string());
    options.engine.available()?;
    let tokenizer = folder.join("tokenizer.json");
    let takes_texts = !as_ids && tokenizer.is_file();
    if takes_texts && let Some(model) = generate::load(folder, device, options).map_err(inside)? {
        return Ok(model);
    }
    let recorded = record::record(folder, device).map_err(inside)?;
    let tokenizer = takes_texts.then(|| Tokenizer::from_file(tokenizer)).transpose()?;
    served(recorded, tokenizer, device, options).map_err(inside)
}

/// A classifier of one's own as [`load`] serves those of folders, of texts if there is a tokenizer.
///
/// # Errors
/// An engine that is not there; those of the device.
pub fn classifying(
    model: &BertClassifier<AnyBackend>,
    tokenizer: Option<Tokenizer>,
    device: &Device,
    options: Options,
) -> Result<Arc<dyn Model>> {
    options.engine.available()?;
    served(record::classifier(model)?, tokenizer, device, options)
}

/// A model of one's own that makes vectors of texts, as [`load`] serves those of folders; of tokens, if there is no
/// tokenizer.
///
/// # Errors
/// As [`classifying`].
pub fn embedding(
    model: &Bert<AnyBackend>,
    pooling: &Pooling,
    tokenizer: Option<Tokenizer>,
    device: &Device,
    options: Options,
) -> Result<Arc<dyn Model>> {
    options.engine.available()?;
    served(record::encoder(model, Some(pooling))?, tokenizer, device, options)
}

/// A graph of one's own as [`load`] serves those of folders: of tokens, or of texts if there is a tokenizer. Its inputs
/// are `input_ids`, `attention_mask` and perhaps `token_type_ids`, `[batch, sequence]` in i64. `pad` is the padding
/// token, and `most` the most tokens of a text.
///
/// # Errors
/// As [`classifying`].
pub fn of_graph(
    graph: Graph,
    (pad, most): (i64, usize),
    tokenizer: Option<Tokenizer>,
    device: &Device,
    options: Options,
) -> Result<Arc<dyn Model>> {
    options.engine.available()?;
    let texts = Some(Texts { pad, most });
    served(Recorded { graph, texts }, tokenizer, device, options)
}

fn served(
    recorded: Recorded,
    tokenizer: Option<Tokenizer>,
    device: &Device,
    options: Options,
) -> Result<Arc<dyn Model>> {
    let model = OnnxModel::from_graph(&recorded.graph, device, options)?;
    drop(recorded.graph);
    let mut service = OnnxService::new(model)?;
    if service.signature().inputs.iter().any(|spec| spec.name == record::TYPES) {
        service = service.with_default(record::TYPES, 0)?;
    }
    Ok(match (recorded.texts, tokenizer) {
        (Some(texts), Some(tokenizer)) => Arc::new(TextService::new(service, tokenizer, texts)),
        _ => Arc::new(service),
    })
}
