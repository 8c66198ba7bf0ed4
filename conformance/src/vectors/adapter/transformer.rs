//! Attention and transformer layers of `torch.nn`, and positional encodings. Masks are arguments by name; those of a
//! stack's layers begin with `layer.`. The rest is as for other layers. The answer is the output, and the attention
//! weights if `need_weights` requests them.

use polygrad_nn::{
    LayerNormConfig, Masks, MultiheadAttentionConfig, RotaryConfig, RotaryPairs, SinusoidalPositions,
    TransformerActivation, TransformerConfig, TransformerDecoder, TransformerEncoder, TransformerLayerConfig,
};
use polygrad_tensor::{Backend, Tensor};

use super::layer::{flag, number, prepare, size};
use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, NAMED, one, unsupported};

/// The masks of these names.
fn masks<'a, B: Backend>(call: &Call<'a, B>, attn: &str, padding: &str, causal: &str) -> CaseResult<Masks<'a, B>> {
    let mut masks = Masks::default().with_causal(flag(call, causal, false)?);
    if let Some(mask) = call.optional_tensor(NAMED, attn)? {
        masks = masks.with_attn_mask(mask);
    }
    if let Some(mask) = call.optional_tensor(NAMED, padding)? {
        masks = masks.with_key_padding_mask(mask);
    }
    Ok(masks)
}

fn memory_masks<'a, B: Backend>(call: &Call<'a, B>) -> CaseResult<Masks<'a, B>> {
    masks(call, "memory_mask", "memory_key_padding_mask", "memory_is_causal")
}

fn tgt_masks<'a, B: Backend>(call: &Call<'a, B>) -> CaseResult<Masks<'a, B>> {
    masks(call, "tgt_mask", "tgt_key_padding_mask", "tgt_is_causal")
}

fn src_masks<'a, B: Backend>(call: &Call<'a, B>, attn: &str) -> CaseResult<Masks<'a, B>> {
    masks(call, attn, "src_key_padding_mask", "is_causal")
}

fn attention<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let [q, k, v] = [(0, "query"), (1, "key"), (2, "value")].map(|(i, name)| call.tensor(i, name));
    let (q, k, v) = (q?, k?, v?);
    let mut config = MultiheadAttentionConfig::new(size(call, "embed_dim")?, size(call, "num_heads")?)
        .bias(flag(call, "bias", true)?)
        .batch_first(flag(call, "batch_first", false)?)
        .add_bias_kv(flag(call, "add_bias_kv", false)?)
        .add_zero_attn(flag(call, "add_zero_attn", false)?);
    if call.has(NAMED, "kdim") {
        config = config.kdim(size(call, "kdim")?);
    }
    if call.has(NAMED, "vdim") {
        config = config.vdim(size(call, "vdim")?);
    }
    let layer = config.build(&q.device())?;
    prepare(&layer, call)?;
    let masks = masks(call, "attn_mask", "key_padding_mask", "is_causal")?;
    if flag(call, "need_weights", false)? {
        let (output, weights) = layer.forward_with_weights(q, k, v, masks)?;
        return Ok(vec![output, weights]);
    }
    one(layer.forward(q, k, v, masks)?)
}

fn layer_config<B: Backend>(call: &Call<'_, B>, prefix: &str) -> CaseResult<TransformerLayerConfig> {
    let name = |name: &str| format!("{prefix}{name}");
    let activation = match call.text(NAMED, &name("activation"))? {
        None | Some("relu") => TransformerActivation::Relu,
        Some("gelu") => TransformerActivation::Gelu,
        Some(other) => return unsupported(format!("argument activation={other}")),
    };
    let config = TransformerLayerConfig::new(size(call, &name("d_model"))?, size(call, &name("nhead"))?);
    Ok(config
        .dim_feedforward(call.size(NAMED, &name("dim_feedforward"), 2048)?)
        .dropout(number(call, &name("dropout"), 0.1)?)
        .activation(activation)
        .layer_norm_eps(number(call, &name("layer_norm_eps"), 1e-5)?)
        .batch_first(flag(call, &name("batch_first"), false)?)
        .norm_first(flag(call, &name("norm_first"), false)?)
        .bias(flag(call, &name("bias"), true)?))
}

