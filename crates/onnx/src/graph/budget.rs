//! Memory budget for the tensors of one file.

use std::cell::Cell;

use polygrad_core::{Error, ErrorKind, Result};

use super::external::Folder;

/// The folder that external data may come from, and the memory that is left for all tensors together.
pub(super) struct Budget<'a> {
    pub(super) folder: Option<&'a Folder>,
    most: usize,
    left: Cell<usize>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(folder: Option<&'a Folder>, most: usize) -> Self {
        let left = Cell::new(most);
        Self { folder, most, left }
    }

    /// Takes `bytes` for a tensor that temporarily needs `besides` more bytes while it is read.
    ///
    /// # Errors
    /// If that exceeds the budget, or cannot be allocated.
    pub(super) fn take(&self, bytes: usize, besides: usize) -> Result<()> {
        let Some(left) = self.left.get().checked_sub(bytes) else {
            let message = format!(
                "with its {bytes} bytes the tensors of the file take more than the limit of {} for all together",
                self.most
            );
            return Err(Error::new(ErrorKind::OutOfMemory, message)
                .with_hint("raise Options::max_memory_bytes if this is meant"));
        };
        self.left.set(left);
        // Later allocations do not report failure, so the memory is allocated here as a test and freed again.
        let mut probe: Vec<u8> = Vec::new();
        probe
            .try_reserve_exact(bytes.saturating_add(besides))
            .map_err(|_| no_memory(bytes))
    }
}

/// An allocation failed.
pub(super) fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("{bytes} bytes could not be had"))
        .with_hint("free some memory, or take a machine that has more")
}
