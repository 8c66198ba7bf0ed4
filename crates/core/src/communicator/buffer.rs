//! Memory for values of any dtype.

use crate::host::room;
use crate::{HostBytes, Result};

/// Bytes in host memory, aligned for every dtype, which a [`HostTensor`](crate::HostTensor) can share.
#[derive(Debug, Default)]
pub struct HostBuffer {
    words: Vec<i64>,
    len: usize,
}

impl HostBuffer {
    /// `len` bytes, all zero.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) when memory runs out.
    pub fn new(len: usize) -> Result<Self> {
        let count = len.div_ceil(size_of::<u64>());
        let mut words = room(count)?;
        words.resize(count, 0);
        Ok(Self { words, len })
    }

    /// A copy of bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) when memory runs out.
    pub fn copied(bytes: &[u8]) -> Result<Self> {
        let mut buffer = Self::new(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    /// The bytes, mutably.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }
}

impl HostBytes for HostBuffer {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }
}
