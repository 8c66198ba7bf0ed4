//! The driver over an emulated GPU, its kernels under NVIDIA's compiler, and its errors if CUDA is missing.

mod attention;
mod elementwise;
#[path = "../emulator/mod.rs"]
mod emulator;
mod graphs;
mod index;
mod lines;
mod missing;
mod nvrtc;
mod products;
mod record;
mod support;
mod windows;
