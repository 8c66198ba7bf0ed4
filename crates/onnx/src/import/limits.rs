//! How much a model may take, from the first byte of its file to the last of a run.

use std::cell::Cell;

use polygrad_core::{DType, Error, ErrorKind, Result, Shape};

use super::options::Options;

/// What one run may take, and what it took so far.
pub(crate) struct Limits {
    max_tensor_bytes: usize,
    max_memory_bytes: usize,
    /// What an error about that says to do.
    hint: &'static str,
    /// Bytes of all values that are alive.
    alive: Cell<usize>,
    steps_left: Cell<u64>,
    depth: Cell<usize>,
}

/// How deep If, Loop, Scan and their like may call each other.
const MAX_DEPTH: usize = 32;

/// The most steps that are taken when a model is loaded: what takes longer is left to its runs.
const MAX_FOLDING: u64 = 1 << 20;

impl Limits {
    /// Those of a run, beside `alive` bytes that are there already.
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

    /// Those of what is computed when a model is loaded.
    pub(crate) fn folding(options: &Options) -> Self {
        let whole = Options {
            max_run_bytes: usize::MAX,
            ..*options
        };
        let limits = Self::new(&whole, 0);
        limits.steps_left.set(options.max_steps.min(MAX_FOLDING));
        limits
    }

    /// Fails when a tensor would be too large, or too much beside what is alive. For ops whose output can be larger
    /// than what they are given.
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

    /// Counts bytes as alive.
    pub(crate) fn add(&self, bytes: usize) -> Result<()> {
        let alive = self.alive.get().saturating_add(bytes);
        if alive > self.max_memory_bytes {
            return Err(self.too_much(bytes));
        }
        self.alive.set(alive);
        Ok(())
    }

    /// Takes back what [`Limits::add`] counted.
    pub(crate) fn remove(&self, bytes: usize) {
        self.alive.set(self.alive.get().saturating_sub(bytes));
    }

    /// How many bytes are alive.
    pub(crate) fn alive(&self) -> usize {
        self.alive.get()
    }

    /// Says how many bytes are alive again, after something failed half-way.
    pub(crate) fn set_alive(&self, bytes: usize) {
        self.alive.set(bytes);
    }

    /// What an op keeps for itself while it runs bodies; nothing yet.
    pub(crate) fn hold(&self) -> Reservation<'_> {
        Reservation { limits: self, bytes: 0 }
    }

    /// An empty list with room for so many values computed on the host.
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

/// Bytes that are counted as alive until this goes.
pub(crate) struct Reservation<'a> {
    limits: &'a Limits,
    bytes: usize,
}

impl Reservation<'_> {
    /// Counts so many bytes from now on, whatever they were before.
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

/// An empty list with room for so many values, or an error where the memory cannot be had.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::OutOfMemory, format!("{bytes} bytes could not be had"))
            .with_hint("free some memory, or give the model less to do at a time")
    })?;
    Ok(list)
}
