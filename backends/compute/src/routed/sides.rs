//! The two drivers, and memory that lies with either.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use polygrad_core::compute::{AddressSpace, ComputeBackend, DevicePtr, DriverCapabilities, Operand};
use polygrad_core::{Error, ErrorKind, Result};

use super::Side;
use super::held::Held;

/// An allocation: where it lies with each side that has needed it, and who holds what of it.
#[derive(Debug)]
pub(super) struct Block {
    at: [Option<DevicePtr>; 2],
    bytes: usize,
    held: Held,
}

/// What a call writes or reads: an allocation, and which bytes of it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) base: DevicePtr,
    /// Where in it the call's pointer points.
    pub(super) at: usize,
    /// Which bytes of the allocation are touched.
    pub(super) bytes: Range<usize>,
}

pub(super) type Memory = AddressSpace<Block>;

/// What a side offers, once it is initialized.
pub(super) type Offers = [DriverCapabilities; 2];

/// The two drivers.
#[derive(Debug)]
pub(super) struct Sides {
    drivers: [Box<dyn ComputeBackend>; 2],
    /// Whether a side was given something to do since it was last waited for.
    busy: [AtomicBool; 2],
}

impl Sides {
    pub(super) fn new(small: Box<dyn ComputeBackend>, large: Box<dyn ComputeBackend>) -> Self {
        Self {
            drivers: [small, large],
            busy: Default::default(),
        }
    }

    pub(super) fn of(&self, side: Side) -> &dyn ComputeBackend {
        &*self.drivers[side.index()]
    }

    pub(super) fn both(&self) -> impl Iterator<Item = &dyn ComputeBackend> {
        self.drivers.iter().map(|driver| &**driver)
    }

    /// Waits for a side, if there is something to wait for.
    pub(super) fn wait(&self, side: Side) -> Result<()> {
        if self.busy[side.index()].swap(false, Ordering::Relaxed) {
            self.of(side).synchronize()?;
        }
        Ok(())
    }

    /// Waits for both, also if the first fails.
    pub(super) fn synchronize(&self) -> Result<()> {
        let [small, large] = [Side::Small, Side::Large].map(|side| {
            self.busy[side.index()].store(false, Ordering::Relaxed);
            self.of(side).synchronize()
        });
        small.and(large)
    }

    fn read(&self, side: Side, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.of(side).copy_dtoh(dst, src)?;
        self.busy[side.index()].store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Memory that lies with the large side from the start, so that none is had where that side has none.
    pub(super) fn alloc(&self, memory: &mut Memory, bytes: usize) -> Result<DevicePtr> {
        let large = self.of(Side::Large);
        let ptr = large.alloc(bytes)?;
        let block = Block {
            at: [None, Some(ptr)],
            bytes,
            held: Held::default(),
        };
        memory.insert(bytes, block).or_else(|error| {
            large.free(ptr)?;
            Err(error)
        })
    }

    /// Gives both sides their memory back, also if the first will not take it.
    pub(super) fn free(&self, memory: &mut Memory, ptr: DevicePtr) -> Result<()> {
        let block = memory.remove(ptr)?;
        let mut done = Ok(());
        for (driver, at) in self.both().zip(block.at) {
            done = done.and(at.map_or(Ok(()), |at| driver.free(at)));
        }
        done
    }

    /// Lets a side do something with operands. Where it lacks what they hold, it gets that first; what it writes, it holds alone then.
    /// `moved` counts the bytes that are copied from side to side.
    pub(super) fn run(
        &self,
        side: Side,
        memory: &mut Memory,
        operands: &[(Operand, Option<Place>)],
        moved: &AtomicU64,
        call: impl FnOnce(&dyn ComputeBackend, &[DevicePtr]) -> Result<()>,
    ) -> Result<()> {
        let mut ptrs = Vec::with_capacity(operands.len());
        for (operand, place) in operands {
            let Some(place) = place else {
                ptrs.push(DevicePtr::NULL);
                continue;
            };
            let (block, _) = memory.find_mut(place.base, 0)?;
            let ptr = self.have(side, block)?;
            if !operand.is_replaced() {
                moved.fetch_add(self.bring(side, block, &place.bytes)?, Ordering::Relaxed);
            }
            ptrs.push(ptr.add(place.at));
        }
        self.busy[side.index()].store(true, Ordering::Relaxed);
        let done = call(self.of(side), &ptrs);
        for (operand, place) in operands {
            let Some(place) = place else { continue };
            if operand.access.writes() {
                let (block, _) = memory.find_mut(place.base, 0)?;
                match &done {
                    Ok(()) => block.held.written(place.bytes.clone(), side),
                    Err(error) if error.kind() == ErrorKind::Unsupported => {}
                    Err(_) => block.held.doubted(place.bytes.clone(), side),
                }
            }
        }
        done
    }

    /// The block's memory with a side.
    fn have(&self, side: Side, block: &mut Block) -> Result<DevicePtr> {
        if let Some(ptr) = block.at[side.index()] {
            return Ok(ptr);
        }
        let ptr = self.of(side).alloc(block.bytes)?;
        block.at[side.index()] = Some(ptr);
        Ok(ptr)
    }

    /// Copies what a side lacks of these bytes from the other; gives how many.
    fn bring(&self, side: Side, block: &mut Block, bytes: &Range<usize>) -> Result<u64> {
        let mut moved = 0;
        for stretch in block.held.missing(bytes, side) {
            let [Some(from), Some(to)] = [side.other(), side].map(|side| block.at[side.index()]) else {
                unreachable!("who holds bytes has memory for them, and so has who asks")
            };
            let mut host = host(stretch.len())?;
            self.read(side.other(), &mut host, from.add(stretch.start))?;
            self.of(side).copy_htod(to.add(stretch.start), &host)?;
            moved += host.len() as u64;
            block.held.copied(stretch, side);
        }
        Ok(moved)
    }

    /// Reads bytes from where they are. What went wrong on the side that is not read is heard too.
    pub(super) fn copy_dtoh(&self, memory: &Memory, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        let (block, start) = memory.find(src, dst.len())?;
        let sources = block.held.sources(&(start..start + dst.len()));
        for side in [Side::Small, Side::Large] {
            if sources.iter().all(|(_, read)| *read != side) {
                self.wait(side)?;
            }
        }
        for (stretch, side) in sources {
            let Some(from) = block.at[side.index()] else {
                unreachable!(
                    "who holds bytes has memory for them, and what nobody holds is read from the large side, which always has"
                )
            };
            let part = &mut dst[stretch.start - start..stretch.end - start];
            self.read(side, part, from.add(stretch.start))?;
        }
        Ok(())
    }

    /// The side that holds all of these bytes where the other does not, if there is one.
    pub(super) fn holder(memory: &Memory, place: &Place) -> Result<Option<Side>> {
        let (block, _) = memory.find(place.base, 0)?;
        let holds = |side: &Side| block.held.missing(&place.bytes, *side).is_empty();
        let [small, large] = [Side::Small, Side::Large].map(|side| holds(&side));
        Ok(match (small, large) {
            (true, false) => Some(Side::Small),
            (false, true) => Some(Side::Large),
            _ => None,
        })
    }
}

/// Bytes on the host.
fn host(bytes: usize) -> Result<Vec<u8>> {
    let mut host = Vec::new();
    host.try_reserve_exact(bytes)
        .map_err(|e| Error::new(ErrorKind::OutOfMemory, format!("no {bytes} bytes on the host")).with_source(e))?;
    host.resize(bytes, 0);
    Ok(host)
}
