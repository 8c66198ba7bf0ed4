//! An LSTM with 8-bit weights, whose inputs and states are quantized to 8 bits before each product.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::{Tensor, inference};

use super::{ms, on};
use crate::import::call::{Call, Results};
use crate::import::ops::cast::dynamic;
use crate::import::ops::recurrent::lstm;
use crate::import::ops::row::rows;
use crate::import::value::Value;

rows! {
    ms("DynamicQuantizeLSTM", quantized_lstm);
}

fn quantized_lstm(c: &Call<'_>) -> Results {
    for i in 0..c.inputs.len() {
        if c.has(i) {
            c.untracked(i)?;
        }
    }
    let mut inputs: Vec<Option<Value>> = c.inputs.iter().take(8).cloned().collect();
    let weights = [(1, weights(c, 1, 8, 9)?), (2, weights(c, 2, 10, 11)?)];
    for (i, weight) in weights {
        if let Some(input) = inputs.get_mut(i) {
            *input = Some(weight.into());
        }
    }
    lstm(&on(c, &inputs), rounded)
}

/// Rounds numbers to the 8-bit grid between the smallest and the largest of them.
fn rounded(x: &Tensor) -> Result<Tensor> {
    let [y, scale, zero] = dynamic(x)?;
    inference::dequantize_u8(&y, &scale, &zero)
}

/// Weights `[directions, inputs, 4 · H]` in LSTM's form: dequantized and transposed.
fn weights(c: &Call<'_>, i: usize, scale: usize, zero: usize) -> Result<Tensor> {
    let x = c.x(i)?;
    let &[directions, _, columns] = x.shape().dims() else {
        return Err(Error::shape(format!("weights of shape {}, not of rank 3", x.shape())));
    };
    let spread = |i: usize| -> Result<Tensor> {
        let each = c.x(i)?.to_dtype(DType::F32)?;
        match *each.shape().dims() {
            [count] if count == directions => each.reshape([directions, 1, 1]),
            [count, all] if count == directions && all == columns => each.reshape([directions, 1, columns]),
            _ => Err(Error::shape(format!(
                "operand {i} of shape {} for weights of shape {}",
                each.shape(),
                x.shape()
            ))),
        }
    };
    ((x.to_dtype(DType::F32)? - spread(zero)?)? * spread(scale)?)?.t()
}
