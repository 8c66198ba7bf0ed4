//! Files: state dicts and checkpoints.

mod atomic;
mod checkpoint;
mod safetensors;

pub use atomic::replace_file;
pub use checkpoint::Checkpoint;
