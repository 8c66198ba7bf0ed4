//! Several ops as one, for code that runs models without gradients, such as an importer; models that are compiled get
//! them by themselves. Where a gradient is wanted after all, the ops follow one another as they would without.

use polygrad_core::{Backend, Prepack, Result};

use super::context;
pub use super::linalg::linear;
pub use super::window::{conv, max_pool};
use crate::Tensor;

/// The same weight, made ready for ops of a kind: what they would otherwise do to it at each call is done once. For
/// weights that many calls use; it may take twice the memory. A weight that a gradient flows to is given back as it is,
/// since it will change.
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
