//! Cross entropy against class indices, row by row.

mod small;

use polygrad_core::{CrossEntropyParams, DType, Error, Result, Scalar, Shape, decompose};

use super::rows::{each_in_row, max_row, sum_row};
use super::vectors;
use crate::Pointer;
use crate::math::exp_nonpositive;
use crate::ops::create;
use crate::simd::{Kernel, Simd};
use crate::{Cpu, CpuTensor};

/// Rows, classes and the checked targets.
struct Task {
    rows: usize,
    classes: usize,
    target: CpuTensor,
    params: CrossEntropyParams,
}

impl Task {
    fn new(op: &'static str, logits: &CpuTensor, target: &CpuTensor, params: &CrossEntropyParams) -> Result<Self> {
        if logits.shape().rank() != 2 || target.shape().dims() != &logits.shape()[..1] || target.dtype() != DType::I64 {
            return Err(Error::shape("takes logits [N, C] and i64 class indices [N]")
                .with_op(op)
                .with_operands([(*logits.shape(), logits.dtype()), (*target.shape(), target.dtype())]));
        }
        let target = target.contiguous()?;
        let classes = logits.shape()[1];
        for (row, &class) in target.slice::<i64>()?.iter().enumerate() {
            if class != params.ignore_index && !usize::try_from(class).is_ok_and(|class| class < classes) {
                return Err(
                    Error::out_of_range(format!("target {class} of row {row} is none of {classes} classes"))
                        .with_op(op),
                );
            }
        }
        Ok(Self {
            rows: logits.shape()[0],
            classes,
            target,
            params: *params,
        })
    }

    /// Whether these kernels support the task.
    fn is_here<'a>(&self, operands: impl IntoIterator<Item = &'a CpuTensor>) -> bool {
        vectors(operands).is_some() && self.classes > 0
    }

    /// Number of rows that are not ignored.
    fn counted(&self) -> Result<usize> {
        let classes = self.target.slice::<i64>()?;
        Ok(classes
            .iter()
            .filter(|&&class| class != self.params.ignore_index)
            .count())
    }
}

/// See [`polygrad_core::Backend::cross_entropy`].
pub(crate) fn cross_entropy(
    logits: &CpuTensor,
    target: &CpuTensor,
    params: &CrossEntropyParams,
) -> Result<(CpuTensor, CpuTensor)> {
    let task = Task::new("cross_entropy", logits, target, params)?;
    if !task.is_here([logits]) {
        return decompose::cross_entropy::<Cpu>(logits, target, params);
    }
    let (device, n) = (logits.device(), task.classes);
    let logits = logits.contiguous()?;
    let shape = Shape::from([task.rows]);
    let mut losses = CpuTensor::empty(shape, DType::F32, device)?;
    let mut logsumexp = CpuTensor::empty(shape, DType::F32, device)?;
    let x = Pointer(logits.ptr().cast_mut().cast::<f32>());
    let [loss, lse] = [&mut losses, &mut logsumexp].map(|x| Pointer(x.ptr_mut().cast::<f32>()));
    let classes = task.target.slice::<i64>()?;
    device.split(task.rows, n as f32 * 0.5 + 20.0, 1, |start, end| {
        device.level().run(Forward {
            x: x.at(start * n),
            loss: loss.at(start),
            lse: lse.at(start),
            classes: &classes[start..end],
            n,
            params,
        });
    });
    if params.mean {
        let mean = total(losses.slice::<f32>()?) / task.counted()? as f64;
        losses = create::full(Shape::SCALAR, Scalar::Float(mean), DType::F32, device)?;
    }
    Ok((losses, logsumexp))
}

/// The sum, in an order that depends only on the length.
fn total(losses: &[f32]) -> f64 {
    let blocks = losses.chunks_exact(8);
    let rest: f64 = blocks.remainder().iter().copied().map(f64::from).sum();
    let mut lanes = [0.0; 8];
    for block in blocks {
        for (lane, &loss) in lanes.iter_mut().zip(block) {
            *lane += f64::from(loss);
        }
    }
    lanes.iter().sum::<f64>() + rest
}

struct Forward<'a> {
    x: *const f32,
    loss: *mut f32,
    lse: *mut f32,
    classes: &'a [i64],
    n: usize,
    params: &'a CrossEntropyParams,
}

impl Kernel for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { n, params, .. } = self;
        if (1..=small::MAX_CLASSES).contains(&n) {
            // SAFETY: as below.
            return unsafe { small::forward(s, &self) };
        }
        for (row, &class) in self.classes.iter().enumerate() {
            let x = self.x.wrapping_add(row * n);
            // SAFETY: the row is inside the logits, the class inside the row, and the results have
            // one place for each row.
            unsafe {
                let most = max_row(s, x, n);
                let top = s.splat(most);
                let total = sum_row!(s, n, |load, store| exp_nonpositive(s, s.sub(load(x), top)));
                let lse = f64::from(most) + total.ln();
                self.lse.add(row).write(lse as f32);
                let mut loss = 0.0;
                if class != params.ignore_index {
                    loss = lse - f64::from(x.add(class as usize).read());
                    if params.label_smoothing > 0.0 {
                        let mean = sum_row!(s, n, |load, store| load(x)) / n as f64;
                        loss = (1.0 - params.label_smoothing) * loss + params.label_smoothing * (lse - mean);
                    }
                }
                self.loss.add(row).write(loss as f32);
            }
        }
    }
}

