//! All steps of an LSTM for training, and their gradient: each step is a product and one pass over the cells.

use std::sync::OnceLock;

use polygrad_core::{DType, Error, Result, Shape, decompose};

use crate::Pointer;
use crate::gemm::{Dims, Mat, MatMut, Prepacked, Update, cost, gemm};
use crate::math::{Map, Sigmoid, Tanh};
use crate::simd::{Kernel, Level, Simd};
use crate::{Cpu, CpuDevice, CpuTensor};

/// Approximate nanoseconds for the cell of one hidden unit.
const NS: f32 = 4.0;

/// The fewest rows that a thread takes through the steps: enough for products of them to be computed like those of all
/// rows.
const LEAST: usize = 8;

/// Steps for which the input's share of the gates is computed at a time: few enough that it is still in the cache when
/// each step uses it.
const TOGETHER: usize = 8;

/// Extents of a layer.
#[derive(Clone, Copy)]
struct Extents {
    steps: usize,
    rows: usize,
    width: usize,
}

impl Extents {
    /// The extents for steps `[T, N, …]` with a cell state `[N, H]` and weights `[4H, H]`, or `None` if they do not
    /// match.
    fn of(x: &CpuTensor, cell: &CpuTensor, weight: &CpuTensor) -> Result<Self> {
        if let (&[steps, rows, _], &[own, width]) = (x.shape().dims(), cell.shape().dims())
            && own == rows
            && weight.shape().dims() == [4 * width, width]
            && steps > 0
        {
            return Ok(Self { steps, rows, width });
        }
        Err(misfit(&[x, cell, weight]))
    }

