//! Matrix products.

use burn_backend::ops::FloatTensorOps;
use burn_flex::Flex;
use polygrad_core::{Axes, BinaryOp, DType, Error, Result, Scalar, Shape};

use crate::flex::compare::cast;
use crate::flex::elementwise::combine;
use crate::flex::movement::{permute, reshape};
use crate::flex::tensor::{BurnTensor, ensure_room};

pub(crate) fn matmul(a: &BurnTensor, b: &BurnTensor) -> Result<BurnTensor> {
    let (left, right, dtype) = (a.shape(), b.shape(), a.dtype());
    let (&[ref lead_a @ .., m, k], &[ref lead_b @ .., _, n]) = (left.dims(), right.dims()) else {
        return Err(Error::shape(format!("{left} × {right} is no product of matrices")).with_op("matmul"));
    };
    let lead = Shape::new(lead_a)?.broadcast(&Shape::new(lead_b)?)?;
    let out = Shape::new(&[lead.dims(), &[m, n]].concat())?;
    if out.numel() == 0 || k == 0 {
        return BurnTensor::full(out, Scalar::Int(0), dtype);
    }
    ensure_room(&out, dtype)?;
    // gemm's f16 kernels round each block of terms.
    if matches!(dtype, DType::F16 | DType::BF16) {
        return cast(&matmul(&cast(a, DType::F32)?, &cast(b, DType::F32)?)?, dtype);
    }
    Ok(BurnTensor::new(Flex::float_matmul(a.flex().clone(), b.flex().clone())))
}

/// One product for all rows, with the bias added in place.
pub(crate) fn linear(x: &BurnTensor, weight: &BurnTensor, bias: Option<&BurnTensor>) -> Result<BurnTensor> {
    let (shape, dtype) = (x.shape(), x.dtype());
    if matches!(dtype, DType::F16 | DType::BF16) {
        let bias = bias.map(|bias| cast(bias, DType::F32)).transpose()?;
        return cast(
            &linear(&cast(x, DType::F32)?, &cast(weight, DType::F32)?, bias.as_ref())?,
            dtype,
        );
    }
    let last = shape.rank() - 1;
    let rows: usize = shape[..last].iter().product();
    let flat = reshape(x, Shape::from([rows, shape[last]]))?;
    let transposed = permute(weight, Axes::new([1, 0])?);
    let mut y = matmul(&flat, &transposed)?;
    if let Some(bias) = bias {
        y = combine(BinaryOp::Add, y.into(), bias.operand()?, dtype)?;
    }
    reshape(&y, shape.with_dim(last, weight.shape()[0]))
}
