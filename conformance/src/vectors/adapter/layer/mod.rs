//! The layers of `torch.nn`. Their arguments are those of the class, by name; `train` is the mode, and `state.<name>`
//! the state dict before the call. The answer of a layer is its output and then its buffers after the call, in the
//! order of their names.

mod activation;
mod conv;
mod norm;
mod window;

use polygrad_nn::{
    Dropout, EmbeddingBagConfig, EmbeddingBagMode, EmbeddingConfig, Flatten, Forward, LinearConfig, Module,
    PixelShuffle, PixelUnshuffle, StateDict,
};
use polygrad_tensor::{Backend, Device, HostTensor, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, NAMED, one, pair, unsupported};

type Layer<B> = Box<dyn Forward<B>>;

/// One size for each axis.
fn sizes<const D: usize, B: Backend>(call: &Call<'_, B>, name: &str) -> CaseResult<Option<[usize; D]>> {
    let all = call.window(NAMED, name)?;
    Ok(all.map(|all| std::array::from_fn(|axis| all[axis])))
}

/// A required argument of the class.
fn needed<T>(name: &str, value: Option<T>) -> CaseResult<T> {
    match value {
        Some(value) => Ok(value),
        None => unsupported(format!("argument {name} is missing")),
    }
}

pub(super) fn size<B: Backend>(call: &Call<'_, B>, name: &str) -> CaseResult<usize> {
    let [size] = needed(name, sizes::<1, B>(call, name)?)?;
    Ok(size)
}

pub(super) fn flag<B: Backend>(call: &Call<'_, B>, name: &str, default: bool) -> CaseResult<bool> {
    call.flag(NAMED, name, default)
}

pub(super) fn number<B: Backend>(call: &Call<'_, B>, name: &str, default: f64) -> CaseResult<f64> {
    call.float(NAMED, name, default)
}

fn axis<B: Backend>(call: &Call<'_, B>, name: &str) -> CaseResult<isize> {
    needed(name, call.optional_int(NAMED, name)?)
}

fn linear<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    let config =
        LinearConfig::new(size(call, "in_features")?, size(call, "out_features")?).bias(flag(call, "bias", true)?);
    Ok(Box::new(config.build(device)?))
}

fn embedding<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    for name in ["max_norm", "scale_grad_by_freq"] {
        call.not_offered(name)?;
    }
    // The storage of gradients does not affect their values; and without max_norm there is no norm.
    call.ignore(NAMED, "sparse");
    call.ignore(NAMED, "norm_type");
    let mut config = EmbeddingConfig::new(size(call, "num_embeddings")?, size(call, "embedding_dim")?);
    if let Some(index) = call.optional_int(NAMED, "padding_idx")? {
        config = config.padding_idx(index);
    }
    Ok(Box::new(config.build(device)?))
}

fn embedding_bag<B: Backend>(call: &Call<'_, B>, index: &Tensor<B>) -> CaseOutputs<B> {
    let mode = match call.text(NAMED, "mode")? {
        None | Some("mean") => EmbeddingBagMode::Mean,
        Some("sum") => EmbeddingBagMode::Sum,
        Some("max") => EmbeddingBagMode::Max,
        Some(other) => return unsupported(format!("argument mode={other}")),
    };
    let mut config = EmbeddingBagConfig::new(size(call, "num_embeddings")?, size(call, "embedding_dim")?)
        .mode(mode)
        .include_last_offset(flag(call, "include_last_offset", false)?);
    if let Some(row) = call.optional_int(NAMED, "padding_idx")? {
        config = config.padding_idx(row);
    }
    let layer = config.build(&index.device())?;
    prepare(&layer, call)?;
    let offsets = call.sizes(NAMED, "offsets")?;
    one(layer.forward(
        index,
        offsets.as_deref(),
        call.optional_tensor(1, "per_sample_weights")?,
    )?)
}

