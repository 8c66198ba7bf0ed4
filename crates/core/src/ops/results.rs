//! The shapes and dtypes of an op's results, without computing them.

use super::methods::op_pattern;
use super::{BlockScheme, Op, Operands, SliceRange};
use crate::{Axes, DType, Error, Outputs, Result, Shape, for_each_op};

/// Shape and dtype of a tensor, known before it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// Its shape.
    pub shape: Shape,
    /// Its dtype.
    pub dtype: DType,
}

macro_rules! define {
    ($($(#[$doc:meta])* $kind:ident $method:ident($($x:ident : $type:tt),* $(,)?) -> $count:ident
        as $variant:ident $fields:tt, named $name:tt, for $dtypes:tt gives [$($result:expr),*] $(saves $saves:tt)? $(steps $steps:tt)?;)*) => {
        impl Op {
            /// The types of the op's results, from the types of its tensors, which are in the order of its
            /// [`Backend`](crate::Backend) method.
            ///
            /// # Errors
            /// Too few tensors; shapes that do not fit, if the result's shape depends on it; an update, which has no
            /// results; results with too many elements.
            #[allow(unused_variables, reason = "few results depend on all arguments and tensors")]
            pub fn results(&self, tensors: &[TensorType]) -> Result<Outputs<TensorType>> {
                let mut operands = Operands { op: self, len: tensors.len(), next: 0, get: |i: usize| Ok(tensors[i]) };
                match self {
                    $(op_pattern!($variant $fields) => {
                        $(define!(@bind operands $x $type);)*
                        Ok(Outputs::$count($($result),*))
                    })*
                    Self::AccumulateGrad | Self::SliceScatter { .. } | Self::SgdStep(_) | Self::AdamStep(_) => {
                        Err(super::malformed(self, tensors.len()).with_hint("this op changes its tensors, and gives none"))
                    }
                }
            }
        }
    };

    (@bind $operands:ident $x:ident tensor) => { let $x = $operands.tensor()?; };
    (@bind $operands:ident $x:ident tensors) => { let $x = $operands.tensors()?; };
    (@bind $operands:ident $x:ident pair) => { let $x = $operands.pair()?; };
    (@bind $operands:ident $x:ident optional) => { let $x = $operands.optional()?; };
    (@bind $operands:ident $x:ident optional_pair) => { let $x = $operands.optional_pair()?; };
    (@bind $operands:ident $x:ident $type:tt) => {};
}

for_each_op!(define);

fn result(shape: Shape, dtype: DType) -> TensorType {
    TensorType { shape, dtype }
}

/// Another shape with this tensor's dtype.
fn shaped(x: TensorType, shape: Shape) -> TensorType {
    TensorType { shape, ..x }
}

/// Another dtype with this tensor's shape.
fn of(x: TensorType, dtype: DType) -> TensorType {
    TensorType { dtype, ..x }
}

fn product(a: &Shape, b: &Shape) -> Result<Shape> {
    let (&[ref lead_a @ .., m, _], &[ref lead_b @ .., _, n]) = (a.dims(), b.dims()) else {
        return Err(Error::shape(format!("{a} × {b} is no product of matrices")).with_op("matmul"));
    };
    let lead = Shape::new(lead_a)?.broadcast(&Shape::new(lead_b)?)?;
    joined_dims(&lead, &[m, n])
}

fn joined_dims(lead: &[usize], last: &[usize]) -> Result<Shape> {
    Shape::new(&[lead, last].concat())
}

fn permuted(shape: &Shape, axes: Axes) -> Result<Shape> {
    Shape::new(&axes.iter().map(|axis| shape[axis]).collect::<Vec<_>>())
}

fn sliced(ranges: &[SliceRange]) -> Result<Shape> {
    Shape::new(&ranges.iter().map(|range| range.len).collect::<Vec<_>>())
}

fn padded(shape: &Shape, padding: &[(usize, usize)]) -> Result<Shape> {
    let dims = shape.iter().zip(padding);
    Shape::new(
        &dims
            .map(|(&dim, &(before, after))| before + dim + after)
            .collect::<Vec<_>>(),
    )
}

fn joined(xs: &[TensorType], axis: usize) -> Result<TensorType> {
    let Some(first) = xs.first() else {
        return Err(Error::invalid("nothing to join").with_op("cat"));
    };
    let dim = xs.iter().map(|x| x.shape[axis]).sum();
    Ok(shaped(*first, with_dim(&first.shape, axis, dim)?))
}

fn with_dim(shape: &Shape, axis: usize, dim: usize) -> Result<Shape> {
    Shape::new(&shape.with_dim(axis, dim))
}

fn last(x: TensorType) -> usize {
    x.shape[x.shape.rank() - 1]
}

fn with_last(shape: &Shape, dim: usize) -> Result<Shape> {
    with_dim(shape, shape.rank() - 1, dim)
}

/// The shape of a product with a block-quantized weight.
fn outputs(x: TensorType, weight: TensorType, scheme: BlockScheme, transposed: bool) -> Result<Shape> {
    let (n, bytes) = match *weight.shape.dims() {
        [groups, words, _] => (groups * BlockScheme::ROWS, words * BlockScheme::WORD),
        _ => (weight.shape[0], last(weight)),
    };
    with_last(&x.shape, if transposed { scheme.numbers(bytes) } else { n })
}

fn channels(x: TensorType) -> Shape {
    Shape::from([x.shape[1]])
}

/// A statistic over the last axes, which are kept with extent 1.
fn statistic(x: TensorType, axes: usize) -> Result<TensorType> {
    let rank = x.shape.rank();
    Ok(shaped(x, x.shape.reduced(Axes::new(rank - axes..rank)?, true)))
}

/// A weight of the last axes.
fn inner(x: TensorType, axes: usize) -> Result<TensorType> {
    Ok(shaped(x, Shape::new(&x.shape[x.shape.rank() - axes..])?))
}

/// Keys and values shared by all heads may have fewer leading axes than queries.
fn attended(q: &Shape, k: &Shape, v: &Shape) -> Result<Shape> {
    let lead = |shape: &Shape| Shape::new(&shape[..shape.rank() - 2]);
    let all = lead(q)?.broadcast(&lead(k)?)?.broadcast(&lead(v)?)?;
    joined_dims(&all, &[q[q.rank() - 2], v[v.rank() - 1]])
}

/// `width` times the hidden state's features for each step.
fn steps(x: TensorType, hidden: TensorType, width: usize) -> Result<Shape> {
    Shape::new(&[x.shape[0], hidden.shape[0], width * hidden.shape[1]])
}
