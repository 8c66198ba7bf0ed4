//! Files: state dicts and checkpoints.

mod atomic;
mod checkpoint;
mod safetensors;

pub(crate) use atomic::replace as replace_file;

pub use checkpoint::Checkpoint;
