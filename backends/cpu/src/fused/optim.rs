//! Optimizer steps in one pass, in place.

use polygrad_core::{AdamParams, Result, SgdParams, decompose};

use super::vectors;
use crate::loops::Pointer;
use crate::simd::{Kernel, Simd};
use crate::{Cpu, CpuTensor};

/// Nanoseconds an element, about.
const COST: f32 = 0.6;

/// See [`polygrad_core::Backend::sgd_step`].
pub(crate) fn sgd_step(
    param: &mut CpuTensor,
    grad: &CpuTensor,
    mut momentum: Option<&mut CpuTensor>,
    params: &SgdParams,
) -> Result<()> {
    let grad = grad.contiguous()?;
    let buffer = momentum.as_deref();
    let fits = vectors(&[&*param, &grad, buffer.unwrap_or(&*param)]).is_some();
    if !fits || grad.shape() != param.shape() || buffer.is_some_and(|b| b.shape() != param.shape()) {
        return decompose::sgd_step::<Cpu>(param, &grad, momentum, params);
    }
    param.make_writable()?;
    let buffer = match &mut momentum {
        Some(buffer) => {
            buffer.make_writable()?;
            Pointer(buffer.ptr_mut().cast::<f32>())
        }
        None => Pointer(std::ptr::null_mut()),
    };
    let device = param.device();
    let (to, from) = (
        Pointer(param.ptr_mut().cast::<f32>()),
        Pointer(grad.ptr().cast::<f32>().cast_mut()),
    );
    device.split(grad.numel(), COST, 16, |start, end| {
        let buffer = if buffer.0.is_null() { buffer.0 } else { buffer.at(start) };
        let step = Sgd {
            param: to.at(start),
            grad: from.at(start),
            buffer,
            n: end - start,
            params,
        };
        crate::Level::run_loops(device.vectors(), step);
    });
    Ok(())
}

struct Sgd<'a> {
    param: *mut f32,
    grad: *const f32,
    /// Null without momentum.
    buffer: *mut f32,
    n: usize,
    params: &'a SgdParams,
}

impl Kernel for Sgd<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let p = self.params;
        let (lr, decay, momentum) = (p.lr as f32, p.weight_decay as f32, p.momentum as f32);
        let fresh = if p.first { 1.0 } else { (1.0 - p.dampening) as f32 };
        for i in 0..self.n {
            // SAFETY: `i < n`; the caller holds the parameter and the buffer alone.
            unsafe {
                let param = self.param.add(i);
                let grad = *self.grad.add(i) + decay * *param;
                if self.buffer.is_null() {
                    *param -= lr * grad;
                    continue;
                }
                let buffer = self.buffer.add(i);
                let old = if p.first { 0.0 } else { momentum * *buffer };
                *buffer = old + fresh * grad;
                let direction = if p.nesterov { grad + momentum * *buffer } else { *buffer };
                *param -= lr * direction;
            }
        }
    }
}

/// See [`polygrad_core::Backend::adam_step`].
pub(crate) fn adam_step(
    param: &mut CpuTensor,
    grad: &CpuTensor,
    first: &mut CpuTensor,
    second: &mut CpuTensor,
    mut max_second: Option<&mut CpuTensor>,
    params: &AdamParams,
) -> Result<()> {
    let grad = grad.contiguous()?;
    let fits = {
        let all = [
            &*param,
            &grad,
            &*first,
            &*second,
            max_second.as_deref().unwrap_or(&*second),
        ];
        vectors(&all).is_some() && all.iter().all(|x| x.shape() == param.shape())
    };
    if !fits {
        return decompose::adam_step::<Cpu>(param, &grad, first, second, max_second, params);
    }
    for tensor in [&mut *param, &mut *first, &mut *second]
        .into_iter()
        .chain(max_second.as_deref_mut())
    {
        tensor.make_writable()?;
    }
    let device = param.device();
    let from = Pointer(grad.ptr().cast::<f32>().cast_mut());
    let [param, first, second] = [param, first, second].map(|x| Pointer(x.ptr_mut().cast::<f32>()));
    let largest = Pointer(max_second.map_or(std::ptr::null_mut(), |x| x.ptr_mut().cast::<f32>()));
    device.split(grad.numel(), COST, 16, |start, end| {
        let step = Adam {
            param: param.at(start),
            grad: from.at(start),
            first: first.at(start),
            second: second.at(start),
            largest: if largest.0.is_null() {
                largest.0
            } else {
                largest.at(start)
            },
            n: end - start,
            params,
        };
        crate::Level::run_loops(device.vectors(), step);
    });
    Ok(())
}

struct Adam<'a> {
    param: *mut f32,
    grad: *const f32,
    first: *mut f32,
    second: *mut f32,
    /// Null without AMSGrad.
    largest: *mut f32,
    n: usize,
    params: &'a AdamParams,
}

impl Kernel for Adam<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let p = self.params;
        let step = p.step as f64;
        let (beta1, beta2) = (p.beta1 as f32, p.beta2 as f32);
        let (new1, new2) = ((1.0 - p.beta1) as f32, (1.0 - p.beta2) as f32);
        let rate = (p.lr / (1.0 - p.beta1.powf(step))) as f32;
        let root_scale = (1.0 / (1.0 - p.beta2.powf(step)).sqrt()) as f32;
        let eps = p.eps as f32;
        let keep = if p.decoupled {
            (1.0 - p.lr * p.weight_decay) as f32
        } else {
            1.0
        };
        let decay = if p.decoupled { 0.0 } else { p.weight_decay as f32 };
        for i in 0..self.n {
            // SAFETY: `i < n`; the caller holds the parameter and the moments alone.
            unsafe {
                let param = self.param.add(i);
                let kept = *param * keep;
                let grad = *self.grad.add(i) + decay * kept;
                let (first, second) = (self.first.add(i), self.second.add(i));
                *first = beta1 * *first + new1 * grad;
                *second = beta2 * *second + new2 * grad * grad;
                let mut largest = *second;
                if !self.largest.is_null() {
                    let place = self.largest.add(i);
                    largest = if *place > largest { *place } else { largest };
                    *place = largest;
                }
                *param = kept - rate * *first / (largest.sqrt() * root_scale + eps);
            }
        }
    }
}
