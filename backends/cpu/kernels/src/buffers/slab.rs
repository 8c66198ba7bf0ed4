//! Parts of large blocks, for tensors that are too small for huge pages of their own.

use std::sync::Mutex;

use polygrad_core::Result;

use super::cache::lock;
use super::{ALIGN, Buffer, HUGE_PAGE};

/// Bytes of a block that is cut into parts.
const SLAB: usize = 16 * HUGE_PAGE;

/// The most bytes of a part; more get a block of their own.
const PART: usize = SLAB / 4;

/// A block whose first bytes are taken.
struct Slab {
    block: Buffer,
    taken: usize,
}

/// The block that the next parts are from.
static LAST: Mutex<Option<Slab>> = Mutex::new(None);

impl Buffer {
    /// Memory in huge pages, if the system has them: a block, and the place in it where `bytes` uninitialized bytes
    /// begin, 64-byte aligned. Other tensors may have other parts of the block, which lives as long as any of them.
    ///
    /// # Errors
    /// As [`Buffer::alloc`].
    pub fn in_huge_pages(bytes: usize) -> Result<(Self, usize)> {
        if bytes > PART {
            return Ok((Self::alloc(bytes)?, 0));
        }
        let mut last = lock(&LAST);
        let mut slab = match last.take() {
            // No tensor has a part any more.
            Some(slab) if slab.block.is_unique() => Slab { taken: 0, ..slab },
            Some(slab) if SLAB - slab.taken >= bytes => slab,
            _ => Slab {
                block: Self::alloc(SLAB)?,
                taken: 0,
            },
        };
        let at = slab.taken;
        slab.taken = (at + bytes).next_multiple_of(ALIGN);
        let block = slab.block.clone();
        *last = Some(slab);
        Ok((block, at))
    }
}
