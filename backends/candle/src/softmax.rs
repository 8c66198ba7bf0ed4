//! Softmax and cross entropy, line by line.

use polygrad_core::{CrossEntropyParams, Error, Result, Shape, decompose, room};

use crate::engine::filled;
use crate::reduce::is_nan;
use crate::values::{Real, Wide, floats};
use crate::{Candle, CandleTensor};

/// Whether lines along an axis are in host memory, with the axis last.
pub(crate) fn is_own(x: &CandleTensor, axis: usize) -> bool {
    let shape = x.shape();
    x.device().is_cpu() && axis + 1 == shape.rank() && shape.numel() > 0
}

pub(crate) fn softmax(x: &CandleTensor, axis: usize) -> Result<CandleTensor> {
    fn of<T: Real>(x: &CandleTensor) -> Result<CandleTensor> {
        lines(
            "softmax",
            x,
            x,
            |line: &[T], _: &[T], out: &mut Vec<T>, scratch: &mut Vec<T::Wide>| {
                let total = exponentials(line, largest(line), scratch);
                let scale = <T::Wide>::of(1.0) / total;
                out.extend(scratch.iter().map(|&weight| T::narrow(weight * scale)));
            },
        )
    }
    if !is_own(x, axis) {
        return decompose::softmax::<Candle>(x, axis);
    }
    floats!("softmax", x.dtype(), T => of::<T>(x))
}

pub(crate) fn softmax_backward(grad: &CandleTensor, output: &CandleTensor, axis: usize) -> Result<CandleTensor> {
    fn of<T: Real>(grad: &CandleTensor, output: &CandleTensor) -> Result<CandleTensor> {
        lines(
            "softmax_backward",
            grad,
            output,
            |grad: &[T], output: &[T], out: &mut Vec<T>, _| {
                let pairs = || {
                    grad.iter()
                        .zip(output)
                        .map(|(grad, output)| (grad.widen(), output.widen()))
                };
                let total = sum(pairs().map(|(grad, output)| grad * output));
                out.extend(pairs().map(|(grad, output)| T::narrow(output * (grad - total))));
            },
        )
    }
    if !is_own(grad, axis) {
        return decompose::softmax_backward::<Candle>(grad, output, axis);
    }
    floats!("softmax_backward", grad.dtype(), T => of::<T>(grad, output))
}

pub(crate) fn log_softmax(x: &CandleTensor, axis: usize) -> Result<CandleTensor> {
    fn of<T: Real>(x: &CandleTensor) -> Result<CandleTensor> {
        lines(
            "log_softmax",
            x,
            x,
            |line: &[T], _: &[T], out: &mut Vec<T>, scratch: &mut Vec<T::Wide>| {
                let top = largest(line);
                let log = <T::Wide>::of(exponentials(line, top, scratch).to_f64().ln());
                out.extend(line.iter().map(|x| T::narrow(x.widen() - top - log)));
            },
        )
    }
    if !is_own(x, axis) {
        return decompose::log_softmax::<Candle>(x, axis);
    }
    floats!("log_softmax", x.dtype(), T => of::<T>(x))
}

pub(crate) fn log_softmax_backward(grad: &CandleTensor, output: &CandleTensor, axis: usize) -> Result<CandleTensor> {
    fn of<T: Real>(grad: &CandleTensor, output: &CandleTensor) -> Result<CandleTensor> {
        lines(
            "log_softmax_backward",
            grad,
            output,
            |grad: &[T], output: &[T], out: &mut Vec<T>, _| {
                let total = sum(grad.iter().map(|grad| grad.widen()));
                let pairs = grad.iter().zip(output);
                out.extend(pairs.map(|(grad, output)| T::narrow(grad.widen() - output.widen().exp() * total)));
            },
        )
    }
    if !is_own(grad, axis) {
        return decompose::log_softmax_backward::<Candle>(grad, output, axis);
    }
    floats!("log_softmax_backward", grad.dtype(), T => of::<T>(grad, output))
}

/// Computes a line of the same length from each pair of lines along the last axis.
fn lines<T: Real>(
    op: &'static str,
    a: &CandleTensor,
    b: &CandleTensor,
    f: impl Fn(&[T], &[T], &mut Vec<T>, &mut Vec<T::Wide>),
) -> Result<CandleTensor> {
    let shape = a.shape();
    let dim = shape[shape.rank() - 1];
    let (held_a, held_b) = (a.held(op)?, b.held(op)?);
    let (left, right) = (held_a.values::<T>()?, held_b.values::<T>()?);
    let (mut out, mut scratch) = (room(shape.numel())?, room(dim)?);
    for (a, b) in left.chunks_exact(dim).zip(right.chunks_exact(dim)) {
        f(a, b, &mut out, &mut scratch);
    }
    CandleTensor::of(shape, out, &a.device())
}

/// The largest element, or NaN if there is one.
fn largest<T: Real>(line: &[T]) -> T::Wide {
    let start = <T::Wide>::of(f64::NEG_INFINITY);
    line.iter()
        .map(|x| x.widen())
        .fold(start, |best, x| if x > best || is_nan(x) { x } else { best })
}

