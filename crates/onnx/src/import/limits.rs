//! How much a run may take.

use std::cell::Cell;

use polygrad_core::{DType, Error, ErrorKind, Result, Shape};

/// What one run may take, and what it took so far.
pub(crate) struct Limits {
    max_tensor_bytes: usize,
    steps_left: Cell<u64>,
    depth: Cell<usize>,
}

/// How deep If, Loop, Scan and their like may call each other.
const MAX_DEPTH: usize = 32;

impl Limits {
    pub(crate) fn new(max_tensor_bytes: usize, max_steps: u64) -> Self {
        Self {
            max_tensor_bytes,
            steps_left: Cell::new(max_steps),
            depth: Cell::new(0),
        }
    }

    /// Fails when a tensor would be too large. For ops whose output can be larger than what they are given.
    pub(crate) fn check(&self, shape: &Shape, dtype: DType) -> Result<()> {
        self.check_bytes(shape.numel().saturating_mul(dtype.size()))
            .map_err(|e| e.with_op(format!("making {dtype}{shape}")))
    }

    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<()> {
        if bytes <= self.max_tensor_bytes {
            return Ok(());
        }
        let message = format!("{bytes} bytes are more than the limit of {}", self.max_tensor_bytes);
        Err(Error::new(ErrorKind::OutOfMemory, message).with_hint("raise Options::max_tensor_bytes if this is meant"))
    }

    /// Counts one step.
    pub(crate) fn step(&self) -> Result<()> {
        match self.steps_left.get().checked_sub(1) {
            Some(left) => {
                self.steps_left.set(left);
                Ok(())
            }
            None => Err(Error::invalid("the run took more steps than Options::max_steps allows")
                .with_hint("look for a Loop that never ends")),
        }
    }

    /// Runs something inside another body.
    pub(crate) fn nested<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.depth.get() >= MAX_DEPTH {
            return Err(Error::invalid(format!(
                "bodies run more than {MAX_DEPTH} deep in each other"
            )));
        }
        self.depth.set(self.depth.get() + 1);
        let outcome = run();
        self.depth.set(self.depth.get() - 1);
        outcome
    }
}
