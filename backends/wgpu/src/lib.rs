//! Polygrad's driver for GPUs: Vulkan, Metal, DirectX 12 and browsers' WebGPU, with shaders in WGSL.
//!
//! [`WgpuDriver`] is a [`ComputeBackend`](polygrad_core::compute::ComputeBackend); `Compute<WgpuDriver>` of
//! polygrad-compute makes it a backend. Every shader's text is generated when it is first needed; [`shaders`] generates
//! all of them without an adapter.

mod adapter;
mod attention;
#[cfg(target_arch = "wasm32")]
mod browser;
mod conv;
mod driver;
mod elementwise;
mod failure;
mod flash;
mod gemm;
mod gpu;
mod index;
mod kernel;
mod loss;
mod memory;
mod pool;
mod random;
mod reduce;
mod rows;
mod scan;
pub mod shaders;
mod sort;
mod source;
mod state;
mod table;
mod team;
mod tile;
mod wait;

pub use driver::WgpuDriver;