/// See [`polygrad_core::Backend::cross_entropy_backward`].
pub(crate) fn cross_entropy_backward(
    grad: &CpuTensor,
    logits: &CpuTensor,
    target: &CpuTensor,
    logsumexp: &CpuTensor,
    params: &CrossEntropyParams,
) -> Result<CpuTensor> {
    let task = Task::new("cross_entropy_backward", logits, target, params)?;
    if !task.is_here([grad, logits, logsumexp]) {
        return decompose::cross_entropy_backward::<Cpu>(grad, logits, target, logsumexp, params);
    }
    let rows = Shape::from([task.rows]);
    let loss = if params.mean { Shape::SCALAR } else { rows };
    if *grad.shape() != loss || *logsumexp.shape() != rows {
        return Err(Error::shape(format!("takes a gradient {loss} and a logsumexp {rows}"))
            .with_op("cross_entropy_backward")
            .with_operands([grad, logsumexp].map(|x| (*x.shape(), x.dtype()))));
    }
    if params.mean {
        let each = grad.slice::<f32>()?[0] / task.counted()? as f32;
        return backward(&task, &raw const each, 0, logits, logsumexp);
    }
    // The gradient of a summed loss is one number for all rows.
    let grad_step = usize::from(grad.layout().strides()[0] != 0);
    let grad = if grad_step == 0 {
        grad.clone()
    } else {
        grad.contiguous()?
    };
    backward(&task, grad.typed::<f32>()?, grad_step, logits, logsumexp)
}

/// The rows' gradients in `grads` are `grad_step` apart: 0 if all rows share one number.
fn backward(
    task: &Task,
    grads: *const f32,
    grad_step: usize,
    logits: &CpuTensor,
    logsumexp: &CpuTensor,
) -> Result<CpuTensor> {
    let (device, n) = (logits.device(), task.classes);
    let (logits, logsumexp) = (logits.contiguous()?, logsumexp.contiguous()?);
    let mut out = CpuTensor::empty(*logits.shape(), DType::F32, device)?;
    let (x, to) = (
        Pointer(logits.ptr().cast_mut().cast::<f32>()),
        Pointer(out.ptr_mut().cast::<f32>()),
    );
    let (grads, lse) = (Pointer(grads.cast_mut()), logsumexp.slice::<f32>()?);
    let classes = task.target.slice::<i64>()?;
    device.split(task.rows, n as f32 * 0.5 + 10.0, 1, |start, end| {
        device.level().run(Backward {
            x: x.at(start * n),
            to: to.at(start * n),
            grads: grads.at(start * grad_step),
            grad_step,
            lse: &lse[start..end],
            classes: &classes[start..end],
            n,
            params: &task.params,
        });
    });
    Ok(out)
}

struct Backward<'a> {
    x: *const f32,
    to: *mut f32,
    grads: *const f32,
    /// Elements from one row's gradient to the next one's.
    grad_step: usize,
    lse: &'a [f32],
    classes: &'a [i64],
    n: usize,
    params: &'a CrossEntropyParams,
}

impl Backward<'_> {
    /// A row's gradient.
    #[inline(always)]
    fn grad(&self, row: usize) -> f32 {
        // SAFETY: there is one for each row.
        unsafe { self.grads.add(row * self.grad_step).read() }
    }
}

impl Kernel for Backward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { n, params, .. } = self;
        if (1..=small::MAX_CLASSES).contains(&n) {
            // SAFETY: as below.
            return unsafe { small::backward(s, &self) };
        }
        let even = s.splat((params.label_smoothing / n as f64) as f32);
        for (row, &class) in self.classes.iter().enumerate() {
            let (x, to) = (self.x.wrapping_add(row * n), self.to.wrapping_add(row * n));
            // SAFETY: the row is inside logits and output, and the class inside the row.
            unsafe {
                if class == params.ignore_index {
                    std::ptr::write_bytes(to, 0, n);
                    continue;
                }
                let grad = self.grad(row);
                let (scale, lse) = (s.splat(grad), s.splat(self.lse[row]));
                each_in_row!(s, n, |load, store| {
                    // A rounding error may put an element just above the logsumexp.
                    let p = exp_nonpositive(s, s.sub(load(x), lse));
                    store(to, s.mul(s.sub(p, even), scale));
                });
                let place = to.add(class as usize);
                place.write(place.read() - grad * (1.0 - params.label_smoothing) as f32);
            }
        }
    }
}
