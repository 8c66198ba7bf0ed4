//! Scalars, broadcasting sums, linear maps and embeddings.

use super::epilogue;
use super::wide::{is_narrow, widen};
use crate::{
    Activation, Axes, Backend, BinaryOp, CompareOp, DType, Error, ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp,
    observe,
};

/// [`Backend::binary`] for ops that are composed of others ([`BinaryOp::is_fused`]).
///
/// # Errors
/// An op that is not composed of others, a dtype for which the op is not defined; those of the ops that it is made of.
pub fn binary<B: Backend>(op: BinaryOp, a: &B::Tensor, b: &B::Tensor) -> Result<B::Tensor> {
    let dtype = B::dtype(a);
    let error = match op {
        _ if !op.accepts(dtype) => Error::dtype(format!("not defined for {dtype}")),
        _ if is_narrow::<B>(a) => return B::cast(&B::binary(op, &widen::<B>(a)?, &widen::<B>(b)?)?, dtype),
        BinaryOp::LogAddExp => return logaddexp::<B>(a, b),
        _ => Error::unsupported("it is not made of other ops"),
    };
    Err(error
        .with_op(op.name())
        .with_operands([(B::shape(a), dtype), (B::shape(b), B::dtype(b))]))
}

/// The larger operand plus `ln(1 + e^-|a - b|)`. Equal operands are handled apart, since the difference of equal
/// infinities is NaN.
fn logaddexp<B: Backend>(a: &B::Tensor, b: &B::Tensor) -> Result<B::Tensor> {
    observe::decomposed("Binary");
    let distance = B::unary(UnaryOp::Abs, &B::sub(a, b)?)?;
    let added = B::unary(UnaryOp::Log1p, &B::exp(&B::unary(UnaryOp::Neg, &distance)?)?)?;
    let sum = B::add(&B::binary(BinaryOp::Maximum, a, b)?, &added)?;
    let doubled = B::add_scalar(a, std::f64::consts::LN_2)?;
    B::select(&B::compare(CompareOp::Eq, a, b)?, &doubled, &sum)
}

/// See [`Backend::binary_scalar`].
pub(super) fn binary_scalar<B: Backend>(
    op: BinaryOp,
    x: &B::Tensor,
    scalar: Scalar,
    reverse: bool,
) -> Result<B::Tensor> {
    let scalar = B::full(Shape::SCALAR, scalar, B::dtype(x), &B::device(x))?;
    if reverse {
        B::binary(op, &scalar, x)
    } else {
        B::binary(op, x, &scalar)
    }
}

/// [`Backend::binary_scalar`] with the exact number: if f16 or bf16 cannot represent it, the op runs in f32 and is
/// rounded once.
///
/// Maximum and minimum give the same result with the rounded number, so they never run in f32.
#[inline]
pub fn binary_number<B: Backend>(op: BinaryOp, x: &B::Tensor, number: Scalar, reverse: bool) -> Result<B::Tensor> {
    let dtype = B::dtype(x);
    if dtype.wide() == dtype || matches!(op, BinaryOp::Maximum | BinaryOp::Minimum) || dtype.holds(number) {
        return B::binary_scalar(op, x, number, reverse);
    }
    B::cast(&B::binary_scalar(op, &widen::<B>(x)?, number, reverse)?, dtype)
}

/// See [`Backend::compare_scalar`].
pub(super) fn compare_scalar<B: Backend>(op: CompareOp, x: &B::Tensor, scalar: Scalar) -> Result<B::Tensor> {
    let scalar = B::full(Shape::SCALAR, scalar, B::dtype(x), &B::device(x))?;
    B::compare(op, x, &scalar)
}

/// See [`Backend::index_add`].
pub(super) fn index_add<B: Backend>(
    x: &B::Tensor,
    axis: usize,
    index: &B::Tensor,
    src: &B::Tensor,
) -> Result<B::Tensor> {
    let shape = B::shape(src);
    let mut column = shape;
    for (i, dim) in column.dims_mut().iter_mut().enumerate() {
        if i != axis {
            *dim = 1;
        }
    }
    let index = B::expand(&B::reshape(index, column)?, shape)?;
    B::scatter_add(x, axis, &index, src)
}

/// See [`Backend::sum_to`].
pub(super) fn sum_to<B: Backend>(x: &B::Tensor, shape: Shape) -> Result<B::Tensor> {
    let from = B::shape(x);
    if from == shape {
        return Ok(x.clone());
    }
    let extra = from.rank() - shape.rank();
    let axes =
        Axes::new((0..from.rank()).filter(|&axis| axis < extra || (shape[axis - extra] == 1 && from[axis] != 1)))?;
    if axes.len() == extra {
        // Only leading axes are summed, so the remaining extents already are `shape`.
        return B::reduce(ReduceOp::Sum, x, axes, false);
    }
    B::reshape(&B::sum_keep(x, axes)?, shape)
}

