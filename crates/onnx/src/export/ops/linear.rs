//! Products of matrices.

use polygrad_core::{Axes, BinaryOp, DType, Result, Shape};

use super::elementwise::{binary, cast};
use super::movement::permute;
use crate::export::OnnxTensor;
use crate::export::call::Call;

type T = OnnxTensor;

pub(crate) fn matmul_shape(a: &T, b: &T) -> Result<Shape> {
    let (&[.., rows, _], &[.., _, columns]) = (a.shape.dims(), b.shape.dims()) else {
        return a.shape.broadcast(&b.shape);
    };
    let lead = |shape: &Shape| Shape::new(&shape[..shape.rank() - 2]);
    let batch = lead(&a.shape)?.broadcast(&lead(&b.shape)?)?;
    Shape::new(&[batch.dims(), &[rows, columns]].concat())
}

pub(crate) fn matmul(a: &T, b: &T) -> Result<T> {
    if a.dtype == DType::U8 {
        // ONNX has no matrix product of bytes; the lower 8 bits of a wider product are the result.
        let product = matmul(&cast(a, DType::I32)?, &cast(b, DType::I32)?)?;
        return cast(&product, DType::U8);
    }
    a.recording
        .one(Call::of("MatMul", [a, b]).gives(matmul_shape(a, b)?, a.dtype))
}

pub(crate) fn linear(x: &T, weight: &T, bias: Option<&T>) -> Result<T> {
    let last = x.shape.rank() - 1;
    let shape = x.shape.with_dim(last, weight.shape[0]);
    if x.shape.rank() == 2 {
        let operands = [Some(x), Some(weight), bias];
        let call = Call::of("Gemm", operands.into_iter().flatten()).int("transB", 1);
        return x.recording.one(call.gives(shape, x.dtype));
    }
    let transposed = permute(weight, Axes::new([1, 0])?)?;
    let product = x
        .recording
        .one(Call::of("MatMul", [x, &transposed]).gives(shape, x.dtype))?;
    match bias {
        Some(bias) => binary(BinaryOp::Add, &product, bias),
        None => Ok(product),
    }
}
