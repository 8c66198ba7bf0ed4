//! Llama from GGUF files: names, metadata, and the order of rows.
//!
//! Source: the names of llama.cpp's `gguf-py/gguf/constants.py` and the GGUF specification.

use std::collections::BTreeMap;

use polygrad_tensor::{BlockScheme, Error, ErrorKind, HostTensor, Result, Shape};

use super::{LlamaConfig, RopeScaling};
use crate::layers::{packed_in, put_packed};
use crate::{HostBlocks, StateDict};

const NAME: &str = "llama_from_gguf";

/// The tensor in which llama.cpp stores the factors of scaled rotary positions. The model has no such tensor.
const FACTORS: &str = "rope_freqs.weight";

/// A value of a GGUF file's metadata, as far as a [`LlamaConfig`] needs them.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    /// An integer of any width.
    Int(i64),
    /// A float of any width.
    Float(f64),
    /// A string.
    Text(String),
}

/// A tensor of a GGUF file.
#[derive(Clone, Debug)]
pub enum GgufTensor {
    /// Unpacked numbers.
    Plain(HostTensor),
    /// A matrix whose numbers stay packed.
    Packed(HostBlocks),
}

impl GgufTensor {
    fn rows(&self) -> usize {
        let first = match self {
            Self::Plain(tensor) => tensor,
            Self::Packed(blocks) => &blocks.parts()[0],
        };
        first.shape().first().copied().unwrap_or(0)
    }
}

/// The program that orders the rows of queries and keys in this way.
#[derive(Clone, Copy)]
enum Order {
    HuggingFace,
    LlamaCpp,
}

/// The config and the state dict of a [`Llama`](super::Llama), from the tensors of a GGUF file and a function that
/// looks up its metadata. Tensors are floats, with shapes as in PyTorch: `[out, in]`, which GGUF writes in reverse.
///
/// The architectures are `llama` and `qwen2`. In files of the former, llama.cpp has reordered the rows of queries and
/// keys; the state dict has them in their original order.
///
/// # Errors
/// When the architecture is another, metadata or a tensor is missing, or there is a tensor that the model does not
/// have.
pub fn llama_from_gguf(
    tensors: impl IntoIterator<Item = (String, HostTensor)>,
    metadata: impl Fn(&str) -> Option<GgufValue>,
) -> Result<(LlamaConfig, StateDict)> {
    let tensors = tensors
        .into_iter()
        .map(|(name, tensor)| (name, GgufTensor::Plain(tensor)));
    llama_from_gguf_packed(tensors, metadata).map(|(config, state, _)| (config, state))
}

/// [`llama_from_gguf`] of tensors some of which stay packed. It also returns the paths of the layers whose weights are
/// packed, with their schemes, for [`Llama::pack`](super::Llama::pack).
///
/// # Errors
/// As [`llama_from_gguf`].
pub fn llama_from_gguf_packed(
    tensors: impl IntoIterator<Item = (String, GgufTensor)>,
    metadata: impl Fn(&str) -> Option<GgufValue>,
) -> Result<(LlamaConfig, StateDict, BTreeMap<String, BlockScheme>)> {
    let tensors: Vec<(String, GgufTensor)> = tensors.into_iter().collect();
    let factors = match tensors.iter().find(|(name, _)| name == FACTORS) {
        None => None,
        Some((_, GgufTensor::Plain(tensor))) => Some(tensor.try_to_f64_vec()?),
        Some((_, GgufTensor::Packed(_))) => return Err(format_error(format!("{FACTORS} is packed"))),
    };
    let rows = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.rows()));
    let config = llama_config_from_gguf(&rows.collect(), factors.as_deref(), metadata)?;
    let (mut state, mut schemes) = (StateDict::new(), BTreeMap::new());
    for (name, tensor) in &tensors {
        if name == FACTORS {
            continue;
        }
        let (to, heads) = renamed(name, &config)?;
        let in_order = |tensor: &HostTensor| match heads {
            Some(heads) => permuted(name, tensor, heads, Order::HuggingFace),
            None => Ok(tensor.clone()),
        };
        match (tensor, to.strip_suffix(".weight")) {
            (GgufTensor::Plain(tensor), _) => state.insert(&*to, in_order(tensor)?),
            (GgufTensor::Packed(blocks), Some(path)) => {
                put_packed(&mut state, path, &blocks.map_rows(in_order)?);
                schemes.insert(path.to_owned(), blocks.scheme());
            }
            (GgufTensor::Packed(_), None) => return Err(format_error(format!("the bias {name:?} is packed"))),
        }
    }
    if let (true, Some(scheme)) = (config.tie_word_embeddings, schemes.get("model.embed_tokens").copied()) {
        let blocks = packed_in(&state, "model.embed_tokens", scheme)?;
        put_packed(&mut state, "lm_head", &blocks);
        schemes.insert("lm_head".to_owned(), scheme);
    }
    Ok((config, state, schemes))
}

