//! Activation functions and their gradients, each in one pass.

use polygrad_core::{Activation, DType, Error, Result, UnaryOp, decompose};

use super::half::Half;
use super::{same_dtype, unary};
use crate::Pointer;
use crate::loops::{Each, Fill, Operand, map};
use crate::math::{
    self, Elu, EluSlope, Gelu, GeluSlope, GeluTanh, GeluTanhSlope, HardSwish, HardSwishSlope, Map, SigmoidSlope, Silu,
    SiluSlope, Softplus, SoftplusSlope, TanhSlope,
};
use crate::simd::StorePolicy;
use crate::{Cpu, CpuTensor};

/// Approximate nanoseconds per element.
const NS: f32 = 0.8;

/// See [`polygrad_core::Backend::activation`].
pub(crate) fn activation(op: Activation, x: &CpuTensor) -> Result<CpuTensor> {
    let simple = match op {
        Activation::Relu => Some(UnaryOp::Relu),
        Activation::Tanh => Some(UnaryOp::Tanh),
        Activation::Sigmoid => Some(UnaryOp::Sigmoid),
        _ => None,
    };
    if let Some(op) = simple {
        return unary::unary(op, x);
    }
    if !x.dtype().is_float() {
        return decompose::activation::<Cpu>(op, x);
    }
    match op {
        Activation::Gelu => forward(Gelu, x),
        Activation::GeluTanh => forward(GeluTanh, x),
        Activation::Silu => forward(Silu, x),
        Activation::HardSwish { scale, shift } => forward(HardSwish { scale, shift }, x),
        Activation::Softplus { beta, threshold } => forward(Softplus { beta, threshold }, x),
        Activation::Elu { alpha } => forward(Elu(alpha), x),
        _ => decompose::activation::<Cpu>(op, x),
    }
}

fn forward<F: Map>(f: F, x: &CpuTensor) -> Result<CpuTensor> {
    let (shape, dtype, device) = (*x.shape(), x.dtype(), x.device());
    let mut out = CpuTensor::empty(shape, dtype, device)?;
    let to = out.ptr_mut();
    let policy = device.store_policy(shape.numel() * dtype.size());
    let near = StorePolicy::cached(policy.level());
    let half = Half::of(dtype);
    // SAFETY: input and output have one dtype and one shape, and the output is new.
    unsafe {
        map(
            device,
            &shape,
            [Operand::new(x, &shape)],
            to,
            dtype.size(),
            NS,
            &|[x], to, n| {
                if let Some(half) = half {
                    return half.run(near.level(), [x], to, n, |[x], to, n| {
                        math::map(near, f, x.cast(), to.cast(), n);
                    });
                }
                if dtype == DType::F32 {
                    return math::map(policy, f, x.cast(), to.cast(), n);
                }
                let (x, to) = (x.cast::<f64>(), to.cast::<f64>());
                (0..n).for_each(|i| to.add(i).write(f.reference(x.add(i).read())));
            },
        );
    }
    Ok(out)
}

/// See [`polygrad_core::Backend::activation_backward`].
pub(crate) fn activation_backward(op: Activation, grad: &CpuTensor, saved: &CpuTensor) -> Result<CpuTensor> {
    let dtype = same_dtype("activation_backward", grad, saved)?;
    if !dtype.is_float() {
        return decompose::activation_backward::<Cpu>(op, grad, saved);
    }
    if grad.shape() != saved.shape() {
        return Err(
            Error::shape(format!("a gradient of shape {} for {}", grad.shape(), saved.shape()))
                .with_op("activation_backward"),
        );
    }
    let vectors = dtype != DType::F64 && saved.device().vectors().is_some();
    match (op, vectors) {
        (Activation::Relu, true) => gated(grad, saved, 0.0),
        (Activation::LeakyRelu { slope }, true) => gated(grad, saved, slope as f32),
        (Activation::Tanh, _) => backward(TanhSlope, grad, saved),
        (Activation::Sigmoid, _) => backward(SigmoidSlope, grad, saved),
        (Activation::Gelu, _) => backward(GeluSlope, grad, saved),
        (Activation::GeluTanh, _) => backward(GeluTanhSlope, grad, saved),
        (Activation::Silu, _) => backward(SiluSlope, grad, saved),
        (Activation::HardSwish { scale, shift }, _) => {
            backward(HardSwishSlope(HardSwish { scale, shift }), grad, saved)
        }
        (Activation::Softplus { beta, threshold }, _) => {
            backward(SoftplusSlope(Softplus { beta, threshold }), grad, saved)
        }
        (Activation::Elu { alpha }, _) => backward(EluSlope(alpha), grad, saved),
        _ => decompose::activation_backward::<Cpu>(op, grad, saved),
    }
}