/// `e^(x - top)` for each element, and their sum.
fn exponentials<T: Real>(line: &[T], top: T::Wide, out: &mut Vec<T::Wide>) -> T::Wide {
    out.clear();
    out.extend(line.iter().map(|x| (x.widen() - top).exp()));
    sum(out.iter().copied())
}

/// Sums in f64, for accuracy over long lines.
fn sum<W: Wide>(terms: impl Iterator<Item = W>) -> W {
    W::of(terms.map(W::to_f64).sum())
}

/// The class of a target, checked, or `None` if the target is ignored.
fn class(target: i64, classes: usize, params: &CrossEntropyParams) -> Result<Option<usize>> {
    if target == params.ignore_index {
        return Ok(None);
    }
    let class = usize::try_from(target).ok().filter(|&class| class < classes);
    class
        .map(Some)
        .ok_or_else(|| Error::out_of_range(format!("class {target} is outside 0..{classes}")).with_op("cross_entropy"))
}

pub(crate) fn cross_entropy(
    logits: &CandleTensor,
    target: &CandleTensor,
    params: &CrossEntropyParams,
) -> Result<(CandleTensor, CandleTensor)> {
    fn of<T: Real>(
        logits: &CandleTensor,
        target: &CandleTensor,
        params: &CrossEntropyParams,
    ) -> Result<(CandleTensor, CandleTensor)> {
        let op = "cross_entropy";
        let (rows, classes) = (logits.shape()[0], logits.shape()[1]);
        let (held, held_target) = (logits.held(op)?, target.held(op)?);
        let (values, targets) = (held.values::<T>()?, held_target.values::<i64>()?);
        let (mut losses, mut logs, mut scratch) = (room(rows)?, room(rows)?, room(classes)?);
        let smoothing = params.label_smoothing;
        for (line, &target) in values.chunks_exact(classes).zip(targets.iter()) {
            let top = largest(line);
            let log = top.to_f64() + exponentials(line, top, &mut scratch).to_f64().ln();
            let loss = match class(target, classes, params)? {
                None => 0.0,
                Some(class) if smoothing == 0.0 => log - line[class].to_f64(),
                Some(class) => {
                    let even = log - line.iter().map(|x| x.to_f64()).sum::<f64>() / classes as f64;
                    (1.0 - smoothing) * (log - line[class].to_f64()) + smoothing * even
                }
            };
            losses.push(T::from_f64(loss));
            logs.push(T::from_f64(log));
        }
        let (shape, device) = (Shape::from([rows]), logits.device());
        Ok((
            CandleTensor::of(shape, losses, &device)?,
            CandleTensor::of(shape, logs, &device)?,
        ))
    }
    if params.mean || !is_own(logits, 1) {
        return decompose::cross_entropy::<Candle>(logits, target, params);
    }
    floats!("cross_entropy", logits.dtype(), T => of::<T>(logits, target, params))
}

pub(crate) fn cross_entropy_backward(
    grad: &CandleTensor,
    logits: &CandleTensor,
    target: &CandleTensor,
    logsumexp: &CandleTensor,
    params: &CrossEntropyParams,
) -> Result<CandleTensor> {
    fn of<T: Real>(given: [&CandleTensor; 4], params: &CrossEntropyParams) -> Result<CandleTensor> {
        let op = "cross_entropy_backward";
        let [grad, logits, target, logsumexp] = given;
        let (shape, classes) = (logits.shape(), logits.shape()[1]);
        let (held, held_grad, held_target, held_logs) =
            (logits.held(op)?, grad.held(op)?, target.held(op)?, logsumexp.held(op)?);
        let (values, grads) = (held.values::<T>()?, held_grad.values::<T>()?);
        let (targets, logs) = (held_target.values::<i64>()?, held_logs.values::<T>()?);
        let even = <T::Wide>::of(params.label_smoothing / classes as f64);
        let rest = <T::Wide>::of(1.0 - params.label_smoothing);
        let mut out = filled(shape.numel(), T::from_f64(0.0))?;
        let rows = values.chunks_exact(classes).zip(out.chunks_exact_mut(classes));
        for ((line, out), (&target, (grad, log))) in rows.zip(targets.iter().zip(grads.iter().zip(logs.iter()))) {
            let Some(class) = class(target, classes, params)? else {
                continue;
            };
            let (grad, log) = (grad.widen(), log.widen());
            for (out, x) in out.iter_mut().zip(line) {
                *out = T::narrow(((x.widen() - log).exp() - even) * grad);
            }
            let probability = (line[class].widen() - log).exp();
            out[class] = T::narrow((probability - even - rest) * grad);
        }
        CandleTensor::of(shape, out, &logits.device())
    }
    if params.mean || !is_own(logits, 1) {
        return decompose::cross_entropy_backward::<Candle>(grad, logits, target, logsumexp, params);
    }
    floats!("cross_entropy_backward", logits.dtype(), T => of::<T>([grad, logits, target, logsumexp], params))
}
