//! Files: state dicts and checkpoints.

mod atomic;
mod checkpoint;
mod open;
mod safetensors;

pub use atomic::{AtomicFile, replace_file};
pub use checkpoint::Checkpoint;
pub use open::open_file;
