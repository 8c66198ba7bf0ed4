//! Fused ops for which a driver may have a kernel. Each returns `None` if there is no kernel; the op is then
//! decomposed.

use polygrad_core::compute::{
    Attention, AttentionBackward, ComputeBackend, CrossEntropy, DevicePtr, Kernel, LayerNorm, Softmax,
};
use polygrad_core::{Axes, CrossEntropyParams, ErrorKind, Result, Shape};

use crate::array::Array;
use crate::movement::{contiguous, permute};

/// Whether fused ops are passed to the driver, and it has the kernel.
fn has(x: &Array, kernel: Kernel) -> bool {
    x.context().fuses && x.context().driver.supports(kernel, x.dtype())
}

/// Exchanges the axis and the last one; a second call undoes the first.
fn exchanged(x: &Array, axis: usize) -> Result<Array> {
    let last = x.shape().rank() - 1;
    if axis == last {
        return Ok(x.clone());
    }
    let mut order: Vec<usize> = (0..=last).collect();
    order.swap(axis, last);
    Ok(permute(x, Axes::new(order)?))
}

/// Softmax along an axis, or its logarithm.
pub(crate) fn softmax(x: &Array, axis: usize, log: bool) -> Result<Option<Array>> {
    let run = |driver: &dyn ComputeBackend, call: &Softmax| driver.softmax(call);
    rows(Kernel::Softmax, x, None, axis, log, run)
}

/// Gradient of [`softmax`], from the output's gradient and the output.
pub(crate) fn softmax_backward(grad: &Array, output: &Array, axis: usize, log: bool) -> Result<Option<Array>> {
    let run = |driver: &dyn ComputeBackend, call: &Softmax| driver.softmax_backward(call);
    rows(Kernel::SoftmaxBackward, grad, Some(output), axis, log, run)
}

fn rows(
    kernel: Kernel,
    x: &Array,
    saved: Option<&Array>,
    axis: usize,
    log: bool,
    run: impl FnOnce(&dyn ComputeBackend, &Softmax) -> Result<()>,
) -> Result<Option<Array>> {
    if !has(x, kernel) || x.shape().numel() == 0 || x.shape().rank() == 0 {
        return Ok(None);
    }
    let x = contiguous(&exchanged(x, axis)?)?;
    let saved = match saved {
        Some(saved) => Some(contiguous(&exchanged(saved, axis)?)?),
        None => None,
    };
    let out = Array::empty(x.context(), *x.shape(), x.dtype())?;
    let columns = x.shape()[x.shape().rank() - 1];
    let call = Softmax {
        dtype: x.dtype(),
        rows: x.shape().numel() / columns,
        columns,
        log,
        input: x.start()?,
        saved: saved.as_ref().map(Array::start).transpose()?.unwrap_or_default(),
        output: out.start()?,
    };
    x.context().launch(kernel.name(), |driver| run(driver, &call))?;
    exchanged(&out, axis).map(Some)
}

/// Losses and each row's `ln Σ e^x`.
pub(crate) fn cross_entropy(
    logits: &Array,
    target: &Array,
    params: &CrossEntropyParams,
) -> Result<Option<(Array, Array)>> {
    if params.mean || !has(logits, Kernel::CrossEntropy) || logits.shape().numel() == 0 {
        return Ok(None);
    }
    let (logits, target) = (contiguous(logits)?, contiguous(target)?);
    let loss = Array::empty(logits.context(), *target.shape(), logits.dtype())?;
    let logsumexp = Array::empty(logits.context(), *target.shape(), logits.dtype())?;
    let call = classified(&logits, &target, params, [Some(&loss), Some(&logsumexp), None])?;
    (logits.context()).launch("cross_entropy", |driver| driver.cross_entropy(&call))?;
    Ok(Some((loss, logsumexp)))
}

/// Gradient of [`cross_entropy`] wrt the logits, from the losses' gradient.
pub(crate) fn cross_entropy_backward(
    grad: &Array,
    logits: &Array,
    target: &Array,
    logsumexp: &Array,
    params: &CrossEntropyParams,
) -> Result<Option<Array>> {
    let context = logits.context();
    if params.mean || !has(logits, Kernel::CrossEntropyBackward) || logits.shape().numel() == 0 {
        return Ok(None);
    }
    let (logits, target) = (contiguous(logits)?, contiguous(target)?);
    let (grad, logsumexp) = (contiguous(grad)?, contiguous(logsumexp)?);
    let out = Array::empty(context, *logits.shape(), logits.dtype())?;
    let call = classified(&logits, &target, params, [Some(&grad), Some(&logsumexp), Some(&out)])?;
    context.launch("cross_entropy_backward", |driver| driver.cross_entropy_backward(&call))?;
    Ok(Some(out))
}

