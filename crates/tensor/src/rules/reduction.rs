//! Gradient rules of reductions and matrix products.

use polygrad_core::{Activation, Axes, Backend, DType, ReduceOp, Result, Shape};
use smallvec::smallvec;

use super::{Context, Passed, fused};
use crate::{Tensor, flops};

#[inline(never)]
pub(super) fn reduce<B: Backend>(op: ReduceOp, axes: Axes, c: &Context<'_, B>) -> Result<Passed<B>> {
    let shape = c.shape(0);
    if op == ReduceOp::Prod && c.create_graph {
        let again = product(&c.saved[0], axes)?.reshape(c.grad.shape())?;
        return Ok(Passed::Through(again, c.grad.clone()));
    }
    let kept = shape.reduced(axes, true);
    let g = c.grad.reshape(kept)?;
    Passed::one(match op {
        ReduceOp::Sum => g.expand(shape)?,
        ReduceOp::Mean => {
            let count: usize = axes.iter().map(|axis| shape[axis]).product();
            (&g / count as f64)?.expand(shape)?
        }
        ReduceOp::Max | ReduceOp::Min => {
            let (x, y) = (&c.saved[0], c.saved[1].reshape(kept)?);
            // NaN counts as the extreme. Ties are counted in a wide dtype, since a narrow dtype may not hold their
            // number.
            let wide = if g.dtype().size() < 4 { DType::F32 } else { g.dtype() };
            let ties = x.eq(&y)?.logical_or(&x.isnan()?)?.to_dtype(wide)?;
            let share = g.to_dtype(wide)?.div(&ties.reduce_axes(ReduceOp::Sum, axes, true)?)?;
            share.mul(&ties)?.to_dtype(g.dtype())?
        }
        ReduceOp::Prod => {
            // The product of the other elements: without zeros, the whole product divided by the element; with one
            // zero, only the zero itself gets a gradient; with two, none does.
            let x = &c.saved[0];
            let is_zero = x.eq(0.0)?;
            let others = x.masked_fill(&is_zero, 1.0)?;
            let product = others.reduce_axes(ReduceOp::Prod, axes, true)?;
            let zeros = is_zero.reduce_axes(ReduceOp::Sum, axes, true)?;
            let alone = is_zero.logical_and(&zeros.eq(1i64)?)?;
            let without = product.div(&others)?.masked_fill(&zeros.gt(0i64)?, 0.0)?;
            g.mul(&Tensor::where_(&alone, &product, &without)?)?
        }
        other => return Err(super::missing(other.name())),
    })
}

/// The product as a tree of multiplications, whose derivatives of any order are correct at zeros, too.
fn product<B: Backend>(x: &Tensor<B>, axes: Axes) -> Result<Tensor<B>> {
    let shape = x.shape();
    let order = (0..shape.rank())
        .filter(|&axis| !axes.contains(axis))
        .chain(axes.iter());
    let outer = shape.reduced(axes, false).numel();
    let mut count: usize = axes.iter().map(|axis| shape[axis]).product();
    let mut rest = x.permute_axes(Axes::new(order)?)?.reshape([outer, count])?;
    if count == 0 {
        return Tensor::full([outer], 1.0, (&x.device(), x.dtype()));
    }
    while count > 1 {
        let half = count / 2;
        let pairs = rest.narrow(1, 0, half)?.mul(&rest.narrow(1, half, half)?)?;
        rest = if count.is_multiple_of(2) {
            pairs
        } else {
            Tensor::cat(&[&pairs, &rest.narrow(1, count - 1, 1)?], 1)?
        };
        count = half + count % 2;
    }
    Ok(rest)
}

#[inline(never)]
pub(super) fn cumsum<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    let axis = axis as isize;
    Passed::one(c.grad.flip(axis)?.cumsum(axis)?.flip(axis)?)
}

#[inline(never)]
pub(super) fn matmul<B: Backend>(c: &Context<'_, B>) -> Result<Passed<B>> {
    let (a, b) = (&c.saved[0], &c.saved[1]);
    c.two(
        || c.grad.matmul(&b.matrix_transposed()?)?.sum_to(c.shape(0)),
        || a.matrix_transposed()?.matmul(&c.grad)?.sum_to(c.shape(1)),
    )
}

#[inline(never)]
pub(super) fn linear<B: Backend>(activation: Option<Activation>, c: &Context<'_, B>) -> Result<Passed<B>> {
    let grad = match activation {
        None => c.grad.clone(),
        Some(op) => fused::activation_backward(op, &c.saved[2], c)?,
    };
    let (x, weight) = (&c.saved[0], &c.saved[1]);
    let (x_shape, weight_shape) = (c.shape(0), c.shape(1));
    let (inputs, outputs) = (weight_shape[1], weight_shape[0]);
    let rows: usize = x_shape[..x_shape.rank() - 1].iter().product();
    let biased = c.call.inputs.len() == 3;
    if biased && c.wants(1) && c.wants(2) && !c.create_graph {
        let gradients = B::linear_weight_grad(&grad.value, &x.value)?;
        flops::add_products(inputs * outputs, rows);
        let (of_weight, of_bias) = (Tensor::from_inner(gradients.0), Tensor::from_inner(gradients.1));
        let grad = || grad.reshape(Shape::from([rows, outputs]));
        let of_x = c.when(0, || grad()?.matmul(weight)?.reshape(x_shape))?;
        return Ok(Passed::Inputs(smallvec![of_x, Some(of_weight), Some(of_bias)]));
    }
    let grad = grad.reshape(Shape::from([rows, outputs]))?;
    let mut gradients = smallvec![
        c.when(0, || grad.matmul(weight)?.reshape(x_shape))?,
        c.when(1, || grad
            .matrix_transposed()?
            .matmul(&x.reshape(Shape::from([rows, inputs]))?))?,
    ];
    if biased {
        gradients.push(c.when(2, || grad.sum_to(Shape::from([outputs])))?);
    }
    Ok(Passed::Inputs(gradients))
}
