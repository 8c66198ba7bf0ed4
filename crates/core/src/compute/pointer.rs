//! Addresses in a device's memory, and the allocations at them.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Error, ErrorKind, Result};

/// An address in a device's memory, in bytes. It is only meaningful to the driver that returned it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevicePtr(u64);

impl DevicePtr {
    /// The null pointer.
    pub const NULL: Self = Self(0);

    /// An address as a number.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// An interior pointer, `bytes` further on. Whether it lies in an allocation is checked where it is used.
    #[must_use]
    pub const fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes as u64))
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A driver's allocations by address, to check every pointer and extent against.
///
/// For devices without addresses it makes addresses up. These are never reused and have gaps in between, so that
/// pointers to freed memory or past the end of an allocation are recognised.
#[derive(Debug)]
pub struct AddressSpace<T> {
    blocks: BTreeMap<u64, Block<T>>,
    next: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Block<T> {
    bytes: usize,
    value: T,
}

/// Unused bytes between two allocations, and before the first.
const GAP: u64 = 1 << 16;
/// Addresses are multiples of this.
const ALIGNMENT: u64 = 256;

impl<T> Default for AddressSpace<T> {
    fn default() -> Self {
        Self {
            blocks: BTreeMap::new(),
            next: GAP,
            bytes: 0,
        }
    }
}

impl<T> AddressSpace<T> {
    /// Assigns an address, a multiple of 256, to an allocation of `bytes` bytes, which may be 0.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) when the address space is exhausted.
    pub fn insert(&mut self, bytes: usize, value: T) -> Result<DevicePtr> {
        let address = self.next;
        let next = address
            .checked_add(bytes as u64)
            .and_then(|end| end.checked_add(GAP))
            .and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        let Some(next) = next else {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!("{bytes} bytes are more than there are addresses"),
            ));
        };
        self.next = next;
        self.insert_at(DevicePtr(address), bytes, value);
        Ok(DevicePtr(address))
    }

    /// Enters an allocation at an address that the device assigned.
    pub fn insert_at(&mut self, ptr: DevicePtr, bytes: usize, value: T) {
        self.bytes += bytes as u64;
        self.blocks.insert(ptr.0, Block { bytes, value });
    }

    /// Removes an allocation.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when none begins at `ptr`, such as a freed or interior
    /// pointer, or one of another driver.
    pub fn remove(&mut self, ptr: DevicePtr) -> Result<T> {
        let Some(block) = self.blocks.remove(&ptr.0) else {
            return Err(Error::invalid(format!("no allocation begins at {ptr:?}"))
                .with_hint("free takes what alloc gave, once"));
        };
        self.bytes -= block.bytes as u64;
        Ok(block.value)
    }

    /// The allocation that contains the `bytes` bytes from `ptr` on, and the offset of `ptr` in it, in bytes.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there is none, or the range extends beyond it.
    pub fn find(&self, ptr: DevicePtr, bytes: usize) -> Result<(&T, usize)> {
        let (block, at) = self.locate(ptr, bytes)?;
        Ok((&self.blocks[&block].value, at))
    }

    /// [`AddressSpace::find`] with the value mutable.
    ///
    /// # Errors
    /// As [`AddressSpace::find`].
    pub fn find_mut(&mut self, ptr: DevicePtr, bytes: usize) -> Result<(&mut T, usize)> {
        let (block, at) = self.locate(ptr, bytes)?;
        match self.blocks.get_mut(&block) {
            Some(block) => Ok((&mut block.value, at)),
            None => unreachable!("it was found before"),
        }
    }

    pub(super) fn locate(&self, ptr: DevicePtr, bytes: usize) -> Result<(u64, usize)> {
        let unknown = || {
            Error::invalid(format!("{ptr:?} lies in no allocation"))
                .with_hint("it was freed, or comes from another driver")
        };
        let (&base, block) = self.blocks.range(..=ptr.0).next_back().ok_or_else(unknown)?;
        let at = ptr.0 - base;
        if at > block.bytes as u64 {
            return Err(unknown());
        }
        if bytes as u64 > block.bytes as u64 - at {
            return Err(Error::invalid(format!(
                "{bytes} bytes from {ptr:?} reach beyond their allocation, which has {} from there",
                block.bytes as u64 - at
            )));
        }
        Ok((base, at as usize))
    }

    /// How many allocations there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The size of all allocations together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_found_inside_their_allocation_alone() {
        let mut space = AddressSpace::default();
        let a = space.insert(100, 'a').unwrap();
        let b = space.insert(0, 'b').unwrap();
        assert_eq!(space.find(a.add(40), 60).unwrap(), (&'a', 40));
        assert_eq!(space.find(a.add(100), 0).unwrap(), (&'a', 100));
        assert_eq!(space.find(b, 0).unwrap(), (&'b', 0));
        for (ptr, bytes) in [
            (a.add(40), 61),
            (a.add(101), 0),
            (b, 1),
            (DevicePtr::NULL, 0),
            (DevicePtr::new(u64::MAX), usize::MAX),
        ] {
            let error = space.find(ptr, bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{ptr:?} {bytes}");
        }
        assert_eq!((space.len(), space.bytes()), (2, 100));
        assert!(space.remove(a.add(1)).is_err());
        assert_eq!(space.remove(a).unwrap(), 'a');
        assert!(space.remove(a).is_err() && space.find(a, 0).is_err());
        assert_eq!(space.remove(b).unwrap(), 'b');
        assert!(space.is_empty() && space.bytes() == 0);
        // An address is never given twice.
        assert_ne!(space.insert(100, 'c').unwrap(), a);
        assert_eq!(
            space.insert(usize::MAX, 'd').unwrap_err().kind(),
            ErrorKind::OutOfMemory
        );
    }
}
