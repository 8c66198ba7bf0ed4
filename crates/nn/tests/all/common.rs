//! Shared helpers of the tests.

use std::path::{Path, PathBuf};

use polygrad_tensor::{Backend, DType, Device, Tensor};
use serde_json::Value;

/// This crate's folder, read at run time since checkouts may share a build folder.
pub(crate) fn crate_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into()
}

/// A folder under tests/data.
pub(crate) fn data(folder: &str) -> PathBuf {
    crate_folder().join("tests/data").join(folder)
}

/// A JSON file.
pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A case's name.
pub(crate) fn name(case: &Value) -> &str {
    case["k"].as_str().unwrap()
}

/// `x` in f64.
pub(crate) fn f64_of<B: Backend>(values: Vec<f64>, shape: &[usize], device: &Device<B>) -> Tensor<B> {
    Tensor::from_vec(values, shape, device).unwrap()
}

/// A random tensor in f64.
pub(crate) fn randn<B: Backend>(shape: &[usize], device: &Device<B>) -> Tensor<B> {
    let normal = polygrad_tensor::Distribution::Normal { mean: 0.0, std: 1.0 };
    Tensor::random(shape, normal, (device, DType::F64)).unwrap()
}
