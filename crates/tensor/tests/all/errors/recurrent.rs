//! Cells of recurrent networks.

use polygrad_tensor::DType;
use polygrad_tensor::ErrorKind::{DType as WrongDType, Shape};

use super::{Tensor, f32, fails, of};

#[test]
fn lstm_cell() {
    let cell = f32(&[2, 3]);
    let run = |gates: Tensor, cell: &Tensor| gates.lstm_cell(cell);
    let form = ["lstm_cell", "gates [N, 4H] and a cell state [N, H]"];
    fails(
        run(f32(&[2, 11]), &cell),
        Shape,
        &[&form[..], &["f32[2, 11]", "f32[2, 3]"]].concat(),
    );
    fails(run(f32(&[3, 12]), &cell), Shape, &form);
    fails(run(f32(&[12]), &cell), Shape, &form);
    fails(run(f32(&[12]), &f32(&[3])), Shape, &form);
    fails(run(f32(&[2, 12]), &f32(&[1, 2, 3])), Shape, &form);
    let one = ["lstm_cell", "one float dtype", "to_dtype"];
    fails(run(of(DType::F64, &[2, 12]), &cell), WrongDType, &one);
    fails(
        run(of(DType::I64, &[2, 12]), &of(DType::I64, &[2, 3])),
        WrongDType,
        &one,
    );
}

#[test]
fn gru_cell() {
    let (gates, hidden) = (f32(&[2, 9]), f32(&[2, 3]));
    let form = ["gru_cell", "both [N, 3H], and a hidden state [N, H]"];
    fails(f32(&[2, 8]).gru_cell(&gates, &hidden), Shape, &form);
    fails(gates.gru_cell(&f32(&[1, 9]), &hidden), Shape, &form);
    fails(gates.gru_cell(&gates, &f32(&[3])), Shape, &form);
    let one = ["gru_cell", "one float dtype", "f64[2, 9]"];
    fails(gates.gru_cell(&of(DType::F64, &[2, 9]), &hidden), WrongDType, &one);
}
