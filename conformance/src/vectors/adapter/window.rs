//! Convolution and pooling.

use polygrad_tensor::{Backend, ConvParams, InterpolateMode, PoolParams, Resize, Result, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, one, unsupported};

/// The input with a batch axis, and whether it had none.
fn batched<B: Backend>(call: &Call<'_, B>, spatial: usize) -> CaseResult<(Tensor<B>, bool)> {
    let x = call.tensor(0, "input")?;
    let single = x.rank() == spatial + 1;
    Ok((if single { x.unsqueeze(0)? } else { x.clone() }, single))
}

fn unbatched<B: Backend>(x: Tensor<B>, single: bool) -> Result<Tensor<B>> {
    if single { x.squeeze(0) } else { Ok(x) }
}

fn biased<B: Backend>(y: Tensor<B>, bias: Option<&Tensor<B>>) -> Result<Tensor<B>> {
    let Some(bias) = bias else {
        return Ok(y);
    };
    let mut column = vec![1; y.rank()];
    column[1] = bias.numel();
    y + bias.reshape(column)?
}

fn conv<B: Backend>(call: &Call<'_, B>, spatial: usize) -> CaseOutputs<B> {
    let (mut x, single) = batched(call, spatial)?;
    let weight = call.tensor(1, "weight")?;
    let mut params = ConvParams {
        stride: call.window(3, "stride")?.unwrap_or([1; 3]),
        dilation: call.window(5, "dilation")?.unwrap_or([1; 3]),
        groups: call.size(6, "groups", 1)?,
        ..ConvParams::default()
    };
    match call.word(4, "padding") {
        Some("same") => {
            // An odd remainder goes to the end.
            let kernel = weight.dims();
            let border = kernel.iter().skip(2).zip(params.dilation).map(|(&kernel, dilation)| {
                let total = kernel.saturating_sub(1).saturating_mul(dilation);
                (total / 2, total - total / 2)
            });
            let border: Vec<_> = [(0, 0); 2].into_iter().chain(border).collect();
            x = x.pad(&border, 0.0)?;
        }
        Some("valid") => {}
        Some(other) => return unsupported(format!("argument padding={other}")),
        None => params.padding = call.window(4, "padding")?.unwrap_or([0; 3]),
    }
    let y = biased(x.conv(weight, None, &params)?, call.optional_tensor(2, "bias")?)?;
    one(unbatched(y, single)?)
}

fn conv_transpose<B: Backend>(call: &Call<'_, B>, spatial: usize) -> CaseOutputs<B> {
    let (x, single) = batched(call, spatial)?;
    let params = ConvParams {
        stride: call.window(3, "stride")?.unwrap_or([1; 3]),
        padding: call.window(4, "padding")?.unwrap_or([0; 3]),
        groups: call.size(6, "groups", 1)?,
        dilation: call.window(7, "dilation")?.unwrap_or([1; 3]),
    };
    let output_padding = call.window(5, "output_padding")?.unwrap_or([0; 3]);
    let y = x.conv_transpose(call.tensor(1, "weight")?, &params, output_padding)?;
    one(unbatched(biased(y, call.optional_tensor(2, "bias")?)?, single)?)
}

fn max_pool<B: Backend>(call: &Call<'_, B>, spatial: usize) -> CaseOutputs<B> {
    let (x, single) = batched(call, spatial)?;
    let kernel = call.window(1, "kernel_size")?.unwrap_or([1; 3]);
    let params = PoolParams {
        stride: call.window(2, "stride")?.unwrap_or(kernel),
        padding: call.window(3, "padding")?.unwrap_or([0; 3]),
        dilation: call.window(4, "dilation")?.unwrap_or([1; 3]),
        ceil_mode: call.flag(5, "ceil_mode", false)?,
        ..PoolParams::new(kernel)
    };
    let (values, indices) = x.max_pool(&params)?;
    let mut answer = vec![unbatched(values, single)?];
    if call.flag(6, "return_indices", false)? {
        answer.push(unbatched(indices, single)?);
    }
    Ok(answer)
}