/// The gradient times a function of the saved tensor.
fn backward<F: Map>(slope: F, grad: &CpuTensor, saved: &CpuTensor) -> Result<CpuTensor> {
    let (shape, dtype, device) = (*grad.shape(), grad.dtype(), grad.device());
    let mut out = CpuTensor::empty(shape, dtype, device)?;
    let to = out.ptr_mut();
    let policy = device.store_policy(shape.numel() * dtype.size());
    let near = StorePolicy::cached(policy.level());
    let half = Half::of(dtype);
    let operands = [Operand::new(saved, &shape), Operand::new(grad, &shape)];
    // SAFETY: inputs and output have one dtype and one shape, and the output is new.
    unsafe {
        map(device, &shape, operands, to, dtype.size(), NS, &|[x, g], to, n| {
            if let Some(half) = half {
                return half.run(near.level(), [x, g], to, n, |[x, g], to, n| {
                    math::map_mul(near, slope, x.cast(), g.cast(), to.cast(), n);
                });
            }
            if dtype == DType::F32 {
                return math::map_mul(policy, slope, x.cast(), g.cast(), to.cast(), n);
            }
            let (x, g, to) = (x.cast::<f64>(), g.cast::<f64>(), to.cast::<f64>());
            (0..n).for_each(|i| to.add(i).write(slope.reference(x.add(i).read()) * g.add(i).read()));
        });
    }
    Ok(out)
}

/// The gradient if the saved tensor is positive, else the gradient times `slope`.
fn gated(grad: &CpuTensor, saved: &CpuTensor, slope: f32) -> Result<CpuTensor> {
    let shape = *grad.shape();
    let (device, numel) = (grad.device(), shape.numel());
    let mut out = CpuTensor::empty(shape, grad.dtype(), device)?;
    let to = out.ptr_mut();
    let policy = device.store_policy(numel * grad.dtype().size());
    let half = Half::of(grad.dtype());
    if half.is_none() && grad.is_contiguous() && saved.is_contiguous() {
        let [g, x] = [grad, saved].map(|x| Pointer(x.ptr().cast_mut().cast::<f32>()));
        let to = Pointer(to.cast::<f32>());
        device.split(numel, 0.15, 64, |start, end| {
            let (g, x) = (g.at(start).cast_const(), x.at(start).cast_const());
            policy.run_loops(Fill {
                each: Gated { g, x, slope },
                to: to.at(start),
                n: end - start,
            });
        });
        return Ok(out);
    }
    let operands = [Operand::new(saved, &shape), Operand::new(grad, &shape)];
    let gate = |policy: StorePolicy, [x, g]: [*const u8; 2], to: *mut u8, n| {
        let (g, x, to) = (g.cast(), x.cast(), to.cast());
        let each = Gated { g, x, slope };
        policy.run_loops(Fill { each, to, n });
    };
    let near = StorePolicy::cached(policy.level());
    // SAFETY: inputs and output have one dtype, f32 or a 16-bit float, and one shape, and the output is new.
    unsafe {
        match half {
            None => map(device, &shape, operands, to, 4, 0.2, &|xg, to, n| {
                gate(policy, xg, to, n)
            }),
            Some(half) => map(device, &shape, operands, to, 2, 0.6, &|xg, to, n| {
                half.run(near.level(), xg, to, n, |xg, to, n| gate(near, xg, to, n));
            }),
        }
    }
    Ok(out)
}

struct Gated {
    g: *const f32,
    x: *const f32,
    slope: f32,
}

impl Each for Gated {
    type T = f32;

    #[inline(always)]
    unsafe fn at(&self, i: usize) -> f32 {
        // SAFETY: by the caller.
        let (g, x) = unsafe { (self.g.add(i).read(), self.x.add(i).read()) };
        let zero = self.slope == 0.0;
        // Relu is written as "not <= 0", so that the gradient of a NaN is passed on. A blocked infinity becomes 0.
        let blocked = if zero { 0.0 } else { g * self.slope };
        let open = x > 0.0 || (zero && x.is_nan());
        if open { g } else { blocked }
    }
}
