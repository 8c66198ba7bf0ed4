//! How much the tensors of one file may take.

use std::cell::Cell;

use polygrad_core::{Error, ErrorKind, Result};

use super::external::Folder;

/// Where external data may come from, and what is left of the memory for all tensors together.
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

    /// Takes so many bytes for a tensor, which needs `besides` for a moment while it is read.
    ///
    /// # Errors
    /// When that is more than is left, or than can be had.
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
        // What follows may not fail for want of memory: it is asked for at once, and given back.
        let mut probe: Vec<u8> = Vec::new();
        probe
            .try_reserve_exact(bytes.saturating_add(besides))
            .map_err(|_| no_memory(bytes))
    }
}

/// Memory could not be had.
pub(super) fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("{bytes} bytes could not be had"))
        .with_hint("free some memory, or take a machine that has more")
}
