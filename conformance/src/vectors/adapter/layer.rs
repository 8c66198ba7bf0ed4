//! The layers of `torch.nn`. Their arguments are those of the class, by name; `train` is the mode, and `state.<name>` the state dict before
//! the call. What a layer answers is its output and then its buffers as the call leaves them, in the order of their names.

use polygrad_nn::{
    AdaptiveAvgPool2d, AvgPool, BatchNormConfig, ConvConfig, Dropout, ELU, EmbeddingConfig, Flatten, Forward, GELU,
    GroupNormConfig, InstanceNormConfig, LayerNormConfig, LeakyReLU, LinearConfig, LogSoftmax, MaxPool, ReLU, SiLU,
    Sigmoid, Softmax, Softplus, StateDict, Tanh,
};
use polygrad_tensor::{Backend, Device};

use crate::vectors::call::{Answer, Asked, Call, NAMED, Stop, unsupported};

type Layer<B> = Box<dyn Forward<B>>;

/// One size for each axis.
fn sizes<const D: usize, B: Backend>(call: &Call<'_, B>, name: &str) -> Asked<Option<[usize; D]>> {
    let all = call.window(NAMED, name)?;
    Ok(all.map(|all| std::array::from_fn(|axis| all[axis])))
}

/// An argument that the class asks for.
fn needed<T>(name: &str, value: Option<T>) -> Asked<T> {
    match value {
        Some(value) => Ok(value),
        None => unsupported(format!("argument {name} is missing")),
    }
}

fn size<B: Backend>(call: &Call<'_, B>, name: &str) -> Asked<usize> {
    let [size] = needed(name, sizes::<1, B>(call, name)?)?;
    Ok(size)
}

fn flag<B: Backend>(call: &Call<'_, B>, name: &str, default: bool) -> Asked<bool> {
    call.flag(NAMED, name, default)
}

fn number<B: Backend>(call: &Call<'_, B>, name: &str, default: f64) -> Asked<f64> {
    call.float(NAMED, name, default)
}

fn axis<B: Backend>(call: &Call<'_, B>, name: &str) -> Asked<isize> {
    needed(name, call.optional_int(NAMED, name)?)
}

fn conv<const D: usize, B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> Asked<Layer<B>> {
    let kernel = needed("kernel_size", sizes::<D, B>(call, "kernel_size")?)?;
    let mut config = ConvConfig::<D>::new(size(call, "in_channels")?, size(call, "out_channels")?, kernel)
        .groups(call.size(NAMED, "groups", 1)?)
        .bias(flag(call, "bias", true)?);
    if let Some(stride) = sizes(call, "stride")? {
        config = config.stride(stride);
    }
    if let Some(dilation) = sizes(call, "dilation")? {
        config = config.dilation(dilation);
    }
    config = match call.word(NAMED, "padding") {
        Some("same") => config.padding_same(),
        Some("valid") => config,
        Some(other) => return unsupported(format!("argument padding={other}")),
        None => config.padding(sizes(call, "padding")?.unwrap_or([0; D])),
    };
    Ok(Box::new(config.build(device)?))
}

fn max_pool<const D: usize, B: Backend>(call: &Call<'_, B>) -> Asked<Layer<B>> {
    let kernel = needed("kernel_size", sizes::<D, B>(call, "kernel_size")?)?;
    let mut pool = MaxPool::<D>::new(kernel).ceil_mode(flag(call, "ceil_mode", false)?);
    if let Some(stride) = sizes(call, "stride")? {
        pool = pool.stride(stride);
    }
    if let Some(padding) = sizes(call, "padding")? {
        pool = pool.padding(padding);
    }
    if let Some(dilation) = sizes(call, "dilation")? {
        pool = pool.dilation(dilation);
    }
    Ok(Box::new(pool))
}

fn avg_pool<const D: usize, B: Backend>(call: &Call<'_, B>) -> Asked<Layer<B>> {
    let kernel = needed("kernel_size", sizes::<D, B>(call, "kernel_size")?)?;
    let mut pool = AvgPool::<D>::new(kernel)
        .ceil_mode(flag(call, "ceil_mode", false)?)
        .count_include_pad(flag(call, "count_include_pad", true)?);
    if let Some(stride) = sizes(call, "stride")? {
        pool = pool.stride(stride);
    }
    if let Some(padding) = sizes(call, "padding")? {
        pool = pool.padding(padding);
    }
    Ok(Box::new(pool))
}

fn batch_norm<const D: usize, B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> Asked<Layer<B>> {
    // None, which is another thing than an absent one, asks for the average over all batches.
    let momentum = if call.given("momentum") {
        call.optional_float(NAMED, "momentum")?
    } else {
        Some(0.1)
    };
    let config = BatchNormConfig::<D>::new(size(call, "num_features")?)
        .momentum(momentum)
        .eps(number(call, "eps", 1e-5)?)
        .affine(flag(call, "affine", true)?)
        .track_running_stats(flag(call, "track_running_stats", true)?);
    Ok(Box::new(config.build(device)?))
}

fn instance_norm<const D: usize, B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> Asked<Layer<B>> {
    let config = InstanceNormConfig::<D>::new(size(call, "num_features")?)
        .momentum(number(call, "momentum", 0.1)?)
        .eps(number(call, "eps", 1e-5)?)
        .affine(flag(call, "affine", false)?)
        .track_running_stats(flag(call, "track_running_stats", false)?);
    Ok(Box::new(config.build(device)?))
}

