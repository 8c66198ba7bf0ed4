//! Ops of `com.microsoft`, written by ONNX Runtime's optimizer, its quantizers and its exporters of language models.
//!
//! Each is computed by the tensor ops, or the ops of `ai.onnx`, that it combines.

mod attention;
mod attributes;
mod blocks;
mod cached;
mod fused;
mod integers;
mod lstm;
mod norm;
mod quantized;

pub(super) use attributes::ATTRIBUTES;
pub(crate) use blocks::{looked_up_weight, packed_product, packed_weight};
use polygrad_core::{Error, Result};
use polygrad_tensor::Tensor;

use super::row::Row;
use crate::import::call::Call;
use crate::import::ops::row::Kernel;
use crate::import::value::Value;

pub(crate) const DOMAIN: &str = "com.microsoft";

/// All rows, family by family.
pub(super) const FAMILIES: [&[Row]; 8] = [
    fused::ROWS,
    norm::ROWS,
    quantized::ROWS,
    integers::ROWS,
    lstm::ROWS,
    attention::ROWS,
    cached::ROWS,
    blocks::ROWS,
];

/// An op of this domain, which has one version.
const fn ms(op_type: &'static str, kernel: Kernel) -> Row {
    Row::new(op_type, 1, kernel).of(DOMAIN)
}

/// The same node on other operands, for ops that delegate to an op of `ai.onnx` with the same attributes.
fn on<'a>(c: &Call<'a>, inputs: &'a [Option<Value>]) -> Call<'a> {
    Call { inputs, ..*c }
}

/// Operand `i` as a scalar.
fn single(c: &Call<'_>, i: usize) -> Result<Tensor> {
    let x = c.x(i)?;
    if x.numel() == 1 {
        return x.reshape(());
    }
    Err(Error::shape(format!(
        "operand {i} of shape {}: one number is needed",
        x.shape()
    )))
}

/// `[N, C, …]` as `[N, …, C]`.
fn channels_last(x: &Tensor) -> Result<Tensor> {
    let mut order: Vec<isize> = (0..x.rank() as isize).collect();
    order[1.min(x.rank())..].rotate_left(1.min(x.rank().saturating_sub(1)));
    x.permute(order.as_slice())
}

/// `[N, …, C]` as `[N, C, …]`.
fn channels_first(x: &Tensor) -> Result<Tensor> {
    let mut order: Vec<isize> = (0..x.rank() as isize).collect();
    order[1.min(x.rank())..].rotate_right(1.min(x.rank().saturating_sub(1)));
    x.permute(order.as_slice())
}
