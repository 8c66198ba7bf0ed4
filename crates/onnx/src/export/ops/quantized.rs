//! Numbers that are rounded to integers and back.

use polygrad_core::{BinaryOp, DType, Result, Shape, decompose};

use super::elementwise::{binary, cast};
use super::movement::{expand, reshape};
use crate::export::call::Call;
use crate::export::{Onnx, OnnxTensor};

type T = OnnxTensor;

/// Recorded as QuantizeLinear and DequantizeLinear on bytes: the byte is the integer minus `low`. If the bounds are
/// closer together than those of a byte, the numbers are clamped first.
pub(crate) fn fake_quantize(x: &T, scale: &T, zero: &T, bounds: [i32; 2], axis: usize) -> Result<T> {
    let [low, high] = bounds;
    let width = i64::from(high) - i64::from(low);
    if width > 255 || x.dtype != DType::F32 {
        return decompose::fake_quantize::<Onnx>(x, scale, zero, bounds, axis);
    }
    let count = scale.shape.numel().max(zero.shape.numel());
    // A single scale has no axes.
    let shape = match count {
        1 => Shape::SCALAR,
        count => Shape::new(&[count])?,
    };
    let [scale, zero] = [scale, zero].map(|each| match each.shape.numel() == count {
        true => reshape(each, shape),
        false => expand(each, shape),
    });
    let (scale, zero) = (scale?, zero?);
    let mut x = x.clone();
    if width < 255 {
        let mut dims = vec![1; x.shape.rank()];
        if let Some(extent) = dims.get_mut(axis) {
            *extent = count;
        }
        let most = binary(BinaryOp::Sub, &zero.number(f64::from(high)), &zero)?;
        let most = reshape(&binary(BinaryOp::Mul, &most, &scale)?, Shape::new(&dims)?)?;
        x = x.like(Call::of("Min", [&x, &most]))?;
    }
    let zero = cast(&binary(BinaryOp::Sub, &zero, &zero.number(f64::from(low)))?, DType::U8)?;
    let along = |call: Call| match count {
        1 => call,
        _ => call.int("axis", axis as i64),
    };
    let numbers = along(Call::of("QuantizeLinear", [&x, &scale, &zero])).gives(x.shape, DType::U8);
    let numbers = x.recording.one(numbers)?;
    x.like(along(Call::of("DequantizeLinear", [&numbers, &scale, &zero])))
}