fn avg_pool<B: Backend>(call: &Call<'_, B>, spatial: usize) -> CaseOutputs<B> {
    let (x, single) = batched(call, spatial)?;
    let kernel = call.window(1, "kernel_size")?.unwrap_or([1; 3]);
    let params = PoolParams {
        stride: call.window(2, "stride")?.unwrap_or(kernel),
        padding: call.window(3, "padding")?.unwrap_or([0; 3]),
        ceil_mode: call.flag(4, "ceil_mode", false)?,
        count_include_pad: call.flag(5, "count_include_pad", true)?,
        ..PoolParams::new(kernel)
    };
    let pooled = match call.optional_int(6, "divisor_override")? {
        Some(divisor) => x.avg_pool_with_divisor(&params, divisor)?,
        None => x.avg_pool(&params)?,
    };
    one(unbatched(pooled, single)?)
}

fn adaptive_avg_pool<B: Backend>(call: &Call<'_, B>, spatial: usize) -> CaseOutputs<B> {
    let (x, single) = batched(call, spatial)?;
    let sizes = call.extents(1, "output_size", spatial)?.unwrap_or_default();
    let kept = x.dims().into_iter().skip(2);
    let size: Vec<usize> = sizes
        .into_iter()
        .zip(kept)
        .map(|(size, dim)| size.unwrap_or(dim))
        .collect();
    one(unbatched(x.adaptive_avg_pool(&size)?, single)?)
}

fn interpolate<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let mode = match call.text(3, "mode")? {
        None | Some("nearest") => InterpolateMode::Nearest,
        Some("nearest-exact") => InterpolateMode::NearestExact,
        Some("linear" | "bilinear" | "trilinear") => InterpolateMode::Linear,
        Some("bicubic") => InterpolateMode::Cubic,
        Some("area") => InterpolateMode::Area,
        Some(other) => return unsupported(format!("argument mode={other}")),
    };
    if call.flag(6, "antialias", false)? {
        return unsupported("argument antialias=True");
    }
    let spatial = x.rank().saturating_sub(2);
    let align_corners = call.flag(4, "align_corners", false)?;
    let recompute = call.flag(5, "recompute_scale_factor", false)?;
    one(match call.floats(2, "scale_factor", spatial)? {
        None => {
            let size = call.extents(1, "size", spatial)?.unwrap_or_default();
            let size: Vec<usize> = size.into_iter().flatten().collect();
            x.interpolate(Resize::Size(&size), mode, align_corners)?
        }
        Some(factors) if recompute => {
            let dims = x.dims().into_iter().skip(2).zip(factors);
            let size: Vec<usize> = dims.map(|(dim, factor)| (dim as f64 * factor) as usize).collect();
            x.interpolate(Resize::Size(&size), mode, align_corners)?
        }
        Some(factors) => x.interpolate(Resize::Scale(&factors), mode, align_corners)?,
    })
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    match call.op() {
        "nn.functional.conv1d" => conv(call, 1),
        "nn.functional.conv2d" => conv(call, 2),
        "nn.functional.conv3d" => conv(call, 3),
        "nn.functional.conv_transpose1d" => conv_transpose(call, 1),
        "nn.functional.conv_transpose2d" => conv_transpose(call, 2),
        "nn.functional.max_pool1d" => max_pool(call, 1),
        "nn.functional.max_pool2d" => max_pool(call, 2),
        "nn.functional.avg_pool1d" => avg_pool(call, 1),
        "nn.functional.avg_pool2d" => avg_pool(call, 2),
        "nn.functional.adaptive_avg_pool1d" => adaptive_avg_pool(call, 1),
        "nn.functional.adaptive_avg_pool2d" => adaptive_avg_pool(call, 2),
        "nn.functional.interpolate" => interpolate(call),
        _ => Err(CaseError::OtherFamily),
    }
}
