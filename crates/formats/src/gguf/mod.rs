//! GGUF, the file format of llama.cpp.
//!
//! Source of the format: ggml's `docs/gguf.md`; of the types: `ggml/include/ggml.h`.

mod block;
mod header;
mod packed;
mod write;

pub(crate) use block::Block;
pub(crate) use header::open;
pub use write::{GgufType, rewrite_gguf};

pub(crate) const MAGIC: &[u8] = b"GGUF";
