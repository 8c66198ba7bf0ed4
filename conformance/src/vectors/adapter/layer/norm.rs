//! Normalisations.

use polygrad_nn::{BatchNormConfig, GroupNormConfig, InstanceNormConfig, LayerNormConfig, RMSNormConfig};
use polygrad_tensor::{Backend, Device};

use super::{Layer, flag, needed, number, size};
use crate::vectors::call::{Call, CaseResult, NAMED};

pub(super) fn batch_norm<const D: usize, B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    // An explicit None differs from an absent argument: it selects the average over all batches.
    let momentum = if call.given("momentum") {
        call.optional_float(NAMED, "momentum")?
    } else {
        Some(0.1)
    };
    let config = BatchNormConfig::<D>::new(size(call, "num_features")?)
        .momentum(momentum)
        .eps(number(call, "eps", 1e-5)?)
        .affine(flag(call, "affine", true)?)
        .bias(flag(call, "bias", true)?)
        .track_running_stats(flag(call, "track_running_stats", true)?);
    Ok(Box::new(config.build(device)?))
}

pub(super) fn instance_norm<const D: usize, B: Backend>(
    call: &Call<'_, B>,
    device: &Device<B>,
) -> CaseResult<Layer<B>> {
    let config = InstanceNormConfig::<D>::new(size(call, "num_features")?)
        .momentum(number(call, "momentum", 0.1)?)
        .eps(number(call, "eps", 1e-5)?)
        .affine(flag(call, "affine", false)?)
        .bias(flag(call, "bias", true)?)
        .track_running_stats(flag(call, "track_running_stats", false)?);
    Ok(Box::new(config.build(device)?))
}

pub(super) fn group_norm<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    let config = GroupNormConfig::new(size(call, "num_groups")?, size(call, "num_channels")?)
        .eps(number(call, "eps", 1e-5)?)
        .affine(flag(call, "affine", true)?)
        .bias(flag(call, "bias", true)?);
    Ok(Box::new(config.build(device)?))
}

pub(super) fn layer_norm<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    let shape = needed("normalized_shape", call.sizes(NAMED, "normalized_shape")?)?;
    let config = LayerNormConfig::new(shape)
        .eps(number(call, "eps", 1e-5)?)
        .elementwise_affine(flag(call, "elementwise_affine", true)?)
        .bias(flag(call, "bias", true)?);
    Ok(Box::new(config.build(device)?))
}

pub(super) fn rms_norm<B: Backend>(call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Layer<B>> {
    let shape = needed("normalized_shape", call.sizes(NAMED, "normalized_shape")?)?;
    let config = RMSNormConfig::new(shape)
        .eps(call.optional_float(NAMED, "eps")?)
        .elementwise_affine(flag(call, "elementwise_affine", true)?);
    Ok(Box::new(config.build(device)?))
}
