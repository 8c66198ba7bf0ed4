//! Batch normalisation, channel by channel.

use polygrad_core::{DType, Error, Result, Shape, decompose};

use super::rows::{each_in_row, sum_row};
use super::vectors;
use crate::Pointer;
use crate::simd::{Kernel, Simd};
use crate::{Cpu, CpuTensor};

/// Approximate nanoseconds per element.
const NS: f32 = 0.6;

/// Shorter planes are left to the decomposition, since a kernel call for each would cost more than it saves.
const SHORT: usize = 8;

/// `x [N, C, …]` as `count` planes of `n` elements for each of the channels.
#[derive(Clone, Copy)]
struct Planes {
    batch: usize,
    channels: usize,
    n: usize,
}

impl Planes {
    fn new(op: &'static str, x: &CpuTensor) -> Result<Self> {
        if x.shape().rank() < 2 {
            return Err(Error::shape(format!("takes [N, C, …], got {}", x.shape())).with_op(op));
        }
        let n = x.shape()[2..].iter().product();
        Ok(Self {
            batch: x.shape()[0],
            channels: x.shape()[1],
            n,
        })
    }

    /// A tensor with one number per channel, made contiguous.
    fn of_channels(&self, op: &'static str, x: Option<&CpuTensor>) -> Result<Option<CpuTensor>> {
        match x {
            None => Ok(None),
            Some(x) if x.shape().dims() == [self.channels] => x.contiguous().map(Some),
            Some(x) => Err(Error::shape(format!(
                "takes a number for each of {} channels, got {}",
                self.channels,
                x.shape()
            ))
            .with_op(op)),
        }
    }

    fn count(&self) -> f64 {
        (self.batch * self.n) as f64
    }
}

/// The number of a channel in an optional tensor, or `absent` without the tensor.
fn number(x: Option<&CpuTensor>, channel: usize, absent: f32) -> Result<f32> {
    x.map_or(Ok(absent), |x| Ok(x.slice::<f32>()?[channel]))
}

/// See [`polygrad_core::Backend::batch_norm`].
pub(crate) fn batch_norm(
    x: &CpuTensor,
    weight: Option<&CpuTensor>,
    bias: Option<&CpuTensor>,
    eps: f64,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let op = "batch_norm";
    let planes = Planes::new(op, x)?;
    if vectors([x].into_iter().chain(weight).chain(bias)).is_none() || planes.n < SHORT || planes.batch == 0 {
        return decompose::batch_norm::<Cpu>(x, weight, bias, eps);
    }
    let (x, device) = (x.contiguous()?, x.device());
    let (weight, bias) = (planes.of_channels(op, weight)?, planes.of_channels(op, bias)?);
    let shape = Shape::from([planes.channels]);
    let mut y = CpuTensor::empty(*x.shape(), DType::F32, device)?;
    let mut mean = CpuTensor::empty(shape, DType::F32, device)?;
    let mut var = CpuTensor::empty(shape, DType::F32, device)?;
    let from = Pointer(x.ptr().cast_mut().cast::<f32>());
    let [to, mean_to, var_to] = [&mut y, &mut mean, &mut var].map(|x| Pointer(x.ptr_mut().cast::<f32>()));
    let factors: Vec<(f32, f32)> = (0..planes.channels)
        .map(|c| Ok((number(weight.as_ref(), c, 1.0)?, number(bias.as_ref(), c, 0.0)?)))
        .collect::<Result<_>>()?;
    device.each(planes.channels, NS * planes.count() as f32, |channel| {
        let at = channel * planes.n;
        let (weight, bias) = factors[channel];
        let (mean, var) = device.level().run(Forward {
            x: from.at(at),
            y: to.at(at),
            planes,
            weight,
            bias,
            eps,
        });
        // SAFETY: there is a place for each channel.
        unsafe {
            mean_to.at(channel).write(mean);
            var_to.at(channel).write(var);
        }
    });
    Ok((y, mean, var))
}

struct Forward {
    x: *const f32,
    y: *mut f32,
    planes: Planes,
    weight: f32,
    bias: f32,
    eps: f64,
}

impl Kernel for Forward {
    type Out = (f32, f32);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32) {
        let Planes { batch, channels, n } = self.planes;
        let step = channels * n;
        // SAFETY: the planes are inside input and output, which have one shape.
        unsafe {
            let mut total = 0.0;
            for i in 0..batch {
                let x = self.x.add(i * step);
                total += sum_row!(s, n, |load, store| load(x));
            }
            let mean = total / self.planes.count();
            let m = s.splat(mean as f32);
            let mut squares = 0.0;
            for i in 0..batch {
                let x = self.x.add(i * step);
                squares += sum_row!(s, n, |load, store| {
                    let d = s.sub(load(x), m);
                    s.mul(d, d)
                });
            }
            let var = squares / self.planes.count();
            let scale = s.splat((f64::from(self.weight) / (var + self.eps).sqrt()) as f32);
            let shift = s.splat(self.bias);
            for i in 0..batch {
                let (x, y) = (self.x.add(i * step), self.y.add(i * step));
                each_in_row!(s, n, |load, store| store(y, s.mul_add(s.sub(load(x), m), scale, shift)));
            }
            (mean as f32, var as f32)
        }
    }
}

