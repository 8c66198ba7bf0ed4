//! Activation functions and their gradients in one pass, for all float dtypes.

use polygrad_core::{Activation, DType, Result, UnaryOp, decompose};

use crate::loops::Pointer;
use crate::math::{self, Map};
use crate::ops::half::Half;
use crate::ops::{convert, floats, unary};
use crate::{Cpu, CpuTensor};

/// Nanoseconds an element, about.
const COST: f32 = 0.6;

/// See [`polygrad_core::Backend::activation`].
pub(crate) fn activation(op: Activation, x: &CpuTensor) -> Result<CpuTensor> {
    floats(op.name(), x.dtype())?;
    match op {
        Activation::Relu => unary::unary(UnaryOp::Relu, x),
        Activation::Tanh => unary::unary(UnaryOp::Tanh, x),
        Activation::Sigmoid => unary::unary(UnaryOp::Sigmoid, x),
        Activation::Gelu => forward(math::Gelu, x),
        Activation::GeluTanh => forward(math::GeluTanh, x),
        Activation::Silu => forward(math::Silu, x),
        Activation::Softplus { beta, threshold } => forward(math::Softplus { beta, threshold }, x),
        Activation::Elu { alpha } => forward(math::Elu(alpha), x),
        other => decompose::activation::<Cpu>(other, x),
    }
}

/// See [`polygrad_core::Backend::activation_backward`].
pub(crate) fn activation_backward(op: Activation, grad: &CpuTensor, saved: &CpuTensor) -> Result<CpuTensor> {
    floats(op.name(), grad.dtype())?;
    match op {
        Activation::Tanh => backward(math::TanhSlope, grad, saved),
        Activation::Sigmoid => backward(math::SigmoidSlope, grad, saved),
        Activation::Gelu => backward(math::GeluSlope, grad, saved),
        Activation::GeluTanh => backward(math::GeluTanhSlope, grad, saved),
        Activation::Silu => backward(math::SiluSlope, grad, saved),
        Activation::Softplus { beta, threshold } => {
            backward(math::SoftplusSlope(math::Softplus { beta, threshold }), grad, saved)
        }
        Activation::Elu { alpha } => backward(math::EluSlope(alpha), grad, saved),
        other => decompose::activation_backward::<Cpu>(other, grad, saved),
    }
}

fn forward<F: Map>(f: F, x: &CpuTensor) -> Result<CpuTensor> {
    if Half::of(x.dtype()).is_some() {
        return convert::cast(&forward(f, &convert::cast(x, DType::F32)?)?, x.dtype());
    }
    let x = x.contiguous()?;
    let (device, level, dtype) = (x.device(), x.device().vectors(), x.dtype());
    let mut out = CpuTensor::empty(*x.shape(), dtype, device)?;
    let (from, to) = (Pointer(x.ptr().cast_mut()), Pointer(out.ptr_mut()));
    device.split(x.numel(), COST, 16, |start, end| {
        let (from, to) = (from.at(start * dtype.size()), to.at(start * dtype.size()));
        // SAFETY: both tensors have these elements, of this dtype; the output is new and each range is written once.
        unsafe {
            if dtype == DType::F32 {
                math::map(level, f, from.cast(), to.cast(), end - start);
            } else {
                let (from, to) = (from.cast::<f64>(), to.cast::<f64>());
                (0..end - start).for_each(|i| to.add(i).write(f.reference(*from.add(i))));
            }
        }
    });
    Ok(out)
}

fn backward<F: Map>(slope: F, grad: &CpuTensor, saved: &CpuTensor) -> Result<CpuTensor> {
    let dtype = grad.dtype();
    if Half::of(dtype).is_some() {
        let (grad, saved) = (convert::cast(grad, DType::F32)?, convert::cast(saved, DType::F32)?);
        return convert::cast(&backward(slope, &grad, &saved)?, dtype);
    }
    let (grad, saved) = (grad.contiguous()?, saved.contiguous()?);
    let (device, level) = (grad.device(), grad.device().vectors());
    let mut out = CpuTensor::empty(*grad.shape(), dtype, device)?;
    let to = Pointer(out.ptr_mut());
    let [g, x] = [&grad, &saved].map(|x| Pointer(x.ptr().cast_mut()));
    device.split(grad.numel(), COST, 16, |start, end| {
        let [g, x, to] = [g, x, to].map(|p| p.at(start * dtype.size()));
        // SAFETY: all tensors have these elements, of this dtype; the output is new and each range is written once.
        unsafe {
            if dtype == DType::F32 {
                math::map_mul(level, slope, x.cast(), g.cast(), to.cast(), end - start);
            } else {
                let (g, x, to) = (g.cast::<f64>(), x.cast::<f64>(), to.cast::<f64>());
                (0..end - start).for_each(|i| to.add(i).write(slope.reference(*x.add(i)) * *g.add(i)));
            }
        }
    });
    Ok(out)
}
