//! Convolutions.

use polygrad_nn::{ConvConfig, ConvTransposeConfig};
use polygrad_tensor::{Backend, Device};

use super::{Layer, batched, flag, needed, size, sizes};
use crate::vectors::call::{Call, CaseResult, NAMED, unsupported};

fn padded_with_zeros<B: Backend>(call: &Call<'_, B>) -> CaseResult<()> {
    match call.text(NAMED, "padding_mode")? {
        None | Some("zeros") => Ok(()),
        Some(other) => unsupported(format!("argument padding_mode={other} is not offered")),
    }
}

pub(super) fn conv<const D: usize, B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    batched(call, D)?;
    padded_with_zeros(call)?;
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

pub(super) fn conv_transpose<const D: usize, B: Backend>(
    call: &Call<'_, B>,
    device: &Device<B>,
) -> CaseResult<Layer<B>> {
    batched(call, D)?;
    padded_with_zeros(call)?;
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
