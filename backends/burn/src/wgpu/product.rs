//! Matrix products.

use burn_backend::ops::FloatTensorOps;
use burn_wgpu::CubeBackend;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearViewMut;
use polygrad_core::{Error, Result, Shape};

use crate::wgpu::kernel::{addresses, room, units};
use crate::wgpu::movement::{expand, reshape};
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
    if out.numel().saturating_mul(k) <= SMALL {
        return small(a, b, lead, out);
    }
    let (a, b) = (ranked(a, out.rank())?, ranked(b, out.rank())?);
    Ok(a.like(CubeBackend::float_matmul(a.operand(), b.operand()), out, dtype))
}

/// The most multiplications for our own kernel. Burn's kernel is compiled for each kind of shape, which takes half a
/// second on a software adapter.
const SMALL: usize = 1 << 16;

/// Number of terms that are added up before they are added to the total.
const BLOCK: usize = 64;

/// Computes `[batch, m, n]` with one unit per element.
#[cube(launch, address_type = "dynamic")]
fn dot_products(a: &Tensor<f32>, b: &Tensor<f32>, mut out: LinearViewMut<'_, f32>, n: usize, m: usize) {
    if !out.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    let (row, column) = (ABSOLUTE_POS / n % m, ABSOLUTE_POS % n);
    let batch = ABSOLUTE_POS / (n * m);
    let left = batch * a.stride(0) + row * a.stride(1);
    let right = batch * b.stride(0) + column * b.stride(2);
    let terms = a.shape(2);
    let mut sum = 0.0f32;
    for block in 0..terms.div_ceil(BLOCK) {
        let end = clamp_max((block + 1) * BLOCK, terms);
        let mut part = 0.0f32;
        for i in block * BLOCK..end {
            part += a[left + i * a.stride(2)] * b[right + i * b.stride(1)];
        }
        sum += part;
    }
    out.write(ABSOLUTE_POS, sum);
}

fn small(a: &T, b: &T, lead: Shape, shape: Shape) -> Result<T> {
    let batches = lead.numel();
    let lined = |x: &T| {
        let given = x.shape();
        let matrix = &given[given.rank() - 2..];
        let spread = expand(x, Shape::new(&[lead.dims(), matrix].concat())?);
        Ok(reshape(&spread, Shape::new(&[&[batches], matrix].concat())?).operand())
    };
    let (left, right) = (lined(a)?, lined(b)?);
    let out = room(a, &shape, a.dtype());
    let (count, dim) = units(&out.client, shape.numel());
    let rank = shape.rank();
    dot_products::launch(
        &out.client,
        count,
        dim,
        addresses!(left, right, out),
        left.into_tensor_arg(),
        right.into_tensor_arg(),
        out.clone().into_linear_view(),
        shape[rank - 1],
        shape[rank - 2],
    );
    Ok(a.like(out, shape, a.dtype()))
}

/// Prepends axes of extent 1, up to a rank.
fn ranked(x: &T, rank: usize) -> Result<T> {
    let shape = x.shape();
    let ones = vec![1; rank - shape.rank()];
    Ok(reshape(x, Shape::new(&[&ones, shape.dims()].concat())?))
}
