//! The trait of kernels.

use std::any::Any;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use polygrad_core::Result;

use crate::source::{Access, Slots};

/// A kernel: exactly the properties that its shader's text depends on, so that equal kernels are compiled once.
pub(crate) trait Kernel: Key + Debug {
    /// The name in labels and errors.
    fn name(&self) -> &'static str;

    /// The access to each operand, in order.
    fn accesses(&self) -> Vec<Access>;

    /// The shader.
    fn source(&self, slots: &Slots) -> Result<String>;
}

/// A value that can be compared and hashed as a trait object.
pub(crate) trait Key: Any + Send {
    fn equals(&self, other: &dyn Any) -> bool;
    fn feed(&self, hasher: &mut dyn Hasher);
}

impl<T: Any + Send + Eq + Hash> Key for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn feed(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

impl PartialEq for dyn Kernel {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

impl Eq for dyn Kernel {}

impl Hash for dyn Kernel {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.feed(hasher);
    }
}
