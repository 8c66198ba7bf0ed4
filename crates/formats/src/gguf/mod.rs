//! GGUF, the files of llama.cpp.
//!
//! Source of the format: ggml's `docs/gguf.md`; of the types: `ggml/include/ggml.h`.

mod block;
mod header;
mod packed;

pub(crate) use block::Block;
pub(crate) use header::open;

pub(crate) const MAGIC: &[u8] = b"GGUF";