/// See [`polygrad_core::Backend::batch_norm_backward`].
pub(crate) fn batch_norm_backward(
    grad: &CpuTensor,
    x: &CpuTensor,
    mean: &CpuTensor,
    var: &CpuTensor,
    weight: Option<&CpuTensor>,
    eps: f64,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let op = "batch_norm_backward";
    let planes = Planes::new(op, x)?;
    let fits = vectors([grad, x, mean, var].into_iter().chain(weight)).is_some();
    if !fits || planes.n < SHORT || planes.batch == 0 {
        return decompose::batch_norm_backward::<Cpu>(grad, x, mean, var, weight, eps);
    }
    if grad.shape() != x.shape() {
        return Err(Error::shape(format!("a gradient of shape {} for {}", grad.shape(), x.shape())).with_op(op));
    }
    let (grad, x, device) = (grad.contiguous()?, x.contiguous()?, x.device());
    let [mean, var, weight] = [Some(mean), Some(var), weight].map(|x| planes.of_channels(op, x));
    let (mean, var, weight) = (mean?, var?, weight?);
    let shape = Shape::from([planes.channels]);
    let mut grad_x = CpuTensor::empty(*x.shape(), DType::F32, device)?;
    let mut grad_weight = CpuTensor::empty(shape, DType::F32, device)?;
    let mut grad_bias = CpuTensor::empty(shape, DType::F32, device)?;
    let [g, from] = [&grad, &x].map(|x| Pointer(x.ptr().cast_mut().cast::<f32>()));
    let [to, weight_to, bias_to] =
        [&mut grad_x, &mut grad_weight, &mut grad_bias].map(|x| Pointer(x.ptr_mut().cast::<f32>()));
    let factors: Vec<[f32; 3]> = (0..planes.channels)
        .map(|c| {
            Ok([
                number(mean.as_ref(), c, 0.0)?,
                (1.0 / (f64::from(number(var.as_ref(), c, 0.0)?) + eps).sqrt()) as f32,
                number(weight.as_ref(), c, 1.0)?,
            ])
        })
        .collect::<Result<_>>()?;
    device.each(planes.channels, 2.0 * NS * planes.count() as f32, |channel| {
        let at = channel * planes.n;
        let [mean, rstd, weight] = factors[channel];
        let task = Backward {
            g: g.at(at),
            x: from.at(at),
            to: to.at(at),
            planes,
            mean,
            rstd,
            weight,
        };
        let (grad_weight, grad_bias) = device.level().run(task);
        // SAFETY: there is a place for each channel.
        unsafe {
            weight_to.at(channel).write(grad_weight);
            bias_to.at(channel).write(grad_bias);
        }
    });
    Ok((grad_x, grad_weight, grad_bias))
}

struct Backward {
    g: *const f32,
    x: *const f32,
    to: *mut f32,
    planes: Planes,
    mean: f32,
    rstd: f32,
    weight: f32,
}

impl Kernel for Backward {
    type Out = (f32, f32);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32) {
        let Planes { batch, channels, n } = self.planes;
        let step = channels * n;
        let (mean, rstd) = (s.splat(self.mean), s.splat(self.rstd));
        // SAFETY: the planes are inside all three, which have one shape.
        unsafe {
            let (mut plain, mut along) = (0.0, 0.0);
            for i in 0..batch {
                let (g, x) = (self.g.add(i * step), self.x.add(i * step));
                plain += sum_row!(s, n, |load, store| load(g));
                along += sum_row!(s, n, |load, store| s.mul(load(g), s.mul(s.sub(load(x), mean), rstd)));
            }
            let count = self.planes.count();
            let (mean_plain, mean_along) = (s.splat((plain / count) as f32), s.splat((-along / count) as f32));
            let scale = s.splat(self.weight * self.rstd);
            for i in 0..batch {
                let (g, x, to) = (self.g.add(i * step), self.x.add(i * step), self.to.add(i * step));
                each_in_row!(s, n, |load, store| {
                    let normal = s.mul(s.sub(load(x), mean), rstd);
                    store(
                        to,
                        s.mul(s.mul_add(normal, mean_along, s.sub(load(g), mean_plain)), scale),
                    );
                });
            }
            (along as f32, plain as f32)
        }
    }
}
