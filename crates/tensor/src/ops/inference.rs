//! Fused ops for code that runs models without gradients, such as an importer. Compiled models use them automatically.
//! If a gradient is needed, the ops are computed one by one.

use polygrad_core::{Backend, Prepack, Result};

use super::context;
pub use super::linalg::linear;
pub use super::quantized::{
    binary_requantize_u8, conv_requantize_u8, conv_u8, dequantize_u8, dynamic_quantize_u8, lookup_u8,
    matmul_requantize_u8, matmul_rescale_u8, matmul_u8, quantize_u8,
};
pub use super::window::{conv, max_pool};
use crate::Tensor;

/// Prepares a weight for ops of a kind, so that their work on it is done once instead of in each call. For weights that
/// are used in many calls; it may take twice the memory. A weight that requires a gradient is returned unchanged, since
/// its values will change.
///
/// # Errors
/// When memory runs out.
pub fn prepacked<B: Backend>(weight: &Tensor<B>, kind: Prepack) -> Result<Tensor<B>> {
    if weight.is_tracked() {
        return Ok(weight.clone());
    }
    B::prepack(&weight.value, kind)
        .map(Tensor::from_inner)
        .map_err(|e| context(e, "prepack", &[weight]))
}
