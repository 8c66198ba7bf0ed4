//! Positions in a sequence, for attention.

mod alibi;
mod learned;
mod rotary;
mod sinusoidal;
mod table;

pub use alibi::{alibi_bias, alibi_slopes};
pub use learned::LearnedPositions;
pub use rotary::{RotaryConfig, RotaryEmbedding, RotaryPairs};
pub use sinusoidal::SinusoidalPositions;

use polygrad_tensor::{Backend, Error, ErrorKind, Result, Shape, Tensor};

/// An empty vector with room for a table of this shape.
fn room(shape: Shape) -> Result<Vec<f64>> {
    let mut values = Vec::new();
    values.try_reserve_exact(shape.numel()).map_err(|e| {
        Error::new(ErrorKind::OutOfMemory, format!("a table of shape {shape}: {e}")).with_hint("ask for fewer places")
    })?;
    Ok(values)
}

/// The rows `offset..offset + S` of a table of positions, for `x […, S, E]`.
fn rows<B: Backend>(table: &Tensor<B>, x: &Tensor<B>, offset: usize) -> Result<Tensor<B>> {
    let (shape, known) = (x.shape(), table.shape()[0]);
    let length = match shape.dims() {
        &[.., length, _] => length,
        _ => {
            return Err(Error::shape("takes […, S, E]").with_operands([(shape, x.dtype())]));
        }
    };
    match offset.checked_add(length) {
        Some(end) if end <= known => table.narrow(0, offset, length),
        _ => Err(Error::out_of_range(format!(
            "{length} positions from {offset} on were asked for; there are {known}"
        ))
        .with_hint("build the layer for longer sequences, or cut the input")),
    }
}