fn layer<B: Backend>(name: &str, call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    Ok(match name {
        "Linear" => return linear(call, device),
        "Conv1d" => return conv::conv::<1, B>(call, device),
        "Conv2d" => return conv::conv::<2, B>(call, device),
        "Conv3d" => return conv::conv::<3, B>(call, device),
        "ConvTranspose1d" => return conv::conv_transpose::<1, B>(call, device),
        "ConvTranspose2d" => return conv::conv_transpose::<2, B>(call, device),
        "ConvTranspose3d" => return conv::conv_transpose::<3, B>(call, device),
        "BatchNorm1d" => return norm::batch_norm::<1, B>(call, device),
        "BatchNorm2d" => return norm::batch_norm::<2, B>(call, device),
        "BatchNorm3d" => return norm::batch_norm::<3, B>(call, device),
        "LayerNorm" => return norm::layer_norm(call, device),
        "RMSNorm" => return norm::rms_norm(call, device),
        "GroupNorm" => return norm::group_norm(call, device),
        "InstanceNorm1d" => return norm::instance_norm::<1, B>(call, device),
        "InstanceNorm2d" => return norm::instance_norm::<2, B>(call, device),
        "InstanceNorm3d" => return norm::instance_norm::<3, B>(call, device),
        "Embedding" => return embedding(call, device),
        "MaxPool1d" => Box::new(window::max_pool::<1, B>(call)?),
        "MaxPool2d" => Box::new(window::max_pool::<2, B>(call)?),
        "MaxPool3d" => Box::new(window::max_pool::<3, B>(call)?),
        "AvgPool1d" => return window::avg_pool::<1, B>(call),
        "AvgPool2d" => return window::avg_pool::<2, B>(call),
        "AvgPool3d" => return window::avg_pool::<3, B>(call),
        "AdaptiveAvgPool1d" => return window::adaptive_avg_pool::<1, B>(call),
        "AdaptiveAvgPool2d" => return window::adaptive_avg_pool::<2, B>(call),
        "AdaptiveAvgPool3d" => return window::adaptive_avg_pool::<3, B>(call),
        "AdaptiveMaxPool1d" => Box::new(window::adaptive_max_pool::<1, B>(call)?),
        "AdaptiveMaxPool2d" => Box::new(window::adaptive_max_pool::<2, B>(call)?),
        "AdaptiveMaxPool3d" => Box::new(window::adaptive_max_pool::<3, B>(call)?),
        "Upsample" => return window::upsample(call),
        "PixelShuffle" => Box::new(PixelShuffle(size(call, "upscale_factor")?)),
        "PixelUnshuffle" => Box::new(PixelUnshuffle(size(call, "downscale_factor")?)),
        "Flatten" => Box::new(Flatten::dims(
            call.int(NAMED, "start_dim", 1)?,
            call.int(NAMED, "end_dim", -1)?,
        )),
        "Dropout" => Box::new(Dropout::new(number(call, "p", 0.5)?)?),
        _ => return activation::activation(name, call, device),
    })
}

/// Sets the dtype, state and mode of a new layer as the call requires, and gives its parameters the gradients of the
/// state.
pub(super) fn prepare<B: Backend>(layer: &(impl Module<B> + ?Sized), call: &Call<'_, B>) -> CaseResult<()> {
    layer.to_dtype(call.dtype())?;
    let mut state = StateDict::new();
    for (name, value) in call.with_prefix("state.")? {
        state.insert(name, value.to_host()?);
    }
    layer.load_state_dict(&state, true)?;
    // A state saved by PyTorch and loaded here must be saved unchanged, so that PyTorch can load it again.
    let saved = layer.state_dict()?;
    let bits = |x: &HostTensor| x.to_f64_vec().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let same = |a: &HostTensor, b: &HostTensor| a.shape() == b.shape() && bits(a) == bits(b);
    for (name, value) in state.iter() {
        if !saved.get(name).is_some_and(|kept| same(kept, value)) {
            return Err(CaseError::Failed(format!("{name} is not saved as it was loaded")));
        }
    }
    if saved.len() != state.len() {
        return Err(CaseError::Failed("more is saved than was loaded".to_owned()));
    }
    if flag(call, "train", true)? {
        layer.train();
    } else {
        layer.eval();
    }
    for (name, param) in layer.named_parameters() {
        call.replace(&format!("state.{name}"), param.tensor())?;
    }
    Ok(())
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let Some(name) = call.op().strip_prefix("nn.") else {
        return Err(CaseError::OtherFamily);
    };
    let x = call.tensor(0, "input")?;
    if flag(call, "return_indices", false)? {
        return pair(window::with_positions(name, call, x)?);
    }
    if name == "EmbeddingBag" {
        return embedding_bag(call, x);
    }
    let device = x.device();
    run(&*layer(name, call, &device)?, call)
}

/// The output of a new layer or model, and its buffers.
pub(super) fn run<B: Backend>(layer: &(impl Forward<B> + ?Sized), call: &Call<'_, B>) -> CaseOutputs<B> {
    prepare(layer, call)?;
    let mut outputs = vec![layer.forward(call.tensor(0, "input")?)?];
    let mut buffers: Vec<_> = layer.named_buffers().into_iter().collect();
    buffers.sort_by(|a, b| a.0.cmp(&b.0));
    outputs.extend(buffers.into_iter().map(|(_, buffer)| buffer.tensor()));
    Ok(outputs)
}
