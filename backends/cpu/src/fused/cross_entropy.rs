//! Cross entropy against class indices, and its gradient, row by row.

use polygrad_core::{CrossEntropyParams, DType, Error, Result, Shape, decompose};

use super::rows::{dot, exp_shifted, largest};
use super::vectors;
use crate::loops::Pointer;
use crate::simd::Level;
use crate::{Cpu, CpuTensor};

/// Nanoseconds an element, about.
const COST: f32 = 0.8;

/// The level, rows and classes, if this module handles the tensors; fails where a class is out of range.
fn plan(
    floats: &[&CpuTensor],
    logits: &CpuTensor,
    target: &CpuTensor,
    params: &CrossEntropyParams,
) -> Result<Option<(Level, usize, usize)>> {
    let fits = target.dtype() == DType::I64 && target.is_contiguous() && logits.shape().rank() == 2;
    let (Some(level), true) = (vectors(floats), fits && logits.numel() > 0) else {
        return Ok(None);
    };
    let (rows, classes) = (logits.shape()[0], logits.shape()[1]);
    for (row, &class) in target.slice::<i64>()?.iter().enumerate() {
        if class != params.ignore_index && !usize::try_from(class).is_ok_and(|class| class < classes) {
            return Err(
                Error::out_of_range(format!("target {class} of row {row} is none of {classes} classes"))
                    .with_op("cross_entropy"),
            );
        }
    }
    Ok(Some((level, rows, classes)))
}

/// See [`polygrad_core::Backend::cross_entropy`].
pub(crate) fn cross_entropy(
    logits: &CpuTensor,
    target: &CpuTensor,
    params: &CrossEntropyParams,
) -> Result<(CpuTensor, CpuTensor)> {
    let Some((level, rows, classes)) = plan(&[logits], logits, target, params)? else {
        return decompose::cross_entropy::<Cpu>(logits, target, params);
    };
    let device = logits.device();
    let mut losses = CpuTensor::empty(Shape::from([rows]), DType::F32, device)?;
    let mut logsumexp = CpuTensor::empty(Shape::from([rows]), DType::F32, device)?;
    let to = [&mut losses, &mut logsumexp].map(|x| Pointer(x.ptr_mut().cast::<f32>()));
    let x = Pointer(logits.ptr().cast::<f32>().cast_mut());
    let target = target.slice::<i64>()?;
    let smoothing = params.label_smoothing as f32;
    device.each(rows, classes as f32 * COST, |row| {
        let x = x.at(row * classes).cast_const();
        // SAFETY: a row of `classes` logits; each output element is written once; the class was checked.
        unsafe {
            let top = largest(level, x, classes);
            let total = top + exp_shifted(level, x, top, std::ptr::null_mut(), classes).ln();
            to[1].at(row).write(total);
            let loss = if target[row] == params.ignore_index {
                0.0
            } else {
                let hard = total - *x.add(target[row] as usize);
                if smoothing == 0.0 {
                    hard
                } else {
                    let even = total - dot(level, x, std::ptr::null(), classes) / classes as f32;
                    (1.0 - smoothing) * hard + smoothing * even
                }
            };
            to[0].at(row).write(loss);
        }
    });
    Ok((losses, logsumexp))
}

/// See [`polygrad_core::Backend::cross_entropy_backward`].
pub(crate) fn cross_entropy_backward(
    grad: &CpuTensor,
    logits: &CpuTensor,
    target: &CpuTensor,
    logsumexp: &CpuTensor,
    params: &CrossEntropyParams,
) -> Result<CpuTensor> {
    // The gradient of a mean is one number, expanded.
    let grad = &grad.contiguous()?;
    let Some((level, rows, classes)) = plan(&[logits, grad, logsumexp], logits, target, params)? else {
        return decompose::cross_entropy_backward::<Cpu>(grad, logits, target, logsumexp, params);
    };
    let device = logits.device();
    let mut out = CpuTensor::empty(*logits.shape(), DType::F32, device)?;
    let to = Pointer(out.ptr_mut().cast::<f32>());
    let x = Pointer(logits.ptr().cast::<f32>().cast_mut());
    let (grad, logsumexp) = (grad.slice::<f32>()?, logsumexp.slice::<f32>()?);
    let target = target.slice::<i64>()?;
    let even = (params.label_smoothing / classes as f64) as f32;
    let hard = (1.0 - params.label_smoothing) as f32;
    device.each(rows, classes as f32 * COST, |row| {
        let to = to.at(row * classes);
        // SAFETY: a row of `classes` logits; each row of the output is written once; the class was checked.
        unsafe {
            if target[row] == params.ignore_index {
                (0..classes).for_each(|i| to.add(i).write(0.0));
                return;
            }
            exp_shifted(level, x.at(row * classes), logsumexp[row], to, classes);
            (0..classes).for_each(|i| *to.add(i) = (*to.add(i) - even) * grad[row]);
            *to.add(target[row] as usize) -= hard * grad[row];
        }
    });
    Ok(out)
}