/// The config of [`llama_from_gguf`] alone, from the names of all tensors and how many rows each has, the numbers of
/// `rope_freqs.weight` if there is one, and a look into the metadata.
///
/// # Errors
/// When the architecture is another, metadata are missing or wrong, there is no `token_embd.weight`, or there is a
/// tensor that the model does not have.
pub fn llama_config_from_gguf(
    rows: &BTreeMap<&str, usize>,
    factors: Option<&[f64]>,
    metadata: impl Fn(&str) -> Option<GgufValue>,
) -> Result<LlamaConfig> {
    let arch = match metadata("general.architecture") {
        Some(GgufValue::Text(arch)) if arch == "llama" || arch == "qwen2" => arch,
        other => {
            return Err(Error::unsupported(format!("general.architecture is {other:?}"))
                .with_op(NAME)
                .with_hint("there are llama and qwen2"));
        }
    };
    let mut config = read_config(&arch, &metadata)?;
    for name in rows.keys().filter(|name| **name != FACTORS) {
        renamed(name, &config)?;
    }
    let words = rows.get("token_embd.weight").copied();
    config.vocab_size = words.ok_or_else(|| format_error("the file has no token_embd.weight".to_owned()))?;
    config.tie_word_embeddings = !rows.contains_key("output.weight");
    config.attention_bias = arch == "llama" && rows.contains_key("blk.0.attn_q.bias");
    if let Some(factors) = factors {
        config.rope_scaling = Some(scaling_of(factors, &config)?);
    }
    Ok(config)
}

/// The tensor of a state dict that stands under `name` in a GGUF file of a model with this config, with rows in
/// llama.cpp's order: the way back from [`llama_from_gguf`]. `None` if the state dict does not have it.
///
/// # Errors
/// When the model has no such tensor, or rows that its heads do not divide.
pub fn llama_to_gguf(name: &str, config: &LlamaConfig, state: &StateDict) -> Result<Option<HostTensor>> {
    if name == FACTORS {
        return Ok(None);
    }
    let (own, heads) = renamed(name, config)?;
    let in_order = |tensor: &HostTensor| match heads {
        Some(heads) => permuted(name, tensor, heads, Order::LlamaCpp),
        None => Ok(tensor.clone()),
    };
    state.get(&own).map(in_order).transpose()
}

fn format_error(text: String) -> Error {
    Error::new(ErrorKind::Format, text).with_op(NAME)
}

fn read_config(arch: &str, metadata: &impl Fn(&str) -> Option<GgufValue>) -> Result<LlamaConfig> {
    let count = |key: &str| match metadata(&format!("{arch}.{key}")) {
        None => Ok(None),
        Some(GgufValue::Int(value)) if value >= 0 => Ok(Some(value as usize)),
        Some(other) => Err(format_error(format!(
            "{arch}.{key} is {other:?}, not a number from 0 on"
        ))),
    };
    let real = |key: &str| match metadata(&format!("{arch}.{key}")) {
        None => Ok(None),
        Some(GgufValue::Float(value)) => Ok(Some(value)),
        Some(other) => Err(format_error(format!("{arch}.{key} is {other:?}, not a float"))),
    };
    let needed = |key: &str| count(key)?.ok_or_else(|| format_error(format!("the file does not say {arch}.{key}")));
    let scaling = match metadata(&format!("{arch}.rope.scaling.type")) {
        None => None,
        Some(GgufValue::Text(kind)) if kind == "none" => None,
        Some(GgufValue::Text(kind)) if kind == "linear" => Some(RopeScaling {
            rope_type: Some(kind),
            factor: real("rope.scaling.factor")?,
            ..RopeScaling::default()
        }),
        Some(other) => {
            let text = format!("{arch}.rope.scaling.type is {other:?}, which is not there");
            return Err(Error::unsupported(text)
                .with_op(NAME)
                .with_hint("there are none and linear"));
        }
    };
    let heads = needed("attention.head_count")?;
    let default = LlamaConfig::default();
    let width = needed("embedding_length")?;
    let head_dim = count("attention.key_length")?.or(count("rope.dimension_count")?);
    Ok(LlamaConfig {
        model_type: arch.to_owned(),
        hidden_size: width,
        intermediate_size: needed("feed_forward_length")?,
        num_hidden_layers: needed("block_count")?,
        num_attention_heads: heads,
        num_key_value_heads: Some(count("attention.head_count_kv")?.unwrap_or(heads)),
        head_dim: head_dim.filter(|&dim| dim.checked_mul(heads) != Some(width)),
        max_position_embeddings: needed("context_length")?,
        rms_norm_eps: real("attention.layer_norm_rms_epsilon")?
            .ok_or_else(|| format_error(format!("the file does not say {arch}.attention.layer_norm_rms_epsilon")))?,
        rope_theta: real("rope.freq_base")?.unwrap_or(default.rope_theta),
        rope_scaling: scaling,
        ..default
    })
}

