//! Scaled dot-product attention.

use polygrad_core::{Axes, Backend, BinaryOp, CompareOp, DType, ReduceOp, Result, Scalar, Shape};

use super::movement::permute;
use crate::export::call::{Call, is_exact};
use crate::export::{Onnx, OnnxTensor};

type T = OnnxTensor;

pub(crate) fn attention(q: &T, k: &T, v: &T, mask: Option<&T>, scale: f64, causal: bool) -> Result<T> {
    let rank = q.shape.rank();
    let (queries, keys) = (q.shape[rank - 2], k.shape[k.shape.rank() - 2]);
    let heads = |x: &T| x.shape.rank() == 4 && x.shape[..2] == q.shape[..2];
    let has_op = q.recording.state().opset.has_attention() && is_exact(scale, q.dtype);
    let is_one_op = has_op && [q, k, v].into_iter().all(heads);
    // ONNX aligns a causal mask to the upper left, Polygrad to the lower right. The two are equal if there are as many
    // queries as keys.
    let by_flag = is_one_op && causal && mask.is_none() && queries == keys;
    let seen = match (mask, causal && !by_flag) {
        (None, false) => None,
        (Some(mask), false) => Some(mask.clone()),
        (None, true) => Some(causal_mask(q, queries, keys)?),
        (Some(mask), true) => Some(both(mask, &causal_mask(q, queries, keys)?)?),
    };
    let out = if is_one_op {
        let whole = seen
            .as_ref()
            .map(|seen| whole_mask(seen, [queries, keys]))
            .transpose()?;
        let operands = [Some(q), Some(k), Some(v), whole.as_ref()];
        let call = Call::of("Attention", operands.into_iter().flatten())
            .float("scale", scale)
            .int("is_causal", i64::from(by_flag));
        let shape = q.shape.with_dim(3, v.shape[3]);
        q.recording.one(call.gives(shape, q.dtype))?
    } else {
        spelled_out(q, k, v, seen.as_ref(), scale)?
    };
    match &seen {
        Some(seen) if mask.is_some() || queries > keys => without_blind_rows(&out, seen),
        _ => Ok(out),
    }
}

fn spelled_out(q: &T, k: &T, v: &T, seen: Option<&T>, scale: f64) -> Result<T> {
    let rank = k.shape.rank();
    let swapped = Axes::new((0..rank - 2).chain([rank - 1, rank - 2]))?;
    let scores = Onnx::mul_scalar(&Onnx::matmul(q, &permute(k, swapped)?)?, scale)?;
    let scores = match seen {
        None => scores,
        Some(seen) if seen.dtype == DType::Bool => Onnx::select(seen, &scores, &hidden(&scores))?,
        Some(added) => Onnx::add(&scores, added)?,
    };
    let last = scores.shape.rank() - 1;
    Onnx::matmul(&Onnx::softmax(&scores, last)?, v)
}

fn hidden(x: &T) -> T {
    x.number(f64::NEG_INFINITY)
}

/// True where query i sees key j: `j <= i + keys - queries`. Made from ranges, so that it follows the extents at run
/// time.
fn causal_mask(q: &T, queries: usize, keys: usize) -> Result<T> {
    let one = Scalar::Int(1);
    let key = Onnx::iota(keys, Scalar::Int(0), one, DType::I64, &q.recording)?;
    let last_seen = if queries <= keys {
        Onnx::iota(
            queries,
            Scalar::Int((keys - queries) as i64),
            one,
            DType::I64,
            &q.recording,
        )?
    } else {
        let row = Onnx::iota(queries, Scalar::Int(0), one, DType::I64, &q.recording)?;
        Onnx::binary_scalar(BinaryOp::Sub, &row, Scalar::Int((queries - keys) as i64), false)?
    };
    let column = Onnx::reshape(&last_seen, Shape::new(&[queries, 1])?)?;
    Onnx::compare(CompareOp::Le, &key, &column)
}

/// A mask with a row for each query and a column for each key, as ONNX Runtime's Attention requires.
fn whole_mask(mask: &T, scores: [usize; 2]) -> Result<T> {
    let shape = mask.shape.broadcast(&Shape::from(scores))?;
    if mask.shape == shape {
        Ok(mask.clone())
    } else {
        Onnx::expand(mask, shape)
    }
}

/// The intersection of a mask and a bool mask.
fn both(mask: &T, seen: &T) -> Result<T> {
    if mask.dtype == DType::Bool {
        Onnx::binary(BinaryOp::And, mask, seen)
    } else {
        Onnx::select(seen, mask, &hidden(mask))
    }
}

/// Sets the rows of queries that see no key to 0, where ONNX leaves the value undefined.
fn without_blind_rows(out: &T, seen: &T) -> Result<T> {
    let seen = match seen.dtype {
        DType::Bool => seen.clone(),
        _ => Onnx::compare_scalar(CompareOp::Gt, seen, Scalar::Float(f64::NEG_INFINITY))?,
    };
    let last = seen.shape.rank() - 1;
    let sees = Onnx::reduce(ReduceOp::Any, &seen, Axes::one(last), true)?;
    Onnx::select(&sees, out, &out.number(0.0))
}
