//! Bad input to ops: each gives an error of the right kind, whose text names the op, the operands and a fix.

mod axes;
mod fused;
mod indices;
mod operands;
mod others;
mod quantized;
mod recurrent;
mod resize;

use polygrad_reference::Reference;
use polygrad_tensor::{DType, Device, ErrorKind, Result};

pub(crate) type Tensor = polygrad_tensor::Tensor<Reference>;

pub(crate) fn device() -> Device<Reference> {
    Device::default()
}

/// Ones.
pub(crate) fn f32(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, &device()).unwrap()
}

/// Ones of another dtype.
pub(crate) fn of(dtype: DType, shape: &[usize]) -> Tensor {
    f32(shape).to_dtype(dtype).unwrap()
}

pub(crate) fn list(values: &[i64]) -> Tensor {
    Tensor::from_slice(values, [values.len()], &device()).unwrap()
}

/// Checks that a call failed, and the kind and text of its error.
#[track_caller]
pub(crate) fn fails<T>(result: Result<T>, kind: ErrorKind, parts: &[&str]) {
    let Err(error) = result else {
        panic!("no error, but {kind:?} with {parts:?} was expected");
    };
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}
