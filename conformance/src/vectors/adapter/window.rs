//! Convolution and pooling.

use polygrad_tensor::{Backend, ConvParams, PoolParams, Result, Tensor};

use crate::vectors::call::{Answer, Asked, Call, Stop, one, unsupported};

/// The input with a batch axis, and whether it had none.
fn batched<B: Backend>(call: &Call<'_, B>, spatial: usize) -> Asked<(Tensor<B>, bool)> {
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

fn conv<B: Backend>(call: &Call<'_, B>, spatial: usize) -> Answer<B> {
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
            // What does not divide by two goes to the end.
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
    let y = biased(x.conv(weight, &params)?, call.optional_tensor(2, "bias")?)?;
    one(unbatched(y, single)?)
}

fn conv_transpose<B: Backend>(call: &Call<'_, B>, spatial: usize) -> Answer<B> {
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

fn max_pool<B: Backend>(call: &Call<'_, B>, spatial: usize) -> Answer<B> {
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

fn avg_pool<B: Backend>(call: &Call<'_, B>, spatial: usize) -> Answer<B> {
    if call.has(6, "divisor_override") {
        return unsupported("argument divisor_override");
    }
    let (x, single) = batched(call, spatial)?;
    let kernel = call.window(1, "kernel_size")?.unwrap_or([1; 3]);
    let params = PoolParams {
        stride: call.window(2, "stride")?.unwrap_or(kernel),
        padding: call.window(3, "padding")?.unwrap_or([0; 3]),
        ceil_mode: call.flag(4, "ceil_mode", false)?,
        count_include_pad: call.flag(5, "count_include_pad", true)?,
        ..PoolParams::new(kernel)
    };
    one(unbatched(x.avg_pool(&params)?, single)?)
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
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
        _ => Err(Stop::OtherFamily),
    }
}