/// Hugging Face's name for a tensor, and how many heads it has if its rows are in another order.
fn renamed(name: &str, config: &LlamaConfig) -> Result<(String, Option<usize>)> {
    let unknown = || format_error(format!("there is no place for the tensor {name:?}"));
    match name {
        "token_embd.weight" => return Ok(("model.embed_tokens.weight".to_owned(), None)),
        "output_norm.weight" => return Ok(("model.norm.weight".to_owned(), None)),
        "output.weight" => return Ok(("lm_head.weight".to_owned(), None)),
        _ => {}
    }
    let (block, rest) = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'))
        .ok_or_else(unknown)?;
    let (part, kind) = rest.split_once('.').ok_or_else(unknown)?;
    let block: usize = block.parse().map_err(|_| unknown())?;
    let (part, heads) = match part {
        "attn_norm" => ("input_layernorm", None),
        "ffn_norm" => ("post_attention_layernorm", None),
        "attn_q" => ("self_attn.q_proj", Some(config.num_attention_heads)),
        "attn_k" => ("self_attn.k_proj", Some(config.key_value_heads())),
        "attn_v" => ("self_attn.v_proj", None),
        "attn_output" => ("self_attn.o_proj", None),
        "ffn_gate" => ("mlp.gate_proj", None),
        "ffn_up" => ("mlp.up_proj", None),
        "ffn_down" => ("mlp.down_proj", None),
        _ => return Err(unknown()),
    };
    if block >= config.num_hidden_layers || !matches!(kind, "weight" | "bias") {
        return Err(unknown());
    }
    let heads = heads.filter(|_| config.model_type == "llama");
    Ok((format!("model.layers.{block}.{part}.{kind}"), heads))
}

/// Rows in another order. llama.cpp turns neighbours, Hugging Face elements that are half a head apart: within a head,
/// row `2i + j` there is row `j · D / 2 + i` here.
fn permuted(name: &str, tensor: &HostTensor, heads: usize, order: Order) -> Result<HostTensor> {
    let shape = *tensor.shape();
    let rows = shape.first().copied().unwrap_or(0);
    if heads == 0 || !rows.is_multiple_of(2 * heads) {
        return Err(format_error(format!(
            "{name} has shape {shape}, which {heads} heads do not divide"
        )));
    }
    if rows == 0 || shape.numel() == 0 {
        return Ok(tensor.clone());
    }
    let (width, bytes) = (rows / heads, tensor.bytes());
    let row = bytes.len() / rows;
    let mut out = Vec::new();
    out.try_reserve_exact(bytes.len())
        .map_err(|e| Error::new(ErrorKind::OutOfMemory, format!("{name}: {e}")).with_op(NAME))?;
    for to in 0..rows {
        let (head, place, half) = (to / width, to % width, width / 2);
        let within = match order {
            Order::HuggingFace => 2 * (place % half) + place / half,
            Order::LlamaCpp => place % 2 * half + place / 2,
        };
        let from = head * width + within;
        out.extend_from_slice(&bytes[from * row..(from + 1) * row]);
    }
    HostTensor::from_bytes(tensor.dtype(), Shape::new(&shape)?, &out)
}

/// Recovers the options of Llama 3's scaling from llama.cpp's result: the divisor of the angle of each pair.
fn scaling_of(factors: &[f64], config: &LlamaConfig) -> Result<RopeScaling> {
    let unknown =
        || Err(Error::unsupported("the factors in rope_freqs.weight are not those of Llama 3's scaling").with_op(NAME));
    if config.rope_scaling.is_some() || factors.len() != config.head_dim() / 2 {
        return unknown();
    }
    let plain = config.frequencies()?;
    let scaling = RopeScaling {
        rope_type: Some("llama3".to_owned()),
        factor: factors.iter().copied().reduce(f64::max),
        // All models of this kind have the same values.
        low_freq_factor: Some(1.0),
        high_freq_factor: Some(4.0),
        original_max_position_embeddings: Some(8192.0),
        ..RopeScaling::default()
    };
    let scaled = LlamaConfig {
        rope_scaling: Some(scaling.clone()),
        ..config.clone()
    };
    let wanted = scaled.frequencies()?;
    let near = |((plain, wanted), factor): ((&f64, &f64), &f64)| (plain / factor - wanted).abs() <= 1e-4 * wanted;
    if plain.iter().zip(&wanted).zip(factors).all(near) {
        return Ok(scaling);
    }
    unknown()
}