fn group_norm<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> Asked<Layer<B>> {
    let config = GroupNormConfig::new(size(call, "num_groups")?, size(call, "num_channels")?)
        .eps(number(call, "eps", 1e-5)?)
        .affine(flag(call, "affine", true)?);
    Ok(Box::new(config.build(device)?))
}

fn layer_norm<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> Asked<Layer<B>> {
    let shape = needed("normalized_shape", call.sizes(NAMED, "normalized_shape")?)?;
    let config = LayerNormConfig::new(shape)
        .eps(number(call, "eps", 1e-5)?)
        .elementwise_affine(flag(call, "elementwise_affine", true)?)
        .bias(flag(call, "bias", true)?);
    Ok(Box::new(config.build(device)?))
}

fn linear<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> Asked<Layer<B>> {
    let config =
        LinearConfig::new(size(call, "in_features")?, size(call, "out_features")?).bias(flag(call, "bias", true)?);
    Ok(Box::new(config.build(device)?))
}

fn embedding<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> Asked<Layer<B>> {
    let mut config = EmbeddingConfig::new(size(call, "num_embeddings")?, size(call, "embedding_dim")?);
    if let Some(index) = call.optional_int(NAMED, "padding_idx")? {
        config = config.padding_idx(index);
    }
    Ok(Box::new(config.build(device)?))
}

fn adaptive<B: Backend>(call: &Call<'_, B>) -> Asked<Layer<B>> {
    let output = needed("output_size", call.extents(NAMED, "output_size", 2)?)?;
    match output[..] {
        [height, width] => Ok(Box::new(AdaptiveAvgPool2d::with_kept([height, width]))),
        _ => unsupported(format!("argument output_size={output:?}")),
    }
}

fn layer<B: Backend>(name: &str, call: &Call<'_, B>, device: &Device<B>) -> Asked<Layer<B>> {
    Ok(match name {
        "Linear" => return linear(call, device),
        "Conv1d" => return conv::<1, B>(call, device),
        "Conv2d" => return conv::<2, B>(call, device),
        "BatchNorm1d" => return batch_norm::<1, B>(call, device),
        "BatchNorm2d" => return batch_norm::<2, B>(call, device),
        "LayerNorm" => return layer_norm(call, device),
        "GroupNorm" => return group_norm(call, device),
        "InstanceNorm1d" => return instance_norm::<1, B>(call, device),
        "InstanceNorm2d" => return instance_norm::<2, B>(call, device),
        "Embedding" => return embedding(call, device),
        "MaxPool1d" => return max_pool::<1, B>(call),
        "MaxPool2d" => return max_pool::<2, B>(call),
        "AvgPool1d" => return avg_pool::<1, B>(call),
        "AvgPool2d" => return avg_pool::<2, B>(call),
        "AdaptiveAvgPool2d" => return adaptive(call),
        "Flatten" => Box::new(Flatten::dims(
            call.int(NAMED, "start_dim", 1)?,
            call.int(NAMED, "end_dim", -1)?,
        )),
        "Dropout" => Box::new(Dropout::new(number(call, "p", 0.5)?)?),
        "ReLU" => Box::new(ReLU),
        "SiLU" => Box::new(SiLU),
        "Sigmoid" => Box::new(Sigmoid),
        "Tanh" => Box::new(Tanh),
        "GELU" => match call.text(NAMED, "approximate")? {
            None | Some("none") => Box::new(GELU::Exact),
            Some("tanh") => Box::new(GELU::Tanh),
            Some(other) => return unsupported(format!("argument approximate={other}")),
        },
        "ELU" => Box::new(ELU(number(call, "alpha", 1.0)?)),
        "LeakyReLU" => Box::new(LeakyReLU(number(call, "negative_slope", 0.01)?)),
        "Softplus" => Box::new(Softplus {
            beta: number(call, "beta", 1.0)?,
            threshold: number(call, "threshold", 20.0)?,
        }),
        "Softmax" => Box::new(Softmax(axis(call, "dim")?)),
        "LogSoftmax" => Box::new(LogSoftmax(axis(call, "dim")?)),
        _ => return Err(Stop::OtherFamily),
    })
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
    let Some(name) = call.op().strip_prefix("nn.") else {
        return Err(Stop::OtherFamily);
    };
    let device = call.tensor(0, "input")?.device();
    let layer = layer(name, call, &device)?;
    layer.to_dtype(call.dtype())?;
    let mut state = StateDict::new();
    for (name, value) in call.with_prefix("state.")? {
        state.insert(name, value.to_host()?);
    }
    layer.load_state_dict(&state, true)?;
    if flag(call, "train", true)? {
        layer.train();
    } else {
        layer.eval();
    }
    for (name, param) in layer.named_parameters() {
        call.replace(&format!("state.{name}"), param.tensor())?;
    }
    let mut outputs = vec![layer.forward(call.tensor(0, "input")?)?];
    let mut buffers: Vec<_> = layer.named_buffers().into_iter().collect();
    buffers.sort_by(|a, b| a.0.cmp(&b.0));
    outputs.extend(buffers.into_iter().map(|(_, buffer)| buffer.tensor()));
    Ok(outputs)
}
