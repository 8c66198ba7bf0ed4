//! The environment of a case: memory with sentinels around it, and comparisons with the truth.

use std::cell::RefCell;

use polygrad_core::compute::{ComputeBackend, DevicePtr, DeviceView, Kernel};
use polygrad_core::{DType, ErrorKind, HostTensor, Layout, Result, Shape};

use super::options::{DriverOptions, MakeDriver};
use super::outcome::{CaseError, CaseResult, wrong};
use crate::compare::{Comparison, compare};
use crate::tolerance::{Bounds, tolerance};

/// Fills memory that must not be written.
const SENTINEL: u8 = 0xA5;
/// Fills memory that is to be written: NaN in every float.
const UNWRITTEN: u8 = 0xFF;
/// Elements before and after each block, so that all pointers are interior ones and not too well aligned.
const BEFORE: usize = 3;
const BEHIND: usize = 13;

/// The environment of a case.
pub(super) struct Fixture<'a> {
    /// The driver, initialized.
    pub(super) driver: &'a dyn ComputeBackend,
    /// Creates another driver.
    pub(super) make: MakeDriver<'a>,
    pub(super) options: &'a DriverOptions,
    blocks: RefCell<Vec<Allocation>>,
}

struct Allocation {
    base: DevicePtr,
    block: Block,
    /// The contents that must be unchanged at the end, if the block is read-only.
    contents: Option<Vec<u8>>,
}

/// A block of elements in the driver's memory.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) ptr: DevicePtr,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

impl Block {
    pub(super) fn bytes(&self) -> usize {
        self.shape.numel() * self.dtype.size()
    }

    /// A view of the whole block.
    pub(super) fn view(&self) -> DeviceView {
        DeviceView::contiguous(self.ptr, self.dtype, self.shape)
    }

    /// A view of the block with this layout.
    pub(super) fn laid(&self, layout: Layout) -> DeviceView {
        DeviceView::new(self.ptr, self.dtype, layout)
    }
}

impl<'a> Fixture<'a> {
    pub(super) fn new(driver: &'a dyn ComputeBackend, make: MakeDriver<'a>, options: &'a DriverOptions) -> Self {
        Self {
            driver,
            make,
            options,
            blocks: RefCell::default(),
        }
    }

    /// The dtypes that the driver's memory can hold.
    pub(super) fn dtypes(&self) -> Vec<DType> {
        self.driver.capabilities().dtypes
    }

    /// Ends the case if the driver's memory cannot hold a dtype.
    pub(super) fn holds(&self, dtype: DType) -> CaseResult {
        match self.dtypes().contains(&dtype) {
            true => Ok(()),
            false => Err(CaseError::Lacks(format!("{dtype} memory"))),
        }
    }

    /// Ends the case if the driver lacks a kernel.
    pub(super) fn needs(&self, kernel: Kernel, dtype: DType) -> CaseResult {
        self.holds(dtype)?;
        match self.driver.supports(kernel, dtype) {
            true => Ok(()),
            false => Err(CaseError::Lacks(format!("{} of {dtype}", kernel.name()))),
        }
    }

    fn block(&self, dtype: DType, shape: Shape, contents: &[u8], keeps: bool) -> Result<Block> {
        let (before, behind) = (BEFORE * dtype.size(), BEHIND * dtype.size());
        let mut all = vec![SENTINEL; before];
        all.extend_from_slice(contents);
        all.resize(all.len() + behind, SENTINEL);
        let base = self.driver.alloc(all.len())?;
        self.driver.copy_htod(base, &all)?;
        let block = Block {
            ptr: base.add(before),
            dtype,
            shape,
        };
        self.blocks.borrow_mut().push(Allocation {
            base,
            block,
            contents: keeps.then(|| contents.to_vec()),
        });
        Ok(block)
    }

    /// A block with these values, which must be unchanged at the end.
    pub(super) fn put(&self, host: &HostTensor) -> Result<Block> {
        self.block(host.dtype(), *host.shape(), host.bytes(), true)
    }

    /// A block with these values, which may be overwritten.
    pub(super) fn put_to_change(&self, host: &HostTensor) -> Result<Block> {
        self.block(host.dtype(), *host.shape(), host.bytes(), false)
    }

    /// A block to be written.
    pub(super) fn out(&self, dtype: DType, dims: &[usize]) -> Result<Block> {
        let shape = Shape::new(dims)?;
        self.block(dtype, shape, &vec![UNWRITTEN; shape.numel() * dtype.size()], false)
    }

