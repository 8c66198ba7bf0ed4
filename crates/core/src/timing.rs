//! The time of each call of [`AnyBackend`](crate::AnyBackend), and of each step of a replayed program, for profiles.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::observe::bytes_copied_to_update;
use crate::{AnyTensor, DType, Result, Shape, with_local};

/// A call that succeeded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timed<'a> {
    /// The op's name, or the method's, such as `from_host`; `graph` for all of a program that the device has recorded.
    pub name: &'static str,
    /// The types of its operands; for an update, the changed tensors and then the gradient.
    pub operands: &'a [(DType, Shape)],
    /// The types of its results; an update has none.
    pub results: &'a [(DType, Shape)],
    /// When it began.
    pub began: Instant,
    /// When it ended: when the device was done, if the timer waits for it, else when the call returned.
    pub ended: Instant,
    /// Whether it is a step of a replayed program; the layer or call that it belongs to is then unknown.
    pub replayed: bool,
    /// The bytes that an update in place had to copy, since another tensor shares the memory.
    pub copied: u64,
}

type Sink = Rc<dyn Fn(&Timed<'_>)>;

#[derive(Clone)]
struct Timer {
    waits: bool,
    sink: Sink,
}

thread_local! {
    /// Kept apart from the timer itself, since it is checked before each op.
    static ON: Cell<bool> = const { Cell::new(false) };
    static TIMER: RefCell<Option<Timer>> = const { RefCell::new(None) };
}

/// Runs `f`, and reports each call that this thread makes in it to `sink`, except the calls of `sink` itself. If
/// `waits` is set, the timer waits after each call until the device is done. Inside a nested call, only the inner sink
/// gets reports.
pub fn with_timer<R>(waits: bool, sink: Rc<dyn Fn(&Timed<'_>)>, f: impl FnOnce() -> R) -> R {
    /// Restores the previous timer, even if `f` panics.
    struct Restore(Option<Timer>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ON.set(self.0.is_some());
            TIMER.set(self.0.take());
        }
    }
    let _restore = Restore(TIMER.replace(Some(Timer { waits, sink })));
    ON.set(true);
    f()
}

/// Whether calls are timed on this thread.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.get()
}

/// Runs `f` without reporting its calls.
pub(crate) fn paused<R>(f: impl FnOnce() -> R) -> R {
    with_local(&ON, false, f)
}

/// Dtypes and shapes of tensors.
pub(crate) fn types<'a>(tensors: impl IntoIterator<Item = &'a AnyTensor>) -> Vec<(DType, Shape)> {
    tensors.into_iter().map(|x| (x.dtype(), x.shape())).collect()
}

/// Makes a call with `run`, and reports it if a timer is on and the call succeeds.
#[inline]
pub(crate) fn timed<R>(
    (name, replayed): (&'static str, bool),
    operands: impl FnOnce() -> Vec<(DType, Shape)>,
    run: impl FnOnce() -> Result<R>,
    results: impl FnOnce(&R) -> Vec<(DType, Shape)>,
    wait: impl FnOnce() -> Result<()>,
) -> Result<R> {
    if !is_on() {
        return run();
    }
    let timer = TIMER.with_borrow(Clone::clone);
    let Some(timer) = timer else { return run() };
    let operands = operands();
    paused(|| {
        let (began, copied) = (Instant::now(), bytes_copied_to_update());
        let result = run()?;
        let copied = bytes_copied_to_update().wrapping_sub(copied);
        if timer.waits {
            wait()?;
        }
        let ended = Instant::now();
        (timer.sink)(&Timed {
            name,
            operands: &operands,
            results: &results(&result),
            began,
            ended,
            replayed,
            copied,
        });
        Ok(result)
    })
}
