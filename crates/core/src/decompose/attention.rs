//! Scaled dot-product attention.

use super::wide::{is_narrow, widen};
use crate::{Axes, Backend, CompareOp, DType, Result, Scalar, Shape, UnaryOp};

/// See [`Backend::attention`].
pub fn attention<B: Backend>(
    q: &B::Tensor,
    k: &B::Tensor,
    v: &B::Tensor,
    mask: Option<&B::Tensor>,
    scale: f64,
    causal: bool,
) -> Result<B::Tensor> {
    if is_narrow::<B>(q) {
        let mask = mask.map(|mask| widen_mask::<B>(mask)).transpose()?;
        let (wide_q, k, v) = (widen::<B>(q)?, widen::<B>(k)?, widen::<B>(v)?);
        let wide = B::attention(&wide_q, &k, &v, mask.as_ref(), scale, causal)?;
        return B::cast(&wide, B::dtype(q));
    }
    B::matmul(&attention_weights::<B>(q, k, mask, scale, causal)?, v)
}

/// How much each query takes of each value: `softmax(scale · Q Kᵀ + mask)`, as in [`Backend::attention`].
pub fn attention_weights<B: Backend>(
    q: &B::Tensor,
    k: &B::Tensor,
    mask: Option<&B::Tensor>,
    scale: f64,
    causal: bool,
) -> Result<B::Tensor> {
    if is_narrow::<B>(q) {
        let mask = mask.map(|mask| widen_mask::<B>(mask)).transpose()?;
        let wide = attention_weights::<B>(&widen::<B>(q)?, &widen::<B>(k)?, mask.as_ref(), scale, causal)?;
        return B::cast(&wide, B::dtype(q));
    }
    let shape = B::shape(q);
    let rank = shape.rank();
    // Keys shared by all heads may have fewer leading axes than queries.
    let key_rank = B::shape(k).rank();
    let swapped = Axes::new((0..key_rank - 2).chain([key_rank - 1, key_rank - 2]))?;
    let mut scores = B::mul_scalar(&B::matmul(q, &B::permute(k, swapped)?)?, scale)?;
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
        let seen = causal_mask::<B>(shape[rank - 2], B::shape(k)[key_rank - 2], &device)?;
        scores = B::select(&seen, &scores, &hidden)?;
    }
    let weights = B::softmax(&scores, B::shape(&scores).rank() - 1)?;
    // A row without any key has NaN weights; they count as 0, while a NaN that came in through a score stays.
    match (mask, causal) {
        (None, false) => Ok(weights),
        _ => {
            let blocked = B::compare_scalar(CompareOp::Eq, &scores, Scalar::Float(f64::NEG_INFINITY))?;
            let zero = B::zeros(Shape::SCALAR, dtype, &device)?;
            B::select(&blocked, &zero, &weights)
        }
    }
}

fn widen_mask<B: Backend>(mask: &B::Tensor) -> Result<B::Tensor> {
    if B::dtype(mask) == DType::Bool {
        Ok(mask.clone())
    } else {
        widen::<B>(mask)
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
