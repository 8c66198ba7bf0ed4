//! Pooling, and images of another size.

use polygrad_nn::{AdaptiveAvgPool, AvgPool, MaxPool, Upsample};
use polygrad_tensor::{Backend, InterpolateMode};

use super::{Layer, batched, flag, needed, sizes};
use crate::vectors::call::{Call, CaseResult, NAMED, unsupported};

pub(super) fn max_pool<const D: usize, B: Backend>(call: &Call<'_, B>) -> CaseResult<Layer<B>> {
    batched(call, D)?;
    call.not_offered("return_indices")?;
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

pub(super) fn avg_pool<const D: usize, B: Backend>(call: &Call<'_, B>) -> CaseResult<Layer<B>> {
    batched(call, D)?;
    call.not_offered("divisor_override")?;
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

pub(super) fn adaptive<const D: usize, B: Backend>(call: &Call<'_, B>) -> CaseResult<Layer<B>> {
    batched(call, D)?;
    let output = needed("output_size", call.extents(NAMED, "output_size", D)?)?;
    match <[_; D]>::try_from(output) {
        Ok(output) => Ok(Box::new(AdaptiveAvgPool::with_kept(output))),
        Err(output) => unsupported(format!("argument output_size={output:?}")),
    }
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
