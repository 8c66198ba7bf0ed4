//! What the tests share: backends, and the vectors that scripts/vector_set.py describes.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use polygrad_nn::StateDict;
use polygrad_tensor::{Backend, DType, Device, HostTensor, Tensor};
use serde_json::Value;

/// Runs each test on each backend.
#[macro_export]
macro_rules! on_backends {
    ($($test:ident),* $(,)?) => {
        mod cpu {
            $(#[test]
            fn $test() {
                super::$test(&polygrad_tensor::Device::<polygrad_cpu::Cpu>::default());
            })*
        }
        mod reference {
            $(#[test]
            fn $test() {
                super::$test(&polygrad_tensor::Device::<polygrad_reference::Reference>::default());
            })*
        }
    };
}

/// Runs each test on the CPU backend alone: for what takes too long on the reference.
#[macro_export]
macro_rules! on_cpu {
    ($($test:ident),* $(,)?) => {
        mod cpu {
            $(#[test]
            fn $test() {
                super::$test(&polygrad_tensor::Device::<polygrad_cpu::Cpu>::default());
            })*
        }
    };
}

/// A folder under tests/data.
pub(crate) fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder)
}

/// A JSON file.
pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Cases and their tensors.
pub(crate) struct Vectors {
    pub(crate) cases: Vec<Value>,
    pub(crate) tensors: StateDict,
}

impl Vectors {
    pub(crate) fn load(folder: &str) -> Self {
        let folder = data(folder);
        let cases = json(&folder.join("manifest.json")).as_array().unwrap().clone();
        assert!(!cases.is_empty());
        let tensors = StateDict::load(folder.join("tensors.safetensors")).unwrap();
        Self { cases, tensors }
    }

    /// The tensor at a key.
    pub(crate) fn get(&self, key: &str) -> &HostTensor {
        self.tensors.get(key).unwrap_or_else(|| panic!("no tensor {key}"))
    }

    /// The tensor that an argument names.
    pub(crate) fn tensor(&self, argument: &Value) -> &HostTensor {
        self.get(key(argument))
    }
}

/// The key of an argument that is a tensor.
pub(crate) fn key(argument: &Value) -> &str {
    argument["t"]
        .as_str()
        .unwrap_or_else(|| panic!("{argument} is no tensor"))
}

/// A case's name.
pub(crate) fn name(case: &Value) -> &str {
    case["k"].as_str().unwrap()
}

/// On a device.
pub(crate) fn upload<B: Backend>(tensor: &HostTensor, device: &Device<B>) -> Tensor<B> {
    Tensor::from_host(tensor.clone(), device).unwrap()
}

/// Fails unless all values agree to `tolerance`, relative to the larger of 1 and the expected value.
#[track_caller]
pub(crate) fn assert_close<B: Backend>(what: &str, found: &Tensor<B>, expected: &HostTensor, tolerance: f64) {
    assert_eq!(found.shape(), *expected.shape(), "{what}: shape");
    let found = found.to_f64_vec().unwrap();
    for (i, (a, b)) in found.iter().zip(expected.to_f64_vec()).enumerate() {
        let close = (a - b).abs() <= tolerance * b.abs().max(1.0) || (a.is_nan() && b.is_nan()) || *a == b;
        assert!(close, "{what}: element {i} is {a}, not {b}");
    }
}

/// `x` in f64.
pub(crate) fn f64_of<B: Backend>(values: Vec<f64>, shape: &[usize], device: &Device<B>) -> Tensor<B> {
    Tensor::from_vec(values, shape, device).unwrap()
}

/// A random tensor in f64.
pub(crate) fn randn<B: Backend>(shape: &[usize], device: &Device<B>) -> Tensor<B> {
    let normal = polygrad_tensor::Distribution::Normal { mean: 0.0, std: 1.0 };
    Tensor::random(shape, normal, DType::F64, device).unwrap()
}
