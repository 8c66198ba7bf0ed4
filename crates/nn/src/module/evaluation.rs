//! Temporary evaluation mode.

use std::marker::PhantomData;

use polygrad_tensor::Backend;

use super::{Item, Visit, Visitor};

/// Keeps a model in evaluation; dropping this restores the modes.
pub struct Evaluation<'a, B: Backend, M: Visit<B> + ?Sized> {
    model: &'a M,
    modes: Vec<bool>,
    backend: PhantomData<B>,
}

impl<'a, B: Backend, M: Visit<B> + ?Sized> Evaluation<'a, B, M> {
    /// Switches a model to evaluation.
    #[must_use]
    pub fn of(model: &'a M) -> Self {
        let mut modes = Vec::new();
        Visitor::walk(model, |_, item: Item<'_, B>| {
            if let Item::Mode(mode) = item {
                modes.push(mode.is_training());
                mode.set_training(false);
            }
        });
        Self {
            model,
            modes,
            backend: PhantomData,
        }
    }
}

impl<B: Backend, M: Visit<B> + ?Sized> Drop for Evaluation<'_, B, M> {
    fn drop(&mut self) {
        let mut modes = self.modes.iter();
        Visitor::walk(self.model, |_, item: Item<'_, B>| {
            if let Item::Mode(mode) = item
                && let Some(&training) = modes.next()
            {
                mode.set_training(training);
            }
        });
    }
}

impl<B: Backend, M: Visit<B> + ?Sized> std::fmt::Debug for Evaluation<'_, B, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evaluation")
            .field("modes", &self.modes)
            .finish_non_exhaustive()
    }
}
