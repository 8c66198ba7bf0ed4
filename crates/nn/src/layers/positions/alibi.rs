//! Attention with linear biases.

use polygrad_tensor::{Backend, DType, Device, Error, Result, Shape, Tensor};

/// The slope of each of `heads` heads. For a power of two it is `2^(−8 i / heads)`, with i from 1. Otherwise the slopes
/// are those of the next smaller power of two, then every second one of the next larger.
///
/// Source: Press, Smith and Lewis, "Train short, test long: attention with linear biases enables input length
/// extrapolation" (2021).
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    let of_power = |count: usize| (1..=count).map(move |i| (-8.0 * i as f64 / count as f64).exp2());
    if heads == 0 {
        return Vec::new();
    }
    let smaller = 1 << heads.ilog2();
    let larger = of_power(2 * smaller).step_by(2).take(heads - smaller);
    of_power(smaller).chain(larger).collect()
}

/// The bias `[heads, queries, keys]` that is added to the scores: `−slope · (i + keys − queries − j)` for query i and
/// key j, so that the last query is aligned with the last key. Keys after the query get a bias, too; only a causal mask
/// hides them. Pass it as the mask of [`Tensor::scaled_dot_product_attention`].
///
/// # Errors
/// When the shape has too many elements, or memory runs out.
pub fn alibi_bias<B: Backend>(
    heads: usize,
    queries: usize,
    keys: usize,
    dtype: DType,
    device: &Device<B>,
) -> Result<Tensor<B>> {
    let shape = Shape::new(&[heads, queries, keys])?;
    if !dtype.is_float() {
        return Err(Error::dtype(format!("{dtype} is no float")).with_op("alibi_bias"));
    }
    // Computed on the device, so that a recording adapts to other extents.
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let slopes = alibi_slopes(heads)
        .into_iter()
        .map(|slope| -slope)
        .collect::<Vec<f64>>();
    let slopes = Tensor::from_vec(slopes, [shape[0], 1, 1], (device, wide))?;
    let places = Tensor::arange(keys as i64 - queries as i64, keys as i64, 1i64, device)?.unsqueeze(1)?;
    let behind = (places - Tensor::arange(0i64, keys as i64, 1i64, device)?)?.to_dtype(wide)?;
    (slopes * behind)?.to_dtype(dtype)
}
