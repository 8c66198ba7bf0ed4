//! Models that show only their trainable part.

use std::fmt;
use std::ops::Deref;

use polygrad_tensor::Backend;

use super::{Item, Module, Visit, Visitor};

/// A model whose frozen parameters are hidden: its state dict, its checkpoints, its averages and the parameters that an
/// optimizer is made of are those that are trainable, and its buffers except weights that stay packed. What is frozen
/// comes from elsewhere, such as the file of a base, and is no part of what is saved; a captured step holds it as
/// constants.
///
/// Do not freeze or unfreeze parameters between saving and loading, and move the model to its device and dtype before
/// wrapping it.
///
/// ```
/// use polygrad_nn::lora::{self, LoraConfig};
/// use polygrad_nn::{Linear, Module, Trained};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default().into_any();
/// let model = Linear::new(300, 200, &device)?;
/// lora::attach(&model, "default", &LoraConfig::new(2))?;
/// let model = Trained::new(model);
/// assert_eq!(model.num_parameters(), 2 * (300 + 200));
/// # Ok(())
/// # }
/// ```
pub struct Trained<M>(M);

impl<M> Trained<M> {
    /// Hides the frozen parameters of a model.
    pub fn new(model: M) -> Self {
        Self(model)
    }

    /// The whole model.
    pub fn into_inner(self) -> M {
        self.0
    }
}

impl<M> Deref for Trained<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

impl<B: Backend, M: Visit<B>> Visit<B> for Trained<M> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.filtered(&self.0, |item| match item {
            Item::Param(param) => param.is_trainable(),
            Item::Buffer(buffer) => !buffer.is_weight(),
            _ => true,
        });
    }
}

impl<B: Backend, M: Visit<B>> Module<B> for Trained<M> {}

impl<M: fmt::Debug> fmt::Debug for Trained<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trained").field(&self.0).finish()
    }
}
