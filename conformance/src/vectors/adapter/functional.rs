//! Fused ops of `torch.nn.functional`.

use polygrad_tensor::{Attention, Backend, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, one, unsupported};

/// In training, it updates the running statistics, which are no output.
fn batch_norm<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    if x.rank() < 2 {
        return unsupported(format!("argument input: {} has no channel axis", x.shape()));
    }
    let training = call.flag(5, "training", false)?;
    call.ignore(6, "momentum");
    let (weight, bias) = (call.optional_tensor(3, "weight")?, call.optional_tensor(4, "bias")?);
    let eps = call.float(7, "eps", 1e-5)?;
    one(match running(call)? {
        Some((mean, var)) if !training => x.batch_norm_running(mean, var, weight, bias, eps)?,
        _ => x.batch_norm(weight, bias, eps)?.0,
    })
}

fn instance_norm<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let own = call.flag(5, "use_input_stats", true)?;
    call.ignore(6, "momentum");
    let (weight, bias) = (call.optional_tensor(3, "weight")?, call.optional_tensor(4, "bias")?);
    let eps = call.float(7, "eps", 1e-5)?;
    one(match running(call)? {
        Some((mean, var)) if !own => x.batch_norm_running(mean, var, weight, bias, eps)?,
        _ => x.instance_norm(weight, bias, eps)?,
    })
}

/// Running mean and variance, if both are given.
fn running<'a, B: Backend>(call: &Call<'a, B>) -> CaseResult<Option<(&'a Tensor<B>, &'a Tensor<B>)>> {
    let mean = call.optional_tensor(1, "running_mean")?;
    Ok(mean.zip(call.optional_tensor(2, "running_var")?))
}

/// PyTorch aligns `is_causal` to the top left, this library to the bottom right. They agree if there are as many
/// queries as keys; otherwise a mask is used.
fn attention<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    if call.float(4, "dropout_p", 0.0)? != 0.0 {
        return unsupported("argument dropout_p");
    }
    let query = call.tensor(0, "query")?;
    let (key, value) = (call.tensor(1, "key")?, call.tensor(2, "value")?);
    // Here heads are grouped whenever possible; in PyTorch that is an option.
    call.flag(7, "enable_gqa", false)?;
    let rows = |x: &Tensor<B>| x.rank().checked_sub(2).map_or(1, |axis| x.dims()[axis]);
    let (queries, keys) = (rows(query), rows(key));
    let mut causal = call.flag(5, "is_causal", false)?;
    let mut mask = call.optional_tensor(3, "attn_mask")?.cloned();
    if causal && queries != keys {
        let all = Tensor::full([queries, keys], true, (&query.device(), polygrad_tensor::DType::Bool))?;
        (causal, mask) = (false, Some(all.tril(0)?));
    }
    let scale = call.optional_float(6, "scale")?;
    one(query.scaled_dot_product_attention(
        key,
        value,
        Attention::new().mask(mask.as_ref()).causal(causal).scale(scale),
    )?)
}

/// The number of last axes that are normalised; PyTorch takes their extents, which must be those of the input.
fn normalized_axes<B: Backend>(call: &Call<'_, B>) -> CaseResult<usize> {
    let extents = call.sizes(1, "normalized_shape")?.unwrap_or_default();
    let dims = call.tensor(0, "input")?.dims();
    if !dims.ends_with(&extents) {
        return unsupported(format!(
            "argument normalized_shape: {extents:?} is not the end of {dims:?}"
        ));
    }
    Ok(extents.len())
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = || call.tensor(0, "input");
    match call.op() {
        "nn.functional.linear" => one(x()?.linear(call.tensor(1, "weight")?, call.optional_tensor(2, "bias")?)?),
        "nn.functional.layer_norm" => {
            let (weight, bias) = (call.optional_tensor(2, "weight")?, call.optional_tensor(3, "bias")?);
            one(x()?.layer_norm(weight, bias, normalized_axes(call)?, call.float(4, "eps", 1e-5)?)?)
        }
        "nn.functional.rms_norm" => {
            // PyTorch's default is the dtype's epsilon; the truth was computed in f64.
            let eps = call.float(3, "eps", f64::EPSILON)?;
            one(x()?.rms_norm(call.optional_tensor(2, "weight")?, normalized_axes(call)?, eps)?)
        }
        "nn.functional.batch_norm" => batch_norm(call),
        "nn.functional.instance_norm" => instance_norm(call),
        "nn.functional.group_norm" => {
            let groups = call.size(1, "num_groups", 1)?;
            let (weight, bias) = (call.optional_tensor(2, "weight")?, call.optional_tensor(3, "bias")?);
            one(x()?.group_norm(groups, weight, bias, call.float(4, "eps", 1e-5)?)?)
        }
        "nn.functional.cosine_similarity" => {
            let (axis, eps) = (call.int(2, "dim", 1)?, call.float(3, "eps", 1e-8)?);
            one(call
                .tensor(0, "x1")?
                .cosine_similarity(call.tensor(1, "x2")?, axis, eps)?)
        }
        "nn.functional.scaled_dot_product_attention" => attention(call),
        _ => Err(CaseError::OtherFamily),
    }
}
