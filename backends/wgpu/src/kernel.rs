//! What a kernel is.

use std::any::Any;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use polygrad_core::Result;

use crate::source::{Access, Slots};

/// A kernel: what its shader's text depends on, and nothing else, so that equal ones are compiled once.
pub(crate) trait Kernel: Key + Debug {
    /// For labels and errors.
    fn name(&self) -> &'static str;

    /// What happens to each operand, in order.
    fn accesses(&self) -> Vec<Access>;

    /// The shader.
    fn source(&self, slots: &Slots) -> Result<String>;
}

/// What can be told apart from others of any type.
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
