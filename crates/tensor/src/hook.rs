//! A hook that sees the results of ops during a forward pass.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use polygrad_core::{Backend, with_local};

use crate::Tensor;
use crate::activity::{Activity, activity};

/// The first input and the first output of an op; the hook of [`with_op_hook`] downcasts its argument to this.
#[doc(hidden)]
pub struct OpCall<B: Backend> {
    pub input: Tensor<B>,
    pub output: Tensor<B>,
}

type Hook = Rc<dyn Fn(&'static str, &dyn Any)>;

thread_local! {
    /// Kept apart from the hook itself, since it is checked after each op.
    static ON: Cell<bool> = const { Cell::new(false) };
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Runs `f`, and calls the hook for each op on tensors in a forward pass on this thread, with the op's name and an
/// [`OpCall`]. Ops that the hook itself computes are not reported. Inside a nested call only the inner hook is called.
#[doc(hidden)]
pub fn with_op_hook<R>(hook: Hook, f: impl FnOnce() -> R) -> R {
    /// Restores the previous hook, even if `f` panics.
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

/// Whether this thread is in [`with_op_hook`].
#[doc(hidden)]
pub fn has_op_hook() -> bool {
    is_on()
}

#[inline]
pub(crate) fn is_on() -> bool {
    ON.get()
}

/// Reports a result to the hook.
#[cold]
pub(crate) fn report<B: Backend>(op: &'static str, inputs: &[&Tensor<B>], output: &Tensor<B>) {
    let (Some(input), Activity::Direct) = (inputs.first(), activity()) else {
        return;
    };
    let Some(hook) = HOOK.with_borrow(Clone::clone) else {
        return;
    };
    let call = OpCall {
        input: (*input).clone(),
        output: output.clone(),
    };
    with_local(&ON, false, || hook(op, &call));
}