    /// The bytes of a block.
    pub(super) fn bytes(&self, block: &Block) -> Result<Vec<u8>> {
        let mut bytes = vec![0; block.bytes()];
        self.driver.copy_dtoh(&mut bytes, block.ptr)?;
        Ok(bytes)
    }

    /// The values of a block.
    pub(super) fn read(&self, block: &Block) -> CaseResult<HostTensor> {
        let bytes = self.bytes(block)?;
        if block.dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
            return wrong("a bool is neither 0 nor 1");
        }
        Ok(HostTensor::from_bytes(block.dtype, block.shape, &bytes)?)
    }

    /// Checks that a block holds the truth, which is given in f64 for floats.
    pub(super) fn check(&self, what: &str, block: &Block, truth: &HostTensor, bounds: Bounds) -> CaseResult {
        if !self.options.values {
            self.bytes(block)?;
            return Ok(());
        }
        let answer = self.read(block)?;
        self.agrees(what, &answer, truth, bounds)
    }

    /// Checks an answer against the truth.
    pub(super) fn agrees(&self, what: &str, answer: &HostTensor, truth: &HostTensor, bounds: Bounds) -> CaseResult {
        if !self.options.values {
            return Ok(());
        }
        let truth = truth.reshape(*answer.shape())?;
        let dtype = answer.dtype();
        let with = Comparison {
            truth: &truth,
            dtype,
            bounds,
        };
        compare(answer, &with).map_err(|difference| CaseError::Wrong(format!("{what}: {difference}")))
    }

    /// Checks that a block holds the truth, within the bounds of an op.
    pub(super) fn check_op(&self, op: &str, block: &Block, truth: &HostTensor) -> CaseResult {
        self.check(op, block, truth, tolerance(block.dtype, op))
    }

    /// Checks that some elements of a block are correct, and the others are unchanged since it was created by
    /// [`Fixture::out`].
    pub(super) fn check_part(
        &self,
        what: &str,
        block: &Block,
        places: &[usize],
        truth: &HostTensor,
        bounds: Bounds,
    ) -> CaseResult {
        let mut bytes = self.bytes(block)?;
        if !self.options.values {
            return Ok(());
        }
        let size = block.dtype.size();
        let mut picked = Vec::with_capacity(places.len() * size);
        for &place in places {
            let element = &mut bytes[place * size..(place + 1) * size];
            picked.extend_from_slice(element);
            element.fill(UNWRITTEN);
        }
        if let Some(at) = bytes.iter().position(|&byte| byte != UNWRITTEN) {
            return wrong(format!("{what}: it writes element {}, which is not its own", at / size));
        }
        if block.dtype == DType::Bool && picked.iter().any(|&byte| byte > 1) {
            return wrong("a bool is neither 0 nor 1");
        }
        let answer = HostTensor::from_bytes(block.dtype, *truth.shape(), &picked)?;
        self.agrees(what, &answer, truth, bounds)
    }

    /// Checks that a call, or waiting for it, failed with this kind of error.
    pub(super) fn fails(&self, what: &str, kind: ErrorKind, result: Result<()>) -> CaseResult {
        match result.and_then(|()| self.driver.synchronize()) {
            Err(error) if error.kind() == kind => Ok(()),
            Err(error) => wrong(format!("{what}: {} is right, not: {error}", kind.as_str())),
            Ok(()) => wrong(format!("{what}: {} is right, and it goes well", kind.as_str())),
        }
    }

    /// Waits, checks that the memory around all blocks and all read-only blocks are unchanged, and frees everything.
    pub(super) fn finish(&self) -> CaseResult {
        let waited = self.driver.synchronize().map_err(CaseError::from);
        let mut harm = None;
        let mut failed = None;
        for held in self.blocks.borrow_mut().drain(..) {
            let size = held.block.dtype.size();
            let mut all = vec![0; held.block.bytes() + (BEFORE + BEHIND) * size];
            let read = self.driver.copy_dtoh(&mut all, held.base);
            let freed = self.driver.free(held.base);
            failed = failed.or(read.and(freed).err());
            if !self.options.values {
                continue;
            }
            let (before, rest) = all.split_at(BEFORE * size);
            let (inside, behind) = rest.split_at(held.block.bytes());
            let around = before.iter().chain(behind).all(|&byte| byte == SENTINEL);
            if !around {
                harm = Some("it writes outside its operands");
            } else if held.contents.is_some_and(|contents| contents != inside) {
                harm = Some("it writes to an input");
            }
        }
        waited?;
        match (failed, harm) {
            (Some(error), _) => Err(error.into()),
            (None, Some(harm)) => wrong(harm),
            (None, None) => Ok(()),
        }
    }
}
