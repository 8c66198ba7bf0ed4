//! Matrix products, all with luminal's kernel.

use luminal::op::{InputTensor, Operator};
use luminal::prelude::MatMul2D;
use luminal::shape::ShapeTracker;
use luminal::shape::symbolic::Expression;
use luminal::tensor::Tensor;
use polygrad_core::{DType, Error, ErrorKind, Result, Scalar, Shape, room};

use crate::kernel;
use crate::movement::{expand, reshape};
use crate::primitive::product;
use crate::tensor::LuminalTensor;

/// The product of f32.
pub(crate) fn matmul(a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    let (&[ref a_batch @ .., m, k], &[ref b_batch @ .., _, n]) = (a.shape().dims(), b.shape().dims()) else {
        return Err(Error::shape("both must have rank 2 or more").with_op("matmul"));
    };
    let batch = Shape::new(a_batch)?.broadcast(&Shape::new(b_batch)?)?;
    let shape = Shape::new(&[batch.dims(), &[m, n]].concat())?;
    if shape.numel() == 0 || k == 0 {
        return LuminalTensor::full(shape, Scalar::Float(0.0), DType::F32);
    }
    // A single right-hand matrix: all left-hand rows form one matrix.
    if b_batch.iter().product::<usize>() == 1 {
        let rows = a_batch.iter().product::<usize>() * m;
        let out = product(&reshape(a, Shape::from([rows, k]))?, &reshape(b, Shape::from([k, n]))?)?;
        return reshape(&out, shape);
    }
    let count = batch.numel();
    let flat = |x: &LuminalTensor, rows: usize, columns: usize| {
        let whole = Shape::new(&[batch.dims(), &[rows, columns]].concat())?;
        reshape(&expand(x, whole), Shape::from([count, rows, columns]))
    };
    reshape(&batched(&flat(a, m, k)?, &flat(b, k, n)?)?, shape)
}

/// `[c, m, k] × [c, k, n] → [c, m, n]`, none of which is empty. luminal's own batched product has a single right-hand
/// matrix, so a custom node calls its kernel for one pair after the other.
pub(crate) fn batched(a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    let (count, m, k, n) = (a.shape()[0], a.shape()[1], a.shape()[2], b.shape()[2]);
    let shape = Shape::new(&[count, m, n])?;
    kernel::record("matmul", [a, b], shape, DType::F32, move |[a, b]| {
        let mut out = room::<f32>(shape.numel())?;
        let (a, b) = (a.values::<f32>()?, b.values::<f32>()?);
        for (a, b) in a.chunks_exact(m * k).zip(b.chunks_exact(k * n)) {
            let pair = vec![matrix(a, m, k), matrix(b, k, n)];
            let mut made = MatMul2D.process(pair);
            let made = made
                .pop()
                .and_then(|tensor| tensor.data.as_any().downcast_ref::<Vec<f32>>().cloned());
            let made = made.ok_or_else(|| Error::new(ErrorKind::DeviceError, "luminal's product gave nothing"))?;
            out.extend_from_slice(&made);
        }
        Ok(Tensor::new(out))
    })
}

fn matrix(values: &[f32], rows: usize, columns: usize) -> (InputTensor<'static>, ShapeTracker) {
    let tracker = ShapeTracker::new(&[Expression::from(rows), Expression::from(columns)]);
    (InputTensor::Owned(Tensor::new(values.to_vec())), tracker)
}
