//! The readers of the program, and what they are asked.

#[allow(dead_code, unused_imports, reason = "of the program, only the readers are tried out")]
#[path = "../../../src/onnx/arrays.rs"]
mod arrays;
#[allow(dead_code, unused_imports, reason = "of the program, only the readers are tried out")]
#[path = "../../../src/onnx/npy.rs"]
mod npy;

use std::path::Path;

use polygrad::backend::HostTensor;

/// The array of this name in a file, if it is read.
pub(crate) fn load(path: &Path, name: &str, most: usize) -> Option<HostTensor> {
    arrays::load(path, name, most).ok()
}

/// The content of a `.npy` file.
pub(crate) fn read(bytes: &[u8], most: usize) -> Result<HostTensor, String> {
    npy::read(bytes, most)
}

/// An array as a `.npy` file.
pub(crate) fn write(host: &HostTensor) -> Vec<u8> {
    let mut file = Vec::new();
    npy::write(&mut file, host).expect("memory");
    file
}
