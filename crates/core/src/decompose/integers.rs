//! Products of integers, for engines that only multiply matrices of floats.

use crate::{Backend, BinaryOp, ConvParams, DType, Error, Result, Scalar, Shape, SliceRange, observe};

/// The most products kept in memory at a time, or one for each output if that is more.
const AT_ONCE: usize = 1 << 20;

/// [`Backend::matmul`] of integers by additions and multiplications of i64, which wrap, so that it is exact on any
/// backend.
pub fn integer_matmul<B: Backend>(a: &B::Tensor, b: &B::Tensor) -> Result<B::Tensor> {
    let dtype = B::dtype(a);
    if dtype == DType::Bool {
        return Err(Error::dtype("not defined for bool").with_op("matmul"));
    }
    observe::decomposed("Matmul");
    let (left, right) = (B::shape(a), B::shape(b));
    let (lead_a, lead_b) = (left.rank() - 2, right.rank() - 2);
    let (m, k, n) = (left[lead_a], left[lead_a + 1], right[lead_b + 1]);
    let lead = Shape::new(&left[..lead_a])?.broadcast(&Shape::new(&right[..lead_b])?)?;
    let shape = Shape::new(&[lead.dims(), &[m, n]].concat())?;
    if shape.numel() == 0 || k == 0 {
        return B::full(shape, Scalar::Int(0), dtype, &B::device(a));
    }
    let batch = lead.numel();
    // Each operand gets one flat batch axis, and an axis of extent 1 for the other operand's free axis.
    let spread = |x: &B::Tensor, dims: [usize; 2], flat: [usize; 4]| {
        let whole = Shape::new(&[lead.dims(), &dims].concat())?;
        B::reshape(&B::expand(&B::cast(x, DType::I64)?, whole)?, Shape::from(flat))
    };
    let (a, b) = (
        spread(a, [m, k], [batch, m, k, 1])?,
        spread(b, [k, n], [batch, 1, k, n])?,
    );
    let step = (AT_ONCE / shape.numel()).clamp(1, k);
    let mut sum = None;
    for start in (0..k).step_by(step) {
        let len = step.min(k - start);
        let part = |x: &B::Tensor| cut::<B>(x, 2, start, len);
        let products = summed::<B>(B::mul(&part(&a)?, &part(&b)?)?, 2)?;
        sum = Some(match sum {
            None => products,
            Some(sum) => B::add(&sum, &products)?,
        });
    }
    match sum {
        Some(sum) => B::reshape(&B::cast(&sum, dtype)?, shape),
        None => B::full(shape, Scalar::Int(0), dtype, &B::device(&a)),
    }
}

/// [`Backend::conv`] of integers, whose products wrap: a sum of matrix products, one for each element of the kernel.
pub fn integer_conv<B: Backend>(x: &B::Tensor, weight: &B::Tensor, params: &ConvParams) -> Result<B::Tensor> {
    observe::decomposed("Conv");
    let (kernel, dtype) = (B::shape(weight), B::dtype(x));
    let out = params.output_shape(&B::shape(x), &kernel)?;
    if out.numel() == 0 || kernel.numel() == 0 {
        return B::full(out, Scalar::Int(0), dtype, &B::device(x));
    }
    let (spatial, groups) = (kernel.rank() - 2, params.groups);
    let mut border = vec![(0, 0); 2];
    border.extend((0..spatial).map(|axis| (params.padding[axis], params.padding[axis])));
    let x = B::pad(x, &border, Scalar::Int(0))?;
    let padded = B::shape(&x);
    let (inputs, outputs, places) = (kernel[1], kernel[0] / groups, out[2..].iter().product::<usize>());
    // [1, groups, outputs, inputs] × [N, groups, inputs, places] for each element of the kernel.
    let mut sum: Option<B::Tensor> = None;
    for tap in 0..kernel[2..].iter().product() {
        let (mut at, mut rest) = ([0; 3], tap);
        for axis in (0..spatial).rev() {
            at[axis] = rest % kernel[axis + 2];
            rest /= kernel[axis + 2];
        }
        let mut seen = vec![SliceRange::full(padded[0]), SliceRange::full(padded[1])];
        let mut element = vec![SliceRange::full(kernel[0]), SliceRange::full(kernel[1])];
        for axis in 0..spatial {
            let stride = params.stride[axis] as isize;
            seen.push(SliceRange::new(at[axis] * params.dilation[axis], out[axis + 2], stride));
            element.push(SliceRange::new(at[axis], 1, 1));
        }
        let columns = B::reshape(&B::slice(&x, &seen)?, Shape::from([padded[0], groups, inputs, places]))?;
        let factors = B::reshape(&B::slice(weight, &element)?, Shape::from([1, groups, outputs, inputs]))?;
        let product = B::matmul(&factors, &columns)?;
        sum = Some(match sum {
            None => product,
            Some(sum) => B::add(&sum, &product)?,
        });
    }
    match sum {
        Some(sum) => B::reshape(&sum, out),
        None => B::full(out, Scalar::Int(0), dtype, &B::device(&x)),
    }
}

/// The sum over an axis, which is kept with extent 1. Uses only additions, since engines differ in how they reduce
/// integers.
fn summed<B: Backend>(mut x: B::Tensor, axis: usize) -> Result<B::Tensor> {
    loop {
        let len = B::shape(&x)[axis];
        if len <= 1 {
            return Ok(x);
        }
        let half = len / 2;
        let (low, high) = (cut::<B>(&x, axis, 0, half)?, cut::<B>(&x, axis, half, half)?);
        let pairs = B::binary(BinaryOp::Add, &low, &high)?;
        x = if len % 2 == 0 {
            pairs
        } else {
            B::concat(&[&pairs, &cut::<B>(&x, axis, len - 1, 1)?], axis)?
        };
    }
}

/// A range of one axis.
pub(super) fn cut<B: Backend>(x: &B::Tensor, axis: usize, start: usize, len: usize) -> Result<B::Tensor> {
    let shape = B::shape(x);
    let ranges: Vec<_> = shape
        .iter()
        .enumerate()
        .map(|(i, &dim)| match i == axis {
            true => SliceRange::new(start, len, 1),
            false => SliceRange::full(dim),
        })
        .collect();
    B::slice(x, &ranges)
}
