//! A look at the results of ops while a forward pass runs.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use polygrad_core::Backend;

use crate::Tensor;
use crate::activity::{Activity, activity};

/// What an op took first, and what it gave first: to be downcast from what [`with_op_hook`] is given.
#[doc(hidden)]
pub struct OpCall<B: Backend> {
    pub input: Tensor<B>,
    pub output: Tensor<B>,
}

type Hook = Rc<dyn Fn(&'static str, &dyn Any)>;

thread_local! {
    /// Beside the hook itself, for it is asked after each op.
    static ON: Cell<bool> = const { Cell::new(false) };
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Runs `f`, and calls the hook with the name of each op that takes tensors, of a forward pass on this thread, and an
/// [`OpCall`]. What the hook itself computes it is not told of. One of these inside of another is alone until it ends.
#[doc(hidden)]
pub fn with_op_hook<R>(hook: Hook, f: impl FnOnce() -> R) -> R {
    /// Puts the hook before it back when `f` panics, too.
    struct Restore(Option<Hook>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ON.set(self.0.is_some());
            HOOK.set(self.0.take());
        }
    }
    let _restore = Restore(HOOK.replace(Some(hook)));
    ON.set(true);
    f()
}

#[inline]
pub(crate) fn is_on() -> bool {
    ON.get()
}

/// Tells of a result.
#[cold]
pub(crate) fn report<B: Backend>(op: &'static str, inputs: &[&Tensor<B>], output: &Tensor<B>) {
    struct On;
    impl Drop for On {
        fn drop(&mut self) {
            ON.set(true);
        }
    }
    let (Some(input), Activity::Direct) = (inputs.first(), activity()) else {
        return;
    };
    let Some(hook) = HOOK.with_borrow(Clone::clone) else {
        return;
    };
    ON.set(false);
    let _on = On;
    let call = OpCall {
        input: (*input).clone(),
        output: output.clone(),
    };
    hook(op, &call);
}
