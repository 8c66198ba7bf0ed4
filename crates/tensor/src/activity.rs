//! The purpose for which ops are computed, by which profiles tell passes and modules apart.

use std::cell::Cell;

/// The purpose of the ops of a thread. Nodes are given by their [`Tensor::node_id`](crate::Tensor::node_id).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// The program's own ops: a forward pass, or anything else.
    #[default]
    Direct,
    /// A backward pass: the gradient of this node.
    Backward(u64),
    /// An update of this leaf in place, as by an optimizer: [`Tensor::update`](crate::Tensor::update).
    Update(u64),
}

thread_local! {
    static ACTIVITY: Cell<Activity> = const { Cell::new(Activity::Direct) };
}

/// The current activity of this thread. For wrappers of a device, which see ops, but not where they come from.
///
/// ```
/// use polygrad_tensor::{Activity, activity};
///
/// assert_eq!(activity(), Activity::Direct);
/// ```
#[inline]
pub fn activity() -> Activity {
    ACTIVITY.get()
}

/// An activity that ends when this is dropped, also on errors and panics.
pub(crate) struct Active(Activity);

impl Active {
    #[inline]
    pub(crate) fn begin(activity: Activity) -> Self {
        Self(ACTIVITY.replace(activity))
    }

    /// Switches to another activity.
    #[inline]
    pub(crate) fn turn_to(&self, activity: Activity) {
        ACTIVITY.set(activity);
    }
}

impl Drop for Active {
    #[inline]
    fn drop(&mut self) {
        ACTIVITY.set(self.0);
    }
}