/// The norm at a stack's end, with the stack's width.
fn norm<B: Backend>(call: &Call<'_, B>) -> CaseResult<Option<LayerNormConfig>> {
    let width = size(call, "layer.d_model")?;
    Ok(flag(call, "norm", false)?.then(|| LayerNormConfig::new([width])))
}

fn encoder<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let src = call.tensor(0, "src")?;
    let device = src.device();
    let mut stack = TransformerEncoder::new(layer_config(call, "layer.")?, size(call, "num_layers")?, &device)?;
    if let Some(norm) = norm(call)? {
        stack = stack.with_norm(norm.build(&device)?);
    }
    prepare(&stack, call)?;
    one(stack.forward(src, src_masks(call, "mask")?)?)
}

fn decoder<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let (tgt, memory) = (call.tensor(0, "tgt")?, call.tensor(1, "memory")?);
    let device = tgt.device();
    let mut stack = TransformerDecoder::new(layer_config(call, "layer.")?, size(call, "num_layers")?, &device)?;
    if let Some(norm) = norm(call)? {
        stack = stack.with_norm(norm.build(&device)?);
    }
    prepare(&stack, call)?;
    one(stack.forward(tgt, memory, tgt_masks(call)?, memory_masks(call)?)?)
}

fn whole<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let (src, tgt) = (call.tensor(0, "src")?, call.tensor(1, "tgt")?);
    let model = TransformerConfig::new(layer_config(call, "layer.")?)
        .num_encoder_layers(call.size(NAMED, "num_encoder_layers", 6)?)
        .num_decoder_layers(call.size(NAMED, "num_decoder_layers", 6)?)
        .build(&src.device())?;
    prepare(&model, call)?;
    let masks = [src_masks(call, "src_mask")?, tgt_masks(call)?, memory_masks(call)?];
    one(model.forward(src, tgt, masks)?)
}

fn rotary<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "x")?;
    let offset = call.size(NAMED, "offset", 0)?;
    let pairs = match call.text(NAMED, "pairs")? {
        None | Some("halves") => RotaryPairs::Halves,
        Some("adjacent") => RotaryPairs::Adjacent,
        Some(other) => return unsupported(format!("argument pairs={other}")),
    };
    let (length, width) = places(x)?;
    let config = RotaryConfig::new(width, offset + length).pairs(pairs);
    let layer = config.base(number(call, "base", 1e4)?).build()?;
    one(layer.forward_from(x, offset)?)
}

fn positional_encoding<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "x")?;
    let offset = call.size(NAMED, "offset", 0)?;
    let (length, width) = places(x)?;
    one(SinusoidalPositions::new(offset + length, width)?.forward_from(x, offset)?)
}

/// The length and the width of sequences.
fn places<B: Backend>(x: &Tensor<B>) -> CaseResult<(usize, usize)> {
    match x.dims()[..] {
        [.., length, width] => Ok((length, width)),
        _ => unsupported(format!("argument x: {} is no sequence", x.shape())),
    }
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    match call.op() {
        "nn.MultiheadAttention" => attention(call),
        "nn.TransformerEncoderLayer" => {
            let src = call.tensor(0, "src")?;
            let layer = layer_config(call, "")?.encoder_layer(&src.device())?;
            prepare(&layer, call)?;
            one(layer.forward(src, src_masks(call, "src_mask")?)?)
        }
        "nn.TransformerDecoderLayer" => {
            let (tgt, memory) = (call.tensor(0, "tgt")?, call.tensor(1, "memory")?);
            let layer = layer_config(call, "")?.decoder_layer(&tgt.device())?;
            prepare(&layer, call)?;
            one(layer.forward(tgt, memory, tgt_masks(call)?, memory_masks(call)?)?)
        }
        "nn.TransformerEncoder" => encoder(call),
        "nn.TransformerDecoder" => decoder(call),
        "nn.Transformer" => whole(call),
        "rotary_embedding" => rotary(call),
        "positional_encoding" => positional_encoding(call),
        _ => Err(CaseError::OtherFamily),
    }
}
