//! Pooling, and resizing of images.

use polygrad_nn::{AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, MaxPool, Upsample};
use polygrad_tensor::{Backend, InterpolateMode, Tensor};

use super::{Layer, flag, needed, sizes};
use crate::vectors::call::{Call, CaseResult, NAMED, unsupported};

/// The answers of pooling layers, including positions if their argument `return_indices` is true.
pub(super) fn with_positions<B: Backend>(
    name: &str,
    call: &Call<'_, B>,
    x: &Tensor<B>,
) -> CaseResult<(Tensor<B>, Tensor<B>)> {
    Ok(match name {
        "MaxPool1d" => max_pool::<1, B>(call)?.forward_with_indices(x)?,
        "MaxPool2d" => max_pool::<2, B>(call)?.forward_with_indices(x)?,
        "MaxPool3d" => max_pool::<3, B>(call)?.forward_with_indices(x)?,
        "AdaptiveMaxPool1d" => adaptive_max_pool::<1, B>(call)?.forward_with_indices(x)?,
        "AdaptiveMaxPool2d" => adaptive_max_pool::<2, B>(call)?.forward_with_indices(x)?,
        "AdaptiveMaxPool3d" => adaptive_max_pool::<3, B>(call)?.forward_with_indices(x)?,
        _ => return unsupported(format!("argument return_indices of {name}")),
    })
}

pub(super) fn max_pool<const D: usize, B: Backend>(call: &Call<'_, B>) -> CaseResult<MaxPool<D>> {
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
    Ok(pool)
}

pub(super) fn avg_pool<const D: usize, B: Backend>(call: &Call<'_, B>) -> CaseResult<Layer<B>> {
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
    if let Some(divisor) = call.optional_int(NAMED, "divisor_override")? {
        pool = pool.divisor_override(divisor);
    }
    Ok(Box::new(pool))
}

fn output_size<const D: usize, B: Backend>(call: &Call<'_, B>) -> CaseResult<[Option<usize>; D]> {
    let output = needed("output_size", call.extents(NAMED, "output_size", D)?)?;
    <[_; D]>::try_from(output).or_else(|output| unsupported(format!("argument output_size={output:?}")))
}

pub(super) fn adaptive_avg_pool<const D: usize, B: Backend>(call: &Call<'_, B>) -> CaseResult<Layer<B>> {
    Ok(Box::new(AdaptiveAvgPool::with_kept(output_size::<D, B>(call)?)))
}

pub(super) fn adaptive_max_pool<const D: usize, B: Backend>(call: &Call<'_, B>) -> CaseResult<AdaptiveMaxPool<D>> {
    Ok(AdaptiveMaxPool::with_kept(output_size(call)?))
}

pub(super) fn upsample<B: Backend>(call: &Call<'_, B>) -> CaseResult<Layer<B>> {
    let layer = match (call.sizes(NAMED, "size")?, call.floats(NAMED, "scale_factor", 1)?) {
        (Some(size), None) => Upsample::size(size),
        (None, Some(factors)) => Upsample::scale_factors(factors),
        _ => return unsupported("arguments size and scale_factor, of which there must be one"),
    };
    let mode = match call.text(NAMED, "mode")? {
        None | Some("nearest") => InterpolateMode::Nearest,
        Some("nearest-exact") => InterpolateMode::NearestExact,
        Some("linear" | "bilinear" | "trilinear") => InterpolateMode::Linear,
        Some("bicubic") => InterpolateMode::Cubic,
        Some("area") => InterpolateMode::Area,
        Some(other) => return unsupported(format!("argument mode={other}")),
    };
    let layer = layer
        .mode(mode)
        .align_corners(flag(call, "align_corners", false)?)
        .recompute_scale_factor(flag(call, "recompute_scale_factor", false)?);
    Ok(Box::new(layer))
}