    /// Steps in the order of computation.
    fn order(self, reverse: bool) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.steps).map(move |i| if reverse { self.steps - 1 - i } else { i })
    }

    /// Calls `task(first, rows)` for each part of the rows, one thread per part. Rows do not depend on each other, so a
    /// part goes through all `steps` steps without waiting for the others.
    fn each_part(
        self,
        device: CpuDevice,
        steps: usize,
        task: impl Fn(usize, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let Self { rows, width, .. } = self;
        let parts = (rows / LEAST).clamp(1, device.threads());
        let first = |part: usize| part * rows / parts;
        let product = Dims {
            m: rows,
            n: 4 * width,
            k: width,
        };
        let ns = (cost(product, device.level()) + NS * (rows * width) as f32) * steps as f32;
        let failed = OnceLock::new();
        device.each(parts, ns / parts as f32, |part| {
            if let Err(error) = task(first(part), first(part + 1) - first(part)) {
                let _ = failed.set(error);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn empty(self, parts: usize, device: CpuDevice) -> Result<CpuTensor> {
        let shape = Shape::new(&[self.steps, self.rows, parts * self.width])?;
        CpuTensor::empty(shape, DType::F32, device)
    }
}

fn misfit(operands: &[&CpuTensor]) -> Error {
    let form = "takes steps [T, N, …], T at least 1, states [N, H], weights [4H, …] and [4H, H], and a bias [4H]";
    Error::shape(form).with_operands(operands.iter().map(|x| (*x.shape(), x.dtype())))
}

/// The instruction set, if there is a kernel for these operands.
fn kernel(operands: &[&CpuTensor]) -> Option<Level> {
    let fits = operands.iter().all(|x| x.dtype() == DType::F32);
    operands[0].device().vectors().filter(|_| fits)
}

/// A matrix that is multiplied at every step, packed into panels if the kernels use those.
struct Weight {
    matrix: Mat<f32>,
    packed: Option<Prepacked<f32>>,
}

impl Weight {
    /// # Safety
    /// The matrix has `k` rows and `n` columns.
    unsafe fn new(device: CpuDevice, n: usize, k: usize, matrix: Mat<f32>) -> Result<Self> {
        // SAFETY: passed on.
        let packed = unsafe { Prepacked::new(device, n, k, matrix)? };
        Ok(Self { matrix, packed })
    }

    /// # Safety
    /// As for [`gemm`].
    unsafe fn gemm(
        &self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<f32>,
        c: MatMut<f32>,
        update: Update<f32>,
    ) -> Result<()> {
        // SAFETY: passed on.
        unsafe {
            match &self.packed {
                Some(packed) => packed.gemm(device, dims, a, self.matrix, c, update),
                None => gemm(device, dims, a, self.matrix, c, update),
            }
        }
    }
}

fn as_matrix(x: &CpuTensor) -> Result<Mat<f32>> {
    let layout = x.layout();
    Ok(Mat::new(x.typed()?, layout.strides()[0], layout.strides()[1]))
}

/// See [`polygrad_core::Backend::lstm_steps`].
pub(crate) fn lstm_steps(
    x: &CpuTensor,
    hidden: &CpuTensor,
    cell: &CpuTensor,
    weights: [&CpuTensor; 2],
    bias: Option<&CpuTensor>,
    reverse: bool,
) -> Result<(CpuTensor, CpuTensor)> {
    let operands = [x, hidden, cell, weights[0], weights[1], bias.unwrap_or(x)];
    let Some(level) = kernel(&operands) else {
        return decompose::lstm_steps::<Cpu>(x, hidden, cell, weights, bias, reverse);
    };
    let extents = Extents::of(x, cell, weights[1])?;
    let Extents { rows, width, .. } = extents;
    let inputs = x.shape()[2];
    let fits = hidden.shape() == cell.shape()
        && weights[0].shape().dims() == [4 * width, inputs]
        && bias.is_none_or(|bias| bias.shape().dims() == [4 * width]);
    if !fits {
        return Err(misfit(&operands));
    }
    let device = x.device();
    let mut states = extents.empty(2, device)?;
    let mut activations = extents.empty(4, device)?;
    let (x, hidden, cell) = (x.contiguous()?, hidden.contiguous()?, cell.contiguous()?);
    let bias = bias.map(CpuTensor::contiguous).transpose()?;
    let bias = bias.as_ref().map_or(Ok(std::ptr::null()), CpuTensor::typed::<f32>)?;
    let (to_states, to_activations) = (
        Pointer(states.ptr_mut().cast::<f32>()),
        Pointer(activations.ptr_mut().cast::<f32>()),
    );
    let x = Mat::new(x.typed::<f32>()?, inputs.cast_signed(), 1);
    let [input, own] = [as_matrix(weights[0])?.transposed(), as_matrix(weights[1])?.transposed()];
    let gates = |t: usize| {
        let first = to_activations.at(t * rows * 4 * width);
        MatMut::new(first, (4 * width).cast_signed(), 1)
    };
    let state = |t: usize| {
        let at = |part| {
            MatMut::new(
                to_states.at((2 * t * rows + part) * width),
                (2 * width).cast_signed(),
                1,
            )
        };
        (at(0), at(1))
    };
    // SAFETY: the weight has these rows and columns.
    let packed = unsafe { Weight::new(device, 4 * width, width, own)? };
    let [hidden, cell] = [hidden.typed::<f32>()?, cell.typed::<f32>()?].map(|x| Mat::new(x, width.cast_signed(), 1));
    let order: Vec<usize> = extents.order(reverse).collect();
    for (group, together) in order.chunks(TOGETHER).enumerate() {
        let first = together[0].min(together[together.len() - 1]);
        let dims = Dims {
            m: together.len() * rows,
            n: 4 * width,
            k: inputs,
        };
        let update = Update { bias, ..Update::set() };
        let x = Mat::new(x.at(first * rows, 0), x.rows, x.cols);
        // SAFETY: the input has these rows, the weight and the bias have the shapes of `dims`, and no other task writes
        // to these steps.
        unsafe { gemm(device, dims, x, input, gates(first), update)? };
        extents.each_part(device, together.len(), |first, rows| {
            for (i, &t) in together.iter().enumerate() {
                let (hidden, cell) = match (group * TOGETHER + i).checked_sub(1) {
                    None => (hidden, cell),
                    Some(last) => {
                        let (hidden, cell) = state(order[last]);
                        (hidden.readable(), cell.readable())
                    }
                };
                let (to_hidden, to_cell) = state(t);
                let dims = Dims {
                    m: rows,
                    n: 4 * width,
                    k: width,
                };
                let gates = gates(t);
                let to_gates = MatMut::new(gates.at(first, 0), gates.rows, 1);
                let hidden = Mat::new(hidden.at(first, 0), hidden.rows, 1);
                // SAFETY: the state has these rows, the weight has the shape of `dims`, and these rows of the step
                // belong to this part.
                unsafe { packed.gemm(device, dims, hidden, to_gates, Update::add())? };
                for row in first..first + rows {
                    level.run(Forward {
                        width,
                        before: cell.at(row, 0),
                        activations: gates.at(row, 0),
                        hidden: to_hidden.at(row, 0),
                        cell: to_cell.at(row, 0),
                    });
                }
            }
            Ok(())
        })?;
    }
    Ok((states, activations))
}

/// One row of a step.
struct Forward {
    width: usize,
    /// The cell before the step.
    before: *const f32,
    /// The gates, replaced by their activations.
    activations: *mut f32,
    /// The states after the step.
    hidden: *mut f32,
    cell: *mut f32,
}

impl Kernel for Forward {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.width;
        for at in (0..width).step_by(S::N) {
            let n = S::N.min(width - at);
            // SAFETY: there are `width` elements of each gate and state.
            unsafe {
                let load = |from: *const f32| s.load_part(from, n);
                let store = |to: *mut f32, v| s.store_part(to, n, v);
                let gate = |i: usize| load(self.activations.add(i * width + at));
                let (input, forget) = (Sigmoid.at(s, gate(0)), Sigmoid.at(s, gate(1)));
                let (update, output) = (Tanh.at(s, gate(2)), Sigmoid.at(s, gate(3)));
                for (i, v) in [input, forget, update, output].into_iter().enumerate() {
                    store(self.activations.add(i * width + at), v);
                }
                let cell = s.mul_add(forget, load(self.before.add(at)), s.mul(input, update));
                store(self.hidden.add(at), s.mul(output, Tanh.at(s, cell)));
                store(self.cell.add(at), cell);
            }
        }
    }
}

/// See [`polygrad_core::Backend::lstm_steps_backward`].
pub(crate) fn lstm_steps_backward(
    grad: &CpuTensor,
    cell: &CpuTensor,
    weight_hh: &CpuTensor,
    states: &CpuTensor,
    activations: &CpuTensor,
    reverse: bool,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let Some(level) = kernel(&[grad, cell, weight_hh, states, activations]) else {
        return decompose::lstm_steps_backward::<Cpu>(grad, cell, weight_hh, states, activations, reverse);
    };
    let extents = Extents::of(grad, cell, weight_hh)?;
    let Extents { rows, width, .. } = extents;
    let steps = |parts: usize| [extents.steps, rows, parts * width];
    let fits = [(grad, 2), (states, 2), (activations, 4)]
        .iter()
        .all(|(x, parts)| x.shape().dims() == steps(*parts));
    if !fits {
        return Err(misfit(&[grad, cell, weight_hh, states, activations]));
    }
    let device = grad.device();
    let mut gates = extents.empty(4, device)?;
    let mut grad_hidden = CpuTensor::empty(*cell.shape(), DType::F32, device)?;
    let mut grad_cell = CpuTensor::empty(*cell.shape(), DType::F32, device)?;
    let (grad, cell) = (grad.contiguous()?, cell.contiguous()?);
    let (states, activations) = (states.contiguous()?, activations.contiguous()?);
    let read = |x: &CpuTensor| x.typed::<f32>().map(|from| Pointer(from.cast_mut()));
    let (grad, first, states, activations) = (read(&grad)?, read(&cell)?, read(&states)?, read(&activations)?);
    let (to_gates, to_hidden, to_cell) = (
        Pointer(gates.ptr_mut().cast::<f32>()),
        Pointer(grad_hidden.ptr_mut().cast::<f32>()),
        Pointer(grad_cell.ptr_mut().cast::<f32>()),
    );
    // SAFETY: both have `rows * width` elements; all bits zero are the number 0.
    unsafe {
        std::ptr::write_bytes(to_hidden.0, 0, rows * width);
        std::ptr::write_bytes(to_cell.0, 0, rows * width);
    }
    let weight = as_matrix(weight_hh)?;
    // SAFETY: the weight has these rows and columns.
    let packed = unsafe { Weight::new(device, width, 4 * width, weight)? };
    let order: Vec<usize> = extents.order(reverse).collect();
    extents.each_part(device, extents.steps, |start, part| {
        for (i, &t) in order.iter().enumerate().rev() {
            let state = |t: usize| Pointer(states.at(t * rows * 2 * width));
            let (before, step) = match i.checked_sub(1) {
                None => (first, width),
                Some(last) => (Pointer(state(order[last]).at(width)), 2 * width),
            };
            let (now, grad) = (state(t), Pointer(grad.at(t * rows * 2 * width)));
            let place = t * rows * 4 * width;
            let (gates, activations) = (Pointer(to_gates.at(place)), Pointer(activations.at(place)));
            for row in start..start + part {
                level.run(Backward {
                    width,
                    grad: grad.at(row * 2 * width).cast_const(),
                    before: before.at(row * step).cast_const(),
                    cell: now.at(row * 2 * width + width).cast_const(),
                    activations: activations.at(row * 4 * width).cast_const(),
                    hidden: to_hidden.at(row * width).cast_const(),
                    grad_cell: to_cell.at(row * width),
                    gates: gates.at(row * 4 * width),
                });
            }
            let dims = Dims {
                m: part,
                n: width,
                k: 4 * width,
            };
            let a = Mat::new(gates.at(start * 4 * width).cast_const(), (4 * width).cast_signed(), 1);
            let c = MatMut::new(to_hidden.at(start * width), width.cast_signed(), 1);
            // SAFETY: the gates' gradient has these rows, the weight has the shape of `dims`, and these rows of the
            // hidden state's gradient belong to this part.
            unsafe { packed.gemm(device, dims, a, c, Update::set())? };
        }
        Ok(())
    })?;
    Ok((gates, grad_hidden, grad_cell))
}

/// One row of a step.
struct Backward {
    width: usize,
    /// Gradient of the states after the step, hidden before cell.
    grad: *const f32,
    /// The cell before the step.
    before: *const f32,
    /// The cell after the step.
    cell: *const f32,
    activations: *const f32,
    /// The hidden state's gradient from the following step.
    hidden: *const f32,
    /// The cell's gradient from the following step, replaced by the gradient of the cell before this step.
    grad_cell: *mut f32,
    gates: *mut f32,
}

impl Kernel for Backward {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.width;
        let one = s.splat(1.0);
        for at in (0..width).step_by(S::N) {
            let n = S::N.min(width - at);
            // SAFETY: there are `width` elements of each gate and state.
            unsafe {
                let load = |from: *const f32| s.load_part(from.add(at), n);
                let gate = |i: usize| load(self.activations.wrapping_add(i * width));
                let (input, forget, update, output) = (gate(0), gate(1), gate(2), gate(3));
                // σ' = σ (1 − σ), tanh' = 1 − tanh².
                let sigmoid_slope = |y| s.mul(y, s.sub(one, y));
                let tanh_slope = |y| s.sub(one, s.mul(y, y));
                let squashed = Tanh.at(s, load(self.cell));
                let hidden = s.add(load(self.grad), load(self.hidden));
                let through = s.mul(s.mul(hidden, output), tanh_slope(squashed));
                let later = s.add(load(self.grad.wrapping_add(width)), load(self.grad_cell.cast_const()));
                let cell = s.add(later, through);
                let gradients = [
                    s.mul(s.mul(cell, update), sigmoid_slope(input)),
                    s.mul(s.mul(cell, load(self.before)), sigmoid_slope(forget)),
                    s.mul(s.mul(cell, input), tanh_slope(update)),
                    s.mul(s.mul(hidden, squashed), sigmoid_slope(output)),
                ];
                for (i, v) in gradients.into_iter().enumerate() {
                    s.store_part(self.gates.add(i * width + at), n, v);
                }
                s.store_part(self.grad_cell.add(at), n, s.mul(cell, forget));
            }
        }
    }
}
