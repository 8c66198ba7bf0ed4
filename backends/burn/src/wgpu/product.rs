//! Products of matrices.

use burn_backend::ops::FloatTensorOps;
use burn_wgpu::CubeBackend;
use polygrad_core::{Error, Result, Shape};

use crate::wgpu::movement::reshape;
use crate::wgpu::tensor::{BurnWgpuTensor as T, ensure_room};

pub(crate) fn matmul(a: &T, b: &T) -> Result<T> {
    let (left, right, dtype) = (a.shape(), b.shape(), a.dtype());
    let (&[ref lead_a @ .., m, k], &[ref lead_b @ .., _, n]) = (left.dims(), right.dims()) else {
        return Err(Error::shape(format!("{left} × {right} is no product of matrices")).with_op("matmul"));
    };
    let lead = Shape::new(lead_a)?.broadcast(&Shape::new(lead_b)?)?;
    let out = Shape::new(&[lead.dims(), &[m, n]].concat())?;
    if out.numel() == 0 || k == 0 {
        return a.zeros(out, dtype);
    }
    ensure_room(&out, dtype, a.device())?;
    let (a, b) = (ranked(a, out.rank())?, ranked(b, out.rank())?);
    Ok(a.like(CubeBackend::float_matmul(a.operand(), b.operand()), out, dtype))
}

/// With axes of 1 in front, up to a rank.
fn ranked(x: &T, rank: usize) -> Result<T> {
    let shape = x.shape();
    let ones = vec![1; rank - shape.rank()];
    Ok(reshape(x, Shape::new(&[&ones, shape.dims()].concat())?))
}
