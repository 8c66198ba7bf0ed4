//! A convolution and the pooling after it, on as many images at a time as keep the convolution's output in the cache.

use polygrad_core::{Activation, ConvParams, PoolParams, Result};
use polygrad_tensor::{Device, Tensor, inference};

use crate::import::call::{Call, Results, one};

/// Largest convolution output, in bytes, that is still in a core's cache when it is pooled.
const CACHE: usize = 1 << 20;

/// Whether processing a few images at a time pays: on devices that compute synchronously on cores with caches.
pub(super) fn pays(device: &Device) -> bool {
    let capabilities = device.capabilities();
    capabilities.unified_memory && !capabilities.asynchronous
}

/// Of images, a weight and a bias.
pub(super) fn conv_pool(
    c: &Call<'_>,
    params: &ConvParams,
    activation: Option<Activation>,
    pool: &PoolParams,
) -> Results {
    let (x, weight, bias) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let shape = params.output_shape(&x.shape(), &weight.shape())?;
    c.limits.check(&shape, x.dtype())?;
    c.limits.check(&pool.output_shape(&shape)?, x.dtype())?;
    let compute = |x: &Tensor| -> Result<Tensor> {
        let y = inference::conv(x, &weight, Some(&bias), None, activation, params)?;
        Ok(inference::max_pool(&y, pool, false)?.0)
    };
    let images = shape[0];
    let bytes = shape.numel() * x.dtype().size();
    let at_once = (CACHE * images)
        .checked_div(bytes)
        .map_or(images, |images| images.max(1));
    if at_once >= images || [&x, &weight, &bias].into_iter().any(Tensor::is_tracked) {
        return one(compute(&x)?);
    }
    let starts = (0..images).step_by(at_once);
    let parts: Vec<Tensor> = starts
        .map(|start| compute(&x.narrow(0, start, at_once.min(images - start))?))
        .collect::<Result<_>>()?;
    one(Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?)
}
