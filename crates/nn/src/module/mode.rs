//! The switch between training and evaluation.

use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_tensor::Backend;

use super::{Item, Visit, Visitor};

/// The switch between training and evaluation, which [`Module::train`](crate::Module::train) and
/// [`eval`](crate::Module::eval) set in the whole model. Modules that behave differently in the two have it as a field.
/// Default: training.
#[derive(Debug)]
pub struct Mode(AtomicBool);

impl Mode {
    /// Whether the module is being trained.
    #[inline]
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Switches only this module.
    pub fn set_training(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

/// A separate switch in the same state.
impl Clone for Mode {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.is_training()))
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl<B: Backend> Visit<B> for Mode {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Mode(self));
    }
}
