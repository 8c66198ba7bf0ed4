//! Scaled dot-product attention.

use super::wide::{is_narrow, narrow3, widen};
use crate::{Axes, Backend, CompareOp, DType, Result, Scalar, Shape, UnaryOp};

/// See [`Backend::attention`].
pub(super) fn attention<B: Backend>(
    q: &B::Tensor,
    k: &B::Tensor,
    v: &B::Tensor,
    mask: Option<&B::Tensor>,
    scale: f64,
    causal: bool,
) -> Result<B::Tensor> {
    if is_narrow::<B>(q) {
        let mask = widen_mask::<B>(mask)?;
        let (wide_q, k, v) = (widen::<B>(q)?, widen::<B>(k)?, widen::<B>(v)?);
        let wide = B::attention(&wide_q, &k, &v, mask.as_ref(), scale, causal)?;
        return B::cast(&wide, B::dtype(q));
    }
    B::matmul(&attention_weights::<B>(q, k, mask, scale, causal)?, v)
}

/// The weight of each value for each query: `softmax(scale · Q Kᵀ + mask)`, as in [`Backend::attention`].
pub fn attention_weights<B: Backend>(
    q: &B::Tensor,
    k: &B::Tensor,
    mask: Option<&B::Tensor>,
    scale: f64,
    causal: bool,
) -> Result<B::Tensor> {
    if is_narrow::<B>(q) {
        let mask = widen_mask::<B>(mask)?;
        let wide = attention_weights::<B>(&widen::<B>(q)?, &widen::<B>(k)?, mask.as_ref(), scale, causal)?;
        return B::cast(&wide, B::dtype(q));
    }
    let mut scores = B::mul_scalar(&B::matmul(q, &transposed::<B>(k)?)?, scale)?;
    let hidden = Scalar::Float(f64::NEG_INFINITY);
    let (dtype, device) = (B::dtype(q), B::device(q));
    let hidden = B::full(Shape::SCALAR, hidden, dtype, &device)?;
    if let Some(mask) = mask {
        scores = if B::dtype(mask) == DType::Bool {
            B::select(mask, &scores, &hidden)?
        } else {
            B::add(&scores, mask)?
        };
    }
    if causal {
        // Keys shared by all heads may have fewer leading axes than queries.
        let seen = causal_mask::<B>(rows::<B>(q), rows::<B>(k), &device)?;
        scores = B::select(&seen, &scores, &hidden)?;
    }
    let last = B::shape(&scores).rank() - 1;
    if mask.is_none() && !causal {
        return B::softmax(&scores, last);
    }
    let blocked = B::compare_scalar(CompareOp::Eq, &scores, Scalar::Float(f64::NEG_INFINITY))?;
    if mask.is_some_and(|mask| B::dtype(mask) != DType::Bool) {
        // As with the other masks, this keeps the NaN of a row without any key out of the gradient of its scores.
        scores = B::select(&blocked, &hidden, &scores)?;
    }
    // A row without any key has NaN weights, which are set to 0. A NaN from a score stays.
    let zero = B::zeros(Shape::SCALAR, dtype, &device)?;
    B::select(&blocked, &zero, &B::softmax(&scores, last)?)
}

/// See [`Backend::attention_backward`].
pub(super) fn attention_backward<B: Backend>(
    grad: &B::Tensor,
    q: &B::Tensor,
    k: &B::Tensor,
    v: &B::Tensor,
    mask: Option<&B::Tensor>,
    scale: f64,
    causal: bool,
) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    if is_narrow::<B>(q) {
        let mask = widen_mask::<B>(mask)?;
        let (grad, wide_q, k, v) = (widen::<B>(grad)?, widen::<B>(q)?, widen::<B>(k)?, widen::<B>(v)?);
        let wide = B::attention_backward(&grad, &wide_q, &k, &v, mask.as_ref(), scale, causal)?;
        return narrow3::<B>(wide, B::dtype(q));
    }
    let weights = attention_weights::<B>(q, k, mask, scale, causal)?;
    let to_weights = B::matmul(grad, &transposed::<B>(v)?)?;
    // Blocked keys have weight 0, and so get no gradient.
    let to_scores = B::softmax_backward(&to_weights, &weights, B::shape(&weights).rank() - 1)?;
    let to_scores = B::mul_scalar(&to_scores, scale)?;
    let to_q = B::matmul(&to_scores, k)?;
    let to_k = B::matmul(&transposed::<B>(&to_scores)?, q)?;
    let to_v = B::matmul(&transposed::<B>(&weights)?, grad)?;
    Ok((
        B::sum_to(&to_q, B::shape(q))?,
        B::sum_to(&to_k, B::shape(k))?,
        B::sum_to(&to_v, B::shape(v))?,
    ))
}

/// Matrices `[…, m, n]` as `[…, n, m]`.
fn transposed<B: Backend>(x: &B::Tensor) -> Result<B::Tensor> {
    let rank = B::shape(x).rank();
    B::permute(x, Axes::new((0..rank - 2).chain([rank - 1, rank - 2]))?)
}

/// The number of rows of each matrix.
fn rows<B: Backend>(x: &B::Tensor) -> usize {
    let shape = B::shape(x);
    shape[shape.rank() - 2]
}

fn widen_mask<B: Backend>(mask: Option<&B::Tensor>) -> Result<Option<B::Tensor>> {
    match mask {
        Some(mask) if B::dtype(mask) != DType::Bool => widen::<B>(mask).map(Some),
        _ => Ok(mask.cloned()),
    }
}

/// True where query i of `queries` sees key j of `keys`: `j <= i + keys - queries`.
fn causal_mask<B: Backend>(queries: usize, keys: usize, device: &B::Device) -> Result<B::Tensor> {
    let one = Scalar::Int(1);
    let first = Scalar::Int(keys as i64 - queries as i64);
    let last_seen = B::iota(queries, first, one, DType::I64, device)?;
    let last_seen = B::reshape(&last_seen, Shape::from([queries, 1]))?;
    let key = B::iota(keys, Scalar::Int(0), one, DType::I64, device)?;
    let ahead = B::compare(CompareOp::Gt, &key, &last_seen)?;
    B::unary(UnaryOp::LogicalNot, &ahead)
}
