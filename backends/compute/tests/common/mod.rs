//! Drivers to test with.
#![allow(dead_code, reason = "each test program uses its own part")]

use polygrad_core::Result;
use polygrad_core::compute::*;
use polygrad_cpu::CpuDriver;

/// A driver that has the required kernels and no others.
#[derive(Debug, Default)]
pub(crate) struct Least(CpuDriver);

impl Driver for Least {
    const NAME: &'static str = "least";
}

impl ComputeBackend for Least {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn init(&self) -> Result<()> {
        self.0.init()
    }

    fn is_initialized(&self) -> bool {
        self.0.is_initialized()
    }

    fn capabilities(&self) -> DriverCapabilities {
        self.0.capabilities()
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.0.alloc(bytes)
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.0.free(ptr)
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.0.copy_htod(dst, src)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.0.copy_dtoh(dst, src)
    }

    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    fn gemm(&self, call: &Gemm) -> Result<()> {
        self.0.gemm(call)
    }

    fn batched_gemm(&self, call: &Gemm, batch: &Batch) -> Result<()> {
        self.0.batched_gemm(call, batch)
    }

    fn conv2d_forward(&self, call: &Conv2d) -> Result<()> {
        self.0.conv2d_forward(call)
    }

    fn attention(&self, call: &Attention) -> Result<()> {
        self.0.attention(call)
    }

    fn unary(&self, call: &Unary) -> Result<()> {
        self.0.unary(call)
    }

    fn binary(&self, call: &Binary) -> Result<()> {
        self.0.binary(call)
    }

    fn reduce(&self, call: &Reduce) -> Result<()> {
        self.0.reduce(call)
    }
}
