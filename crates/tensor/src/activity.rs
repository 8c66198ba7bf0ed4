//! For whose sake ops run: so that profiles can tell the passes and the modules apart.

use std::cell::Cell;

/// For whose sake a thread computes. Nodes are those of [`Tensor::node_id`](crate::Tensor::node_id).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// The program's own: a forward pass, or anything else.
    #[default]
    Direct,
    /// A backward pass: the gradient of this node.
    Backward(u64),
    /// An update in place of this leaf, as optimizers make: [`Tensor::update`](crate::Tensor::update).
    Update(u64),
}

thread_local! {
    static ACTIVITY: Cell<Activity> = const { Cell::new(Activity::Direct) };
}

/// For whose sake this thread computes at the moment: for wrappers of a device, which see ops and not
/// where they come from.
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

/// An activity that ends when this is dropped, on errors and panics too.
pub(crate) struct Active(Activity);

impl Active {
    #[inline]
    pub(crate) fn begin(activity: Activity) -> Self {
        Self(ACTIVITY.replace(activity))
    }

    /// Goes on with another one.
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
