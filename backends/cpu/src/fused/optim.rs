//! Optimizer steps in one pass, in place.
//!
//! Source: the algorithms in PyTorch's documentation of SGD, Adam and AdamW.

use polygrad_core::{AdamParams, Error, Result, SgdParams, decompose};

use super::vectors;
use crate::Pointer;
use crate::simd::{Kernel, Level, Simd};
use crate::{Cpu, CpuTensor};

/// Approximate nanoseconds per element.
const NS: f32 = 0.6;

fn check_shapes<'a>(
    op: &'static str,
    param: &CpuTensor,
    others: impl IntoIterator<Item = &'a CpuTensor>,
) -> Result<()> {
    for x in others {
        if x.shape() != param.shape() {
            return Err(Error::shape(format!(
                "a gradient or state of shape {} for {}",
                x.shape(),
                param.shape()
            ))
            .with_op(op));
        }
    }
    Ok(())
}

/// See [`polygrad_core::Backend::sgd_step`].
pub(crate) fn sgd_step(
    param: &mut CpuTensor,
    grad: &CpuTensor,
    mut momentum: Option<&mut CpuTensor>,
    params: &SgdParams,
) -> Result<()> {
    let Some(level) = vectors([&*param, grad].into_iter().chain(momentum.as_deref())) else {
        return decompose::sgd_step::<Cpu>(param, grad, momentum, params);
    };
    check_shapes("sgd_step", param, [grad].into_iter().chain(momentum.as_deref()))?;
    let grad = grad.contiguous()?;
    param.make_writable()?;
    if let Some(buffer) = momentum.as_deref_mut() {
        buffer.make_writable()?;
    }
    let (device, n) = (param.device(), param.numel());
    let p = Pointer(param.ptr_mut().cast::<f32>());
    let g = Pointer(grad.ptr().cast_mut().cast::<f32>());
    let plain = momentum.is_none();
    let m = Pointer(momentum.map_or(std::ptr::null_mut(), |m| m.ptr_mut().cast::<f32>()));
    device.split(n, NS, 64, |start, end| {
        let step = Sgd {
            p: p.at(start),
            g: g.at(start),
            m: m.at(start),
            n: end - start,
            params,
        };
        if plain {
            Level::run_loops(Some(level), PlainSgd(step));
        } else {
            Level::run_loops(Some(level), step);
        }
    });
    Ok(())
}

struct Sgd<'a> {
    p: *mut f32,
    g: *const f32,
    m: *mut f32,
    n: usize,
    params: &'a SgdParams,
}

/// Without momentum.
struct PlainSgd<'a>(Sgd<'a>);

impl Kernel for PlainSgd<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Sgd { p, g, n, params, .. } = self.0;
        let (lr, decay) = (params.lr as f32, params.weight_decay as f32);
        for i in 0..n {
            // SAFETY: `sgd_step` guarantees that the pointers are valid.
            unsafe {
                let x = p.add(i).read();
                p.add(i).write(x - lr * (g.add(i).read() + decay * x));
            }
        }
    }
}

impl Kernel for Sgd<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { p, g, m, n, params } = self;
        let (lr, decay, keep) = (params.lr as f32, params.weight_decay as f32, params.momentum as f32);
        // In the first step the buffer is set to the gradient.
        let (old, new) = if params.first {
            (0.0, 1.0)
        } else {
            (keep, (1.0 - params.dampening) as f32)
        };
        for i in 0..n {
            // SAFETY: `sgd_step` guarantees that the pointers are valid.
            unsafe {
                let x = p.add(i).read();
                let grad = g.add(i).read() + decay * x;
                let before = if params.first { 0.0 } else { m.add(i).read() };
                let buffer = old * before + new * grad;
                m.add(i).write(buffer);
                let direction = if params.nesterov { grad + keep * buffer } else { buffer };
                p.add(i).write(x - lr * direction);
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
    let all = [&*param, grad, &*first, &*second];
    let Some(level) = vectors(all.into_iter().chain(max_second.as_deref())) else {
        return decompose::adam_step::<Cpu>(param, grad, first, second, max_second, params);
    };
    check_shapes(
        "adam_step",
        param,
        [grad, &*first, &*second].into_iter().chain(max_second.as_deref()),
    )?;
    let grad = grad.contiguous()?;
    for x in [&mut *param, &mut *first, &mut *second]
        .into_iter()
        .chain(max_second.as_deref_mut())
    {
        x.make_writable()?;
    }
    let (device, n) = (param.device(), param.numel());
    let [p, m, v] = [param, first, second].map(|x| Pointer(x.ptr_mut().cast::<f32>()));
    let g = Pointer(grad.ptr().cast_mut().cast::<f32>());
    let plain = max_second.is_none();
    let most = Pointer(max_second.map_or(std::ptr::null_mut(), |x| x.ptr_mut().cast::<f32>()));
    device.split(n, NS, 64, |start, end| {
        let step = Adam {
            p: p.at(start),
            g: g.at(start),
            m: m.at(start),
            v: v.at(start),
            most: most.at(start),
            n: end - start,
            params,
        };
        if plain {
            Level::run_loops(Some(level), PlainAdam(step));
        } else {
            Level::run_loops(Some(level), step);
        }
    });
    Ok(())
}

struct Adam<'a> {
    p: *mut f32,
    g: *const f32,
    m: *mut f32,
    v: *mut f32,
    most: *mut f32,
    n: usize,
    params: &'a AdamParams,
}

/// Adam without AMSGrad's largest second moments.
struct PlainAdam<'a>(Adam<'a>);

impl Adam<'_> {
    #[inline(always)]
    fn steps<const LARGEST: bool>(self) {
        let Self {
            p,
            g,
            m,
            v,
            most,
            n,
            params,
        } = self;
        let step = params.step as f64;
        let correction1 = 1.0 - params.beta1.powf(step);
        let correction2 = 1.0 - params.beta2.powf(step);
        let (beta1, beta2) = (params.beta1 as f32, params.beta2 as f32);
        let (fresh1, fresh2) = ((1.0 - params.beta1) as f32, (1.0 - params.beta2) as f32);
        let rate = (params.lr / correction1) as f32;
        let (root_scale, eps) = ((1.0 / correction2.sqrt()) as f32, params.eps as f32);
        // AdamW shrinks the parameter; Adam adds the decay to the gradient.
        let (shrink, decay) = if params.decoupled {
            ((1.0 - params.lr * params.weight_decay) as f32, 0.0)
        } else {
            (1.0, params.weight_decay as f32)
        };
        for i in 0..n {
            // SAFETY: `adam_step` guarantees that the pointers are valid.
            unsafe {
                let x = p.add(i).read();
                let grad = g.add(i).read() + decay * x;
                let first = beta1 * m.add(i).read() + fresh1 * grad;
                let second = beta2 * v.add(i).read() + fresh2 * (grad * grad);
                m.add(i).write(first);
                v.add(i).write(second);
                let mut large = second;
                if LARGEST {
                    let before = most.add(i).read();
                    large = if before > second || before.is_nan() {
                        before
                    } else {
                        second
                    };
                    most.add(i).write(large);
                }
                let root = large.sqrt() * root_scale + eps;
                p.add(i).write(x * shrink - rate * (first / root));
            }
        }
    }
}

impl Kernel for PlainAdam<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.0.steps::<false>();
    }
}

impl Kernel for Adam<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.steps::<true>();
    }
}
