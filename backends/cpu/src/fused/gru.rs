//! A GRU layer over a whole sequence, computed like an LSTM layer: the input's part of all gates is one product. Each
//! step takes the state's part and one pass for the cell, or two if the reset gate is applied before the product.

use polygrad_core::{BinaryOp, Result, Shape, decompose};

use super::{state_after, vectors};
use crate::Pointer;
use crate::gemm::{self, Dims, Mat, MatMut, Prepacked, Update};
use crate::math::{Map, Sigmoid, Tanh};
use crate::ops::{binary, matmul};
use crate::simd::{Kernel, Simd};
use crate::{Cpu, CpuTensor};

/// Approximate nanoseconds for the cell of one hidden unit.
const NS: f32 = 3.0;

/// See [`polygrad_core::Backend::gru`].
pub(crate) fn gru(
    x: &CpuTensor,
    hidden: &CpuTensor,
    weights: [&CpuTensor; 2],
    biases: Option<[&CpuTensor; 2]>,
    reset_after: bool,
    reverse: bool,
) -> Result<(CpuTensor, CpuTensor)> {
    let operands = [x, hidden, weights[0], weights[1]];
    let (shape, state) = (*x.shape(), *hidden.shape());
    let form = shape.rank() == 3 && shape[0] > 0 && state.rank() == 2 && state[0] == shape[1];
    let form = form && weights[1].shape()[..] == [3 * state[1], state[1]] && weights[0].shape()[0] == 3 * state[1];
    let Some(level) = vectors(operands.into_iter().chain(biases.into_iter().flatten())).filter(|_| form) else {
        return decompose::gru::<Cpu>(x, hidden, weights, biases, reset_after, reverse);
    };
    let ([steps, rows, _], size) = ([shape[0], shape[1], shape[2]], state[1]);
    let device = x.device();
    // If the reset gate is applied before the product, both biases of a gate are added to the same sum.
    let input_bias = match (biases, reset_after) {
        (Some([input, own]), false) => Some(binary::binary(BinaryOp::Add, input, own)?),
        (Some([input, _]), true) => Some(input.clone()),
        (None, _) => None,
    };
    let own_bias = match (biases, reset_after) {
        (Some([_, own]), true) => Some(own.contiguous()?),
        _ => None,
    };
    let mut gates = matmul::linear(x, weights[0], input_bias.as_ref(), None)?;
    let mut outputs = CpuTensor::empty(Shape::from([steps, rows, size]), x.dtype(), device)?;
    let width = if reset_after { 3 * size } else { size };
    let mut scratch = CpuTensor::empty(Shape::from([rows, width]), x.dtype(), device)?;
    let first = hidden.contiguous()?;
    gates.make_writable()?;
    let gates_at = Pointer(gates.ptr_mut().cast::<f32>());
    let outputs_at = Pointer(outputs.ptr_mut().cast::<f32>());
    let scratch_at = Pointer(scratch.ptr_mut().cast::<f32>());
    let mut before = Pointer(first.typed::<f32>()?.cast_mut());
    let layout = weights[1].layout();
    let own = Mat::new(weights[1].typed::<f32>()?, layout.strides()[0], layout.strides()[1]).transposed();
    let row = |n: usize| n.cast_signed();
    for i in 0..steps {
        let step = if reverse { steps - 1 - i } else { i };
        let gates = Pointer(gates_at.at(step * rows * 3 * size));
        let to = Pointer(outputs_at.at(step * rows * size));
        let cell = |at: usize, stage: Stage| Cell {
            gates: gates.at(at * 3 * size).cast_const(),
            scratch: scratch_at.at(at * width),
            before: before.at(at * size).cast_const(),
            after: to.at(at * size),
            size,
            stage,
        };
        let pass = |stage: Stage| {
            device.split(rows, NS * size as f32, 1, |start, end| {
                (start..end).for_each(|at| level.run(cell(at, stage)));
            });
        };
        let state = Mat::new(before.0.cast_const(), row(size), 1);
        let dims = |n: usize| Dims { m: rows, n, k: size };
        // SAFETY: the state and the scratch have `rows` rows, the weight has the columns that are used, and no other
        // task accesses the gates of this step, the output and the scratch.
        unsafe {
            if reset_after {
                let update = Update {
                    bias: match &own_bias {
                        Some(bias) => bias.typed::<f32>()?,
                        None => std::ptr::null(),
                    },
                    ..Update::set()
                };
                let c = MatMut::new(scratch_at.0, row(3 * size), 1);
                match weights[1].packed::<Prepacked<f32>>() {
                    Some(packed) => packed.gemm(device, dims(3 * size), state, own, c, update)?,
                    None => gemm::gemm(device, dims(3 * size), state, own, c, update)?,
                }
                pass(Stage::ResetAfter);
            } else {
                let c = MatMut::new(gates.0, row(3 * size), 1);
                gemm::gemm(device, dims(2 * size), state, own, c, Update::add())?;
                pass(Stage::Reset);
                let kept = Mat::new(scratch_at.0.cast_const(), row(size), 1);
                let new = Mat::new(own.at(0, 2 * size), own.rows, own.cols);
                let c = MatMut::new(gates.at(2 * size), row(3 * size), 1);
                gemm::gemm(device, dims(size), kept, new, c, Update::add())?;
                pass(Stage::New);
            }
        }
        before = to;
    }
    let hidden = state_after(if reverse { 0 } else { steps - 1 }, &outputs)?;
    Ok((outputs, hidden))
}

/// One kind of pass over a row.
#[derive(Clone, Copy)]
enum Stage {
    /// The whole cell, from the input's gates and from the state's gates in the scratch.
    ResetAfter,
    /// Writes the reset state to the scratch.
    Reset,
    /// The next state from the sums of all gates.
    New,
}

/// One row; the gates are in the order reset, update, new.
struct Cell {
    gates: *const f32,
    scratch: *mut f32,
    before: *const f32,
    after: *mut f32,
    size: usize,
    stage: Stage,
}

impl Kernel for Cell {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            gates,
            scratch,
            before,
            after,
            size,
            stage,
        } = self;
        for at in (0..size).step_by(S::N) {
            let n = S::N.min(size - at);
            // SAFETY: three gates, the scratch (three times, if it holds the state's gates) and both states have `size`
            // elements each.
            unsafe {
                let gate = |i: usize| s.load_part(gates.add(i * size + at), n);
                let own = |i: usize| s.load_part(scratch.cast_const().add(i * size + at), n);
                let old = s.load_part(before.add(at), n);
                let (update, new) = match stage {
                    Stage::Reset => {
                        s.store_part(scratch.add(at), n, s.mul(Sigmoid.at(s, gate(0)), old));
                        continue;
                    }
                    Stage::New => (gate(1), gate(2)),
                    Stage::ResetAfter => {
                        let reset = Sigmoid.at(s, s.add(gate(0), own(0)));
                        (s.add(gate(1), own(1)), s.add(gate(2), s.mul(reset, own(2))))
                    }
                };
                let (update, new) = (Sigmoid.at(s, update), Tanh.at(s, new));
                s.store_part(after.add(at), n, s.add(new, s.mul(update, s.sub(old, new))));
            }
        }
    }
}
