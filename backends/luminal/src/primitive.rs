//! luminal's own ops, recorded in a form that its graph accepts.
//!
//! luminal's element-wise ops read each operand through a `ShapeTracker`; its functions of one tensor run over the
//! operand's whole memory. Operands that neither can express are copied first, by a custom node.

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
    /// A matrix product, with the kernel into which luminal's CPU compiler turns a product and a sum.
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

/// Applies a function of each element to a tensor's whole memory, and returns a view of the result. If the memory is
/// larger than the part that the tensor covers, applies it to a copy.
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

/// A function of pairs of elements, for tensors that broadcast.
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

/// Both operands as rows in memory order, and the layout of the result, if one of them covers its whole memory once and
/// the other has the same layout or is one number.
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

/// `-x`, which luminal computes as a product.
pub(crate) fn neg(x: &LuminalTensor) -> Result<LuminalTensor> {
    scale(x, -1.0)
}

/// `x * by`.
pub(crate) fn scale(x: &LuminalTensor, by: f32) -> Result<LuminalTensor> {
    let by = LuminalTensor::new(Shape::SCALAR, vec![by]);
    over_memory(x, |memory| binary(Primitive::Mul, memory, &by))
}

/// `a - b`, which luminal computes as a sum and a product; the rounding is that of a difference.
pub(crate) fn sub(a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    binary(Primitive::Add, a, &neg(b)?)
}

/// The sum over one axis of a tensor that has elements, added sequentially by luminal.
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
    // luminal's kernel accepts strides, but not 0, and no parts of a memory.
    let whole = |x: &LuminalTensor| {
        if x.memory_len() == x.shape().numel() && tracker::of(x.layout(), x.memory_len()).is_some() {
            Ok(x.clone())
        } else {
            contiguous(x)
        }
    };
    record(Primitive::Product, vec![whole(a)?, whole(b)?], shape)
}
