//! Convolutions.

use polygrad_nn::{ConvConfig, ConvTransposeConfig};
use polygrad_tensor::{Backend, Device, PadMode};

use super::{Layer, flag, needed, size, sizes};
use crate::vectors::call::{Call, CaseResult, NAMED, unsupported};

pub(super) fn conv<const D: usize, B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
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
    config = match call.text(NAMED, "padding_mode")? {
        None | Some("zeros") => config,
        Some("reflect") => config.padding_mode(PadMode::Reflect),
        Some("replicate") => config.padding_mode(PadMode::Replicate),
        Some("circular") => config.padding_mode(PadMode::Circular),
        Some(other) => return unsupported(format!("argument padding_mode={other}")),
    };
    config = match call.word(NAMED, "padding") {
        Some("same") => config.padding_same(),
        Some("valid") => config,
        Some(other) => return unsupported(format!("argument padding={other}")),
        None => config.padding(sizes(call, "padding")?.unwrap_or([0; D])),
    };
    Ok(Box::new(config.build(device)?))
}

pub(super) fn conv_transpose<const D: usize, B: Backend>(
    call: &Call<'_, B>,
    device: &Device<B>,
) -> CaseResult<Layer<B>> {
    let kernel = needed("kernel_size", sizes::<D, B>(call, "kernel_size")?)?;
    let config = ConvTransposeConfig::<D>::new(size(call, "in_channels")?, size(call, "out_channels")?, kernel)
        .stride(sizes(call, "stride")?.unwrap_or([1; D]))
        .padding(sizes(call, "padding")?.unwrap_or([0; D]))
        .output_padding(sizes(call, "output_padding")?.unwrap_or([0; D]))
        .dilation(sizes(call, "dilation")?.unwrap_or([1; D]))
        .groups(call.size(NAMED, "groups", 1)?)
        .bias(flag(call, "bias", true)?);
    Ok(Box::new(config.build(device)?))
}
