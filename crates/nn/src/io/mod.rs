//! Files: state dicts and checkpoints.

mod atomic;
mod checkpoint;

mod safetensors;

pub use atomic::{AtomicFile, replace_file};
pub use checkpoint::Checkpoint;
pub use polygrad_core::open_file;
