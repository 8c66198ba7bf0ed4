//! Limits on the memory and steps of a model, from reading its file to the end of a run.

use std::cell::Cell;

use polygrad_core::{DType, Error, ErrorKind, Result, Shape};

use super::options::Options;

/// The limits of one run, and its use of them so far.
pub(crate) struct Limits {
    max_tensor_bytes: usize,
    max_memory_bytes: usize,
    /// What the error about a limit suggests.
    hint: &'static str,
    /// Bytes of all values that are alive.
    alive: Cell<usize>,
    steps_left: Cell<u64>,
    depth: Cell<usize>,
}

/// The deepest nesting of If, Loop, Scan and the like.
const MAX_DEPTH: usize = 32;

/// The most steps that are computed when a model is loaded; longer computations are left to the runs.
const MAX_FOLDING: u64 = 1 << 20;

impl Limits {
    /// The limits of a run, beside `alive` bytes that are in use already.
    pub(crate) fn new(options: &Options, alive: usize) -> Self {
        let of_run = alive.saturating_add(options.max_run_bytes);
        Self {
            max_tensor_bytes: options.max_tensor_bytes,
            max_memory_bytes: options.max_memory_bytes.min(of_run),
            hint: match of_run < options.max_memory_bytes {
                true => "raise Options::max_run_bytes if this is meant",
                false => "raise Options::max_memory_bytes if this is meant",
            },
            alive: Cell::new(alive),
            steps_left: Cell::new(options.max_steps),
            depth: Cell::new(0),
        }
    }

    /// The limits of what is computed when a model is loaded.
    pub(crate) fn folding(options: &Options) -> Self {
        let whole = Options {
            max_run_bytes: usize::MAX,
            ..*options
        };
        let limits = Self::new(&whole, 0);
        limits.steps_left.set(options.max_steps.min(MAX_FOLDING));
        limits
    }

    /// Fails if a tensor would be too large by itself, or together with the live values. For ops whose output can be
    /// larger than their input.
    pub(crate) fn check(&self, shape: &Shape, dtype: DType) -> Result<()> {
        self.check_bytes(shape.numel().saturating_mul(dtype.size()))
            .map_err(|e| e.with_op(format!("making {dtype}{shape}")))
    }

    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<()> {
        if bytes > self.max_tensor_bytes {
            let message = format!("{bytes} bytes are more than the limit of {}", self.max_tensor_bytes);
            return Err(Error::new(ErrorKind::OutOfMemory, message)
                .with_hint("raise Options::max_tensor_bytes if this is meant"));
        }
        if bytes <= self.max_memory_bytes.saturating_sub(self.alive.get()) {
            return Ok(());
        }
        Err(self.too_much(bytes))
    }

    #[cold]
    fn too_much(&self, bytes: usize) -> Error {
        let message = format!(
            "{bytes} bytes beside the {} that the model has already are more than the limit of {} for all together",
            self.alive.get(),
            self.max_memory_bytes
        );
        Error::new(ErrorKind::OutOfMemory, message).with_hint(self.hint)
    }

    /// Adds to the bytes that are alive.
    pub(crate) fn add(&self, bytes: usize) -> Result<()> {
        let alive = self.alive.get().saturating_add(bytes);
        if alive > self.max_memory_bytes {
            return Err(self.too_much(bytes));
        }
        self.alive.set(alive);
        Ok(())
    }

    /// Undoes [`Limits::add`].
    pub(crate) fn remove(&self, bytes: usize) {
        self.alive.set(self.alive.get().saturating_sub(bytes));
    }

    /// How many bytes are alive.
    pub(crate) fn alive(&self) -> usize {
        self.alive.get()
    }

    /// Resets the number of bytes alive after a failure.
    pub(crate) fn set_alive(&self, bytes: usize) {
        self.alive.set(bytes);
    }

    /// Tracks memory that an op keeps for itself while it runs bodies; zero at first.
    pub(crate) fn hold(&self) -> Reservation<'_> {
        Reservation { limits: self, bytes: 0 }
    }

    /// An empty list with room for `count` values computed on the host.
    pub(crate) fn list<T>(&self, count: usize) -> Result<Vec<T>> {
        self.check_bytes(count.saturating_mul(size_of::<T>()))?;
        room(count)
    }

    /// Counts one step.
    pub(crate) fn step(&self) -> Result<()> {
        match self.steps_left.get().checked_sub(1) {
            Some(left) => {
                self.steps_left.set(left);
                Ok(())
            }
            None => Err(Error::invalid("the run took more steps than it may")
                .with_hint("look for a Loop that never ends, or raise Options::max_steps")),
        }
    }

    /// Runs `run` one nesting level deeper.
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

/// Bytes that count as alive until this is dropped.
pub(crate) struct Reservation<'a> {
    limits: &'a Limits,
    bytes: usize,
}

impl Reservation<'_> {
    /// Sets the number of bytes counted, whatever it was before.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<()> {
        self.limits.remove(std::mem::take(&mut self.bytes));
        self.limits.add(bytes)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.limits.remove(self.bytes);
    }
}

/// An empty list with room for `count` values, or an error if the memory cannot be allocated.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::OutOfMemory, format!("{bytes} bytes could not be had"))
            .with_hint("free some memory, or give the model less to do at a time")
    })?;
    Ok(list)
}
