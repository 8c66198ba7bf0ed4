//! Files: state dicts and checkpoints.

mod atomic;
mod checkpoint;
mod own;
mod safetensors;
mod stored;

pub use atomic::{AtomicFile, abandon_files, replace_file};
pub use checkpoint::Checkpoint;
pub use own::{lies_at, open_own};
pub use polygrad_core::open_file;
pub use safetensors::{SafetensorsEntry, SafetensorsHeader, about_tensor, in_file};
pub use stored::{Stored, reserved, strided, unreadable};
