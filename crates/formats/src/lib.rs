//! Checkpoints written by other libraries: PyTorch's `.pt`, safetensors in one file or in shards, NumPy's `.npy` and
//! `.npz`, GGUF.
//!
//! [`TensorFile::open`] detects a file's format from its content, and reads names, dtypes and shapes. Values are read
//! on demand. No code in a file is run: only the parts of pickles that make up tensors and containers are understood.
//!
//! ```
//! use polygrad_formats::{TensorFile, save};
//! use polygrad_nn::StateDict;
//! use polygrad_tensor::{HostTensor, Result, Shape};
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().expect("a temporary folder");
//! # let path = folder.path().join("model.pt");
//! let mut state = StateDict::new();
//! state.insert("fc.weight", HostTensor::new(Shape::from([2, 2]), vec![1f32, 2.0, 3.0, 4.0])?);
//! save(&path, &state)?;
//!
//! let file = TensorFile::open(&path)?;
//! assert_eq!(file.keys().collect::<Vec<_>>(), ["fc.weight"]);
//! assert_eq!(file.info("fc.weight")?.shape.dims(), [2, 2]);
//! assert_eq!(file.read("fc.weight")?.to_f64_vec(), [1.0, 2.0, 3.0, 4.0]);
//! # Ok(())
//! # }
//! ```

mod file;
mod gguf;
mod metadata;
mod npy;
mod numpy;
mod pickle;
mod place;
mod pytorch;
mod safetensors;
mod save;
mod shards;
mod source;
mod zip;

pub use file::{Format, Skipped, TensorFile, TensorInfo};
pub use gguf::{GgufType, rewrite_gguf};
pub use metadata::{Metadata, Value};
pub use npy::npy_descr;
pub use save::{NpzArray, fits_archive, save, save_npz, save_with_metadata, writable};