/// See [`Backend::square_sum`].
pub(super) fn square_sum<B: Backend>(xs: &[&B::Tensor]) -> Result<B::Tensor> {
    let of = |x: &B::Tensor| {
        let x = B::cast(x, B::dtype(x).promote(DType::F32))?;
        B::reduce(
            ReduceOp::Sum,
            &B::mul(&x, &x)?,
            Axes::new(0..B::shape(&x).rank())?,
            false,
        )
    };
    let [first, rest @ ..] = xs else {
        return Err(Error::invalid("there is no tensor to sum").with_op("square_sum"));
    };
    rest.iter().try_fold(of(first)?, |sum, x| B::add(&sum, &of(x)?))
}

/// See [`Backend::linear_weight_grad`].
pub(super) fn linear_weight_grad<B: Backend>(grad: &B::Tensor, x: &B::Tensor) -> Result<(B::Tensor, B::Tensor)> {
    let flat = |x: &B::Tensor| {
        let (shape, last) = (B::shape(x), B::shape(x).rank() - 1);
        B::reshape(x, Shape::from([shape[..last].iter().product(), shape[last]]))
    };
    let (grad, x) = (flat(grad)?, flat(x)?);
    let outputs = B::shape(&grad)[1];
    let weight = B::matmul(&B::permute(&grad, Axes::new([1, 0])?)?, &x)?;
    Ok((weight, B::sum_to(&grad, Shape::from([outputs]))?))
}

/// See [`Backend::linear`].
pub(super) fn linear<B: Backend>(
    x: &B::Tensor,
    weight: &B::Tensor,
    bias: Option<&B::Tensor>,
    activation: Option<Activation>,
) -> Result<B::Tensor> {
    let shape = B::shape(x);
    let transposed = B::permute(weight, Axes::new([1, 0])?)?;
    let last = shape.rank() - 1;
    let rows: usize = shape[..last].iter().product();
    let flat = B::reshape(x, Shape::from([rows, shape[last]]))?;
    let mut y = B::matmul(&flat, &transposed)?;
    if let Some(bias) = bias {
        y = B::add(&y, bias)?;
    }
    let out = shape.with_dim(last, B::shape(weight)[0]);
    let y = if out.rank() == 2 { y } else { B::reshape(&y, out)? };
    epilogue::<B>(y, None, None, activation)
}

/// See [`Backend::embedding`].
pub(super) fn embedding<B: Backend>(weight: &B::Tensor, index: &B::Tensor, _: Option<usize>) -> Result<B::Tensor> {
    let shape = B::shape(index);
    let flat = B::reshape(index, Shape::from([shape.numel()]))?;
    let rows = B::index_select(weight, 0, &flat)?;
    B::reshape(&rows, append(&shape, B::shape(weight)[1])?)
}

/// See [`Backend::embedding_backward`].
pub(super) fn embedding_backward<B: Backend>(
    grad: &B::Tensor,
    index: &B::Tensor,
    num_embeddings: usize,
    padding_idx: Option<usize>,
) -> Result<B::Tensor> {
    let count = B::shape(index).numel();
    let grad_shape = B::shape(grad);
    let dim = grad_shape[grad_shape.rank() - 1];
    let flat_index = B::reshape(index, Shape::from([count]))?;
    let flat_grad = B::reshape(grad, Shape::from([count, dim]))?;
    let (dtype, device) = (B::dtype(grad), B::device(grad));
    let zeros = B::zeros(Shape::from([num_embeddings, dim]), dtype, &device)?;
    let out = B::index_add(&zeros, 0, &flat_index, &flat_grad)?;
    let Some(row) = padding_idx else {
        return Ok(out);
    };
    let cut = |start, len| B::slice(&out, &[SliceRange::new(start, len, 1), SliceRange::full(dim)]);
    let blank = B::zeros(Shape::from([1, dim]), dtype, &device)?;
    let (before, after) = (cut(0, row)?, cut(row + 1, num_embeddings - row - 1)?);
    B::concat(&[&before, &blank, &after], 0)
}

/// A shape with one more extent at its end.
fn append(shape: &Shape, dim: usize) -> Result<Shape> {
    let mut dims = shape.to_vec();
    dims.push(dim);
    Shape::new(&dims)
}