fn classified(
    logits: &Array,
    target: &Array,
    params: &CrossEntropyParams,
    others: [Option<&Array>; 3],
) -> Result<CrossEntropy> {
    let start = |array: Option<&Array>| array.map(Array::start).transpose().map(Option::unwrap_or_default);
    Ok(CrossEntropy {
        dtype: logits.dtype(),
        rows: logits.shape()[0],
        columns: logits.shape()[1],
        params: *params,
        logits: logits.start()?,
        target: target.start()?,
        loss: start(others[0])?,
        logsumexp: start(others[1])?,
        grad: start(others[2])?,
    })
}

/// Output, mean and `1 / sqrt(variance + eps)`.
pub(crate) fn layer_norm(
    x: &Array,
    weight: Option<&Array>,
    bias: Option<&Array>,
    axes: usize,
    eps: f64,
) -> Result<Option<[Array; 3]>> {
    if !has(x, Kernel::LayerNorm) || x.shape().numel() == 0 {
        return Ok(None);
    }
    let kept = x.shape().rank() - axes;
    let columns: usize = x.shape()[kept..].iter().product();
    let mut stats = *x.shape();
    stats.dims_mut()[kept..].fill(1);
    let stats = Shape::new(&stats)?;
    let x = contiguous(x)?;
    let weight = weight.map(contiguous).transpose()?;
    let bias = bias.map(contiguous).transpose()?;
    let out = Array::empty(x.context(), *x.shape(), x.dtype())?;
    let mean = Array::empty(x.context(), stats, x.dtype())?;
    let rstd = Array::empty(x.context(), stats, x.dtype())?;
    let call = LayerNorm {
        dtype: x.dtype(),
        rows: x.shape().numel() / columns,
        columns,
        eps,
        input: x.start()?,
        weight: weight.as_ref().map(Array::start).transpose()?,
        bias: bias.as_ref().map(Array::start).transpose()?,
        output: out.start()?,
        mean: mean.start()?,
        rstd: rstd.start()?,
    };
    x.context().launch("layer_norm", |driver| driver.layer_norm(&call))?;
    Ok(Some([out, mean, rstd]))
}

/// Attention without an explicit mask, if batch and heads are the same in all three.
pub(crate) fn attention(q: &Array, k: &Array, v: &Array, scale: f64, causal: bool) -> Result<Option<Array>> {
    if !q.context().fuses || !attends(q, k, v) {
        return Ok(None);
    }
    let (q, k, v) = (contiguous(q)?, contiguous(k)?, contiguous(v)?);
    let last = q.shape().rank() - 1;
    let out = Array::empty(q.context(), q.shape().with_dim(last, v.shape()[last]), q.dtype())?;
    let call = Attention {
        output: out.start()?,
        ..attending([&q, &k, &v], scale, causal)?
    };
    let done = (q.context()).launch("scaled_dot_product_attention", |driver| driver.attention(&call));
    unless_unsupported(done, out)
}

/// Gradients of [`attention`] wrt `q`, `k` and `v`, from the output's gradient.
pub(crate) fn attention_backward(
    grad: &Array,
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f64,
    causal: bool,
) -> Result<Option<[Array; 3]>> {
    if !has(q, Kernel::AttentionBackward) || !attends(q, k, v) {
        return Ok(None);
    }
    let (q, k, v, grad) = (contiguous(q)?, contiguous(k)?, contiguous(v)?, contiguous(grad)?);
    let like = |x: &Array| Array::empty(x.context(), *x.shape(), x.dtype());
    let out = [like(&q)?, like(&k)?, like(&v)?];
    let call = AttentionBackward {
        forward: attending([&q, &k, &v], scale, causal)?,
        grad: grad.start()?,
        to_q: out[0].start()?,
        to_k: out[1].start()?,
        to_v: out[2].start()?,
    };
    let done = (q.context()).launch("scaled_dot_product_attention_backward", |driver| {
        driver.attention_backward(&call)
    });
    unless_unsupported(done, out)
}

/// Whether batch and heads are the same in all three, and none is empty.
fn attends(q: &Array, k: &Array, v: &Array) -> bool {
    let lead = |x: &Array| x.shape()[..x.shape().rank() - 2].to_vec();
    let full = [q, k, v].iter().all(|x| x.shape().numel() > 0);
    full && q.shape().rank() >= 3 && lead(q) == lead(k) && lead(q) == lead(v)
}

/// The call for contiguous queries, keys and values, without an output.
fn attending([q, k, v]: [&Array; 3], scale: f64, causal: bool) -> Result<Attention> {
    let (dims, keys, values) = (q.shape(), k.shape(), v.shape());
    let rank = dims.rank();
    Ok(Attention {
        dtype: q.dtype(),
        batch: dims[..rank - 3].iter().product(),
        heads: dims[rank - 3],
        seq_q: dims[rank - 2],
        seq_kv: keys[rank - 2],
        head_dim: dims[rank - 1],
        value_dim: values[rank - 1],
        scale,
        causal,
        q: q.start()?,
        k: k.start()?,
        v: v.start()?,
        output: DevicePtr::NULL,
    })
}

/// The outputs of a kernel, or `None` if the driver does not support the call.
fn unless_unsupported<T>(done: Result<()>, out: T) -> Result<Option<T>> {
    match done {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        other => other.map(|()| Some(out)),
    }
}
