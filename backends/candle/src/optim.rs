//! Updates, in place if the memory is not shared.

use polygrad_core::{AdamParams, BinaryOp, Result, SgdParams, decompose};

use crate::values::{Real, Wide, change, floats};
use crate::{Candle, CandleTensor, binary};

/// The tensor itself if its memory is not shared, else a copy.
fn own(op: &'static str, x: &mut CandleTensor) -> Result<CandleTensor> {
    if x.is_mine() {
        return Ok(x.clone());
    }
    let (n, dtype) = (x.shape().numel(), x.dtype());
    CandleTensor::made(op, n, dtype, || x.raw().force_contiguous())
}

pub(crate) fn accumulate_grad(mut acc: CandleTensor, grad: &CandleTensor) -> Result<CandleTensor> {
    fn add<T: Real>(acc: &CandleTensor, grad: &CandleTensor) -> Result<()> {
        let held = grad.held("accumulate_grad")?;
        let grad = held.values::<T>()?;
        change("accumulate_grad", acc, |acc: &mut [T]| {
            for (acc, &grad) in acc.iter_mut().zip(grad.iter()) {
                *acc = T::narrow(acc.widen() + grad.widen());
            }
        })
    }
    let dtype = acc.dtype();
    if !dtype.is_float() || !acc.device().is_cpu() || !acc.is_mine() {
        return binary::binary(BinaryOp::Add, &acc, grad);
    }
    floats!("accumulate_grad", dtype, T => add::<T>(&acc, grad))?;
    Ok(acc)
}

pub(crate) fn sgd_step(
    param: &mut CandleTensor,
    grad: &CandleTensor,
    momentum: Option<&mut CandleTensor>,
    params: &SgdParams,
) -> Result<()> {
    if !param.device().is_cpu() {
        return decompose::sgd_step::<Candle>(param, grad, momentum, params);
    }
    let new = own("sgd_step", param)?;
    let buffer = match momentum {
        None => None,
        Some(buffer) => Some((own("sgd_step", buffer)?, buffer)),
    };
    floats!("sgd_step", param.dtype(), T => sgd::<T>(&new, grad, buffer.as_ref().map(|(new, _)| new), params))?;
    *param = new;
    if let Some((new, buffer)) = buffer {
        *buffer = new;
    }
    Ok(())
}

fn sgd<T: Real>(
    param: &CandleTensor,
    grad: &CandleTensor,
    momentum: Option<&CandleTensor>,
    by: &SgdParams,
) -> Result<()> {
    let op = "sgd_step";
    let held = grad.held(op)?;
    let grad = held.values::<T>()?;
    let of = <T::Wide as Wide>::of;
    let (lr, decay, keep, take) = (of(by.lr), of(by.weight_decay), of(by.momentum), of(1.0 - by.dampening));
    let Some(buffer) = momentum else {
        return change(op, param, |param: &mut [T]| {
            for (param, &grad) in param.iter_mut().zip(grad.iter()) {
                let value = param.widen();
                *param = T::narrow(value - lr * (grad.widen() + decay * value));
            }
        });
    };
    change(op, param, |param: &mut [T]| {
        change(op, buffer, |buffer: &mut [T]| {
            for ((param, buffer), &grad) in param.iter_mut().zip(buffer).zip(grad.iter()) {
                let value = param.widen();
                let grad = grad.widen() + decay * value;
                let moved = if by.first {
                    grad
                } else {
                    keep * buffer.widen() + take * grad
                };
                *buffer = T::narrow(moved);
                let direction = if by.nesterov { grad + keep * moved } else { moved };
                *param = T::narrow(value - lr * direction);
            }
        })
    })?
}

pub(crate) fn adam_step(
    param: &mut CandleTensor,
    grad: &CandleTensor,
    first: &mut CandleTensor,
    second: &mut CandleTensor,
    max_second: Option<&mut CandleTensor>,
    params: &AdamParams,
) -> Result<()> {
    if !param.device().is_cpu() {
        return decompose::adam_step::<Candle>(param, grad, first, second, max_second, params);
    }
    let op = "adam_step";
    let new = [own(op, param)?, own(op, first)?, own(op, second)?];
    let largest = match max_second {
        None => None,
        Some(largest) => Some((own(op, largest)?, largest)),
    };
    floats!(op, param.dtype(), T => adam::<T>(&new, grad, largest.as_ref().map(|(new, _)| new), params))?;
    [*param, *first, *second] = new;
    if let Some((new, largest)) = largest {
        *largest = new;
    }
    Ok(())
}

fn adam<T: Real>(
    [param, first, second]: &[CandleTensor; 3],
    grad: &CandleTensor,
    largest: Option<&CandleTensor>,
    by: &AdamParams,
) -> Result<()> {
    let op = "adam_step";
    let held = grad.held(op)?;
    let grad = held.values::<T>()?;
    let of = <T::Wide as Wide>::of;
    let step = by.step as f64;
    let rate = of(by.lr / (1.0 - by.beta1.powf(step)));
    let correction = of(1.0 / (1.0 - by.beta2.powf(step)).sqrt());
    let (decay, kept) = if by.decoupled {
        (of(0.0), of(1.0 - by.lr * by.weight_decay))
    } else {
        (of(by.weight_decay), of(1.0))
    };
    let (beta1, rest1, beta2, rest2, eps) = (
        of(by.beta1),
        of(1.0 - by.beta1),
        of(by.beta2),
        of(1.0 - by.beta2),
        of(by.eps),
    );
    // One pass over all: each element's new moments and parameter. `root` has AMSGrad's largest second moments, if any.
    let pass = |param: &mut [T], first: &mut [T], second: &mut [T], mut root: Option<&mut [T]>| {
        // Known equal lengths save the loop its bounds checks.
        let n = param.len();
        let (first, second, grad) = (&mut first[..n], &mut second[..n], &grad[..n]);
        for i in 0..n {
            let value = param[i].widen();
            let grad = grad[i].widen() + decay * value;
            let moment = beta1 * first[i].widen() + rest1 * grad;
            let square = beta2 * second[i].widen() + rest2 * (grad * grad);
            first[i] = T::narrow(moment);
            second[i] = T::narrow(square);
            let square = match &mut root {
                None => square,
                Some(largest) => {
                    let before = largest[i].widen();
                    let largest_now = if before > square || crate::reduce::is_nan(before) {
                        before
                    } else {
                        square
                    };
                    largest[i] = T::narrow(largest_now);
                    largest_now
                }
            };
            param[i] = T::narrow(kept * value - rate * (moment / (square.sqrt() * correction + eps)));
        }
    };
    change(op, param, |param: &mut [T]| {
        change(op, first, |first: &mut [T]| {
            change(op, second, |second: &mut [T]| match largest {
                None => {
                    pass(param, first, second, None);
                    Ok(())
                }
                Some(largest) => change(op, largest, |largest: &mut [T]| {
                    pass(param, first, second, Some(largest))
                }),
            })
        })
    })???
}
