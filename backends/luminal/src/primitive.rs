//! The ops that luminal has, recorded so that its graph can take them.
//!
//! luminal's element-wise ops read each operand through a `ShapeTracker`; its functions of one tensor run over all of
//! the operand's memory. What neither can express is copied first, by a node of ours.

use polygrad_core::{DType, Layout, Result, Scalar, Shape};

use crate::movement::contiguous;
use crate::tensor::{LuminalTensor, Recorded};
use crate::tracker::{self, common};

/// An op of luminal, all on f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Primitive {
    Add,
    Mul,
    Recip,
    Sqrt,
    Sin,
    Log2,
    /// A sum over one axis.
    Sum(usize),
    /// A product of matrices, by the kernel to which luminal's CPU compiler turns a product and a sum.
    Product,
}

fn record(op: Primitive, inputs: Vec<LuminalTensor>, shape: Shape) -> Result<LuminalTensor> {
    let mut made = LuminalTensor::record(Recorded::Primitive(op), inputs, &[(shape, DType::F32)])?;
    Ok(made.remove(0))
}

/// A function of each element.
pub(crate) fn unary(op: Primitive, x: &LuminalTensor) -> Result<LuminalTensor> {
    over_memory(x, |memory| record(op, vec![memory.clone()], *memory.shape()))
}

/// Applies a function of each element to all of a tensor's memory, whose view the result then is; or to a copy, where
/// the memory is larger than what the tensor shows of it.
pub(crate) fn over_memory(
    x: &LuminalTensor,
    f: impl FnOnce(&LuminalTensor) -> Result<LuminalTensor>,
) -> Result<LuminalTensor> {
    if x.memory_len() <= x.shape().numel() && x.memory_len() > 0 {
        return Ok(f(&x.memory()?)?.view(*x.layout()));
    }
    if x.shape().numel() == 0 {
        return Ok(x.clone());
    }
    let copy = contiguous(x)?;
    Ok(f(&copy.memory()?)?.view(*copy.layout()))
}

/// A function of two elements each, of tensors that broadcast.
pub(crate) fn binary(op: Primitive, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    let shape = a.shape().broadcast(b.shape())?;
    if shape.numel() == 0 {
        return LuminalTensor::full(shape, Scalar::Float(0.0), DType::F32);
    }
    let (a, b) = (a.view(a.layout().expand(shape)), b.view(b.layout().expand(shape)));
    if let Some((a, b, layout)) = in_memory_order(&a, &b)? {
        let flat = *a.shape();
        return Ok(record(op, vec![a, b], flat)?.view(layout));
    }
    let (mut a, mut b) = (a, b);
    let mut layouts = common([a.layout(), b.layout()]);
    if tracker::of(&layouts[0], a.memory_len()).is_none() {
        a = contiguous(&a)?;
    }
    if tracker::of(&layouts[1], b.memory_len()).is_none() {
        b = contiguous(&b)?;
    }
    layouts = common([a.layout(), b.layout()]);
    if layouts[0].shape().rank() > tracker::MAX_AXES {
        (a, b) = (contiguous(&a)?, contiguous(&b)?);
        layouts = common([a.layout(), b.layout()]);
    }
    record(op, vec![a.view(layouts[0]), b.view(layouts[1])], shape)
}

/// Both operands as rows in the order of memory, and the layout of the result, where one of them shows all of its
/// memory once and the other lies alike or is one number.
fn in_memory_order(a: &LuminalTensor, b: &LuminalTensor) -> Result<Option<(LuminalTensor, LuminalTensor, Layout)>> {
    let whole = |x: &LuminalTensor| x.memory_len() == x.shape().numel() && tracker::of_once(x.layout());
    let alike = || a.layout().strides() == b.layout().strides();
    if whole(a) && whole(b) && alike() {
        return Ok(Some((a.memory()?, b.memory()?, *a.layout())));
    }
    let one = |x: &LuminalTensor| x.memory_len() == 1;
    let spread = |x: &LuminalTensor, len: usize| Ok(x.view(Layout::strided(Shape::new(&[len])?, &[0], 0)));
    if whole(a) && one(b) {
        return Ok(Some((a.memory()?, spread(b, a.memory_len())?, *a.layout())));
    }
    if one(a) && whole(b) {
        return Ok(Some((spread(a, b.memory_len())?, b.memory()?, *b.layout())));
    }
    Ok(None)
}

/// `-x`, which luminal makes of a product.
pub(crate) fn neg(x: &LuminalTensor) -> Result<LuminalTensor> {
    scale(x, -1.0)
}

/// `x * by`.
pub(crate) fn scale(x: &LuminalTensor, by: f32) -> Result<LuminalTensor> {
    let by = LuminalTensor::new(Shape::SCALAR, vec![by]);
    over_memory(x, |memory| binary(Primitive::Mul, memory, &by))
}

/// `a - b`, which luminal makes of a sum and a product; no more is rounded than in a difference.
pub(crate) fn sub(a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    binary(Primitive::Add, a, &neg(b)?)
}

/// The sum over one axis of a tensor that has elements, in luminal's order: one after the other.
pub(crate) fn sum(x: &LuminalTensor, axis: usize, shape: Shape) -> Result<LuminalTensor> {
    let x = match tracker::of(x.layout(), x.memory_len()) {
        Some(_) => x.clone(),
        None => contiguous(x)?,
    };
    record(Primitive::Sum(axis), vec![x], shape)
}

/// `[m, k] × [k, n]`, none of which is empty.
pub(crate) fn product(a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    let shape = Shape::from([a.shape()[0], b.shape()[1]]);
    // luminal's kernel takes strides, but none of 0, and no part of a memory.
    let whole = |x: &LuminalTensor| {
        if x.memory_len() == x.shape().numel() && tracker::of(x.layout(), x.memory_len()).is_some() {
            Ok(x.clone())
        } else {
            contiguous(x)
        }
    };
    record(Primitive::Product, vec![whole(a)?, whole(b)?], shape)
}
