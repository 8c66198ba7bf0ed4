//! An LSTM layer over a whole sequence: the input's part of all gates is one product. Each step adds the state's part
//! and applies the cell in one pass.

use polygrad_core::{Result, Shape, decompose};

use super::{state_after, vectors};
use crate::Pointer;
use crate::gemm::{self, Dims, Mat, MatMut, Prepacked, Update};
use crate::math::{Map, Sigmoid, Tanh};
use crate::ops::{binary, matmul};
use crate::simd::{Kernel, Level, Simd};
use crate::{Cpu, CpuDevice, CpuTensor};

/// Approximate nanoseconds for the cell of one hidden unit.
const NS: f32 = 4.0;

/// See [`polygrad_core::Backend::lstm`].
pub(crate) fn lstm(
    x: &CpuTensor,
    hidden: &CpuTensor,
    cell: &CpuTensor,
    weights: [&CpuTensor; 2],
    biases: Option<[&CpuTensor; 2]>,
    reverse: bool,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let operands = [x, hidden, cell, weights[0], weights[1]];
    let (shape, state) = (*x.shape(), *hidden.shape());
    let form = shape.rank() == 3 && state.rank() == 2 && state[0] == shape[1] && cell.shape() == hidden.shape();
    let form = form && weights[1].shape()[..] == [4 * state[1], state[1]] && weights[0].shape()[0] == 4 * state[1];
    let Some(level) = vectors(operands.into_iter().chain(biases.into_iter().flatten())).filter(|_| form) else {
        return decompose::lstm::<Cpu>(x, hidden, cell, weights, biases, reverse);
    };
    let bias = biases
        .map(|[input, own]| binary::binary(polygrad_core::BinaryOp::Add, input, own))
        .transpose()?;
    let mut gates = matmul::linear(x, weights[0], bias.as_ref(), None)?;
    let ([steps, rows, _], size) = ([shape[0], shape[1], shape[2]], state[1]);
    let device = x.device();
    let mut outputs = CpuTensor::empty(Shape::from([steps, rows, size]), x.dtype(), device)?;
    let first = hidden.contiguous()?;
    let mut cells = cell.copied()?;
    gates.make_writable()?;
    let gates_at = Pointer(gates.ptr_mut().cast::<f32>());
    let outputs_at = Pointer(outputs.ptr_mut().cast::<f32>());
    let cells_at = Pointer(cells.ptr_mut().cast::<f32>());
    let mut before = first.typed::<f32>()?;
    let layout = weights[1].layout();
    let own = Mat::new(weights[1].typed::<f32>()?, layout.strides()[0], layout.strides()[1]).transposed();
    let dims = Dims {
        m: rows,
        n: 4 * size,
        k: size,
    };
    for i in 0..steps {
        let step = if reverse { steps - 1 - i } else { i };
        let gates = gates_at.at(step * rows * 4 * size);
        let a = Mat::new(before, size.cast_signed(), 1);
        let c = MatMut::new(gates, (4 * size).cast_signed(), 1);
        // SAFETY: the state has `dims.m` rows, the weight is that of the panels, and no other task accesses the gates
        // of this step.
        unsafe {
            match weights[1].packed::<Prepacked<f32>>() {
                Some(packed) => packed.gemm(device, dims, a, own, c, Update::add())?,
                None => gemm::gemm(device, dims, a, own, c, Update::add())?,
            }
        }
        let to = Pointer(outputs_at.at(step * rows * size));
        apply(
            device,
            level,
            [rows, size],
            [Pointer(gates), Pointer(cells_at.0), Pointer(to.0)],
        );
        before = to.0.cast_const();
    }
    let hidden = match steps {
        0 => first,
        _ => state_after(if reverse { 0 } else { steps - 1 }, &outputs)?,
    };
    Ok((outputs, hidden, cells))
}

/// See [`polygrad_core::Backend::lstm_cell`].
pub(crate) fn lstm_cell(gates: &CpuTensor, cell: &CpuTensor) -> Result<(CpuTensor, CpuTensor)> {
    let fits = matches!(*cell.shape().dims(), [rows, size] if gates.shape().dims() == [rows, 4 * size]);
    let Some(level) = vectors([gates, cell]).filter(|_| fits) else {
        return decompose::lstm_cell::<Cpu>(gates, cell);
    };
    let (shape, device) = (*cell.shape(), cell.device());
    let gates = gates.contiguous()?;
    let mut cells = cell.copied()?;
    let mut hidden = CpuTensor::empty(shape, cell.dtype(), device)?;
    let parts = [
        Pointer(gates.typed::<f32>()?.cast_mut()),
        Pointer(cells.ptr_mut().cast()),
        Pointer(hidden.ptr_mut().cast()),
    ];
    apply(device, level, [shape[0], shape[1]], parts);
    Ok((hidden, cells))
}

/// The cell of all rows: from gates, which are only read, and cell states, which are replaced, to hidden states.
fn apply(device: CpuDevice, level: Level, [rows, size]: [usize; 2], [gates, cells, hidden]: [Pointer<f32>; 3]) {
    device.split(rows, NS * size as f32, 1, |start, end| {
        for row in start..end {
            level.run(Cell {
                gates: gates.at(row * 4 * size).cast_const(),
                cell: cells.at(row * size),
                hidden: hidden.at(row * size),
                size,
            });
        }
    });
}

/// One row; the gates are in the order input, forget, cell, output.
struct Cell {
    gates: *const f32,
    cell: *mut f32,
    hidden: *mut f32,
    size: usize,
}

impl Kernel for Cell {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            gates,
            cell,
            hidden,
            size,
        } = self;
        for at in (0..size).step_by(S::N) {
            let n = S::N.min(size - at);
            // SAFETY: four gates, the cell and the hidden state have `size` elements each.
            unsafe {
                let gate = |i: usize| s.load_part(gates.add(i * size + at), n);
                let kept = s.mul(Sigmoid.at(s, gate(1)), s.load_part(cell.add(at), n));
                let new = s.mul(Sigmoid.at(s, gate(0)), Tanh.at(s, gate(2)));
                let c = s.add(kept, new);
                s.store_part(cell.add(at), n, c);
                s.store_part(hidden.add(at), n, s.mul(Sigmoid.at(s, gate(3)), Tanh.at(s, c)));
            }
        }
    }
}
