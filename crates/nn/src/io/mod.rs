//! Files: state dicts and checkpoints.

mod atomic;
mod checkpoint;
mod safetensors;

pub use checkpoint::Checkpoint;
