//! Results of ops against literal numbers: indexing, dtypes, integers, new tensors, joins, Einstein sums, other
//! backends.

/// Runs each test on the reference, on the CPU backend, and on the erased CPU backend.
macro_rules! on_backends {
    ($($test:ident),* $(,)?) => {
        mod reference {
            $(#[test]
            fn $test() -> polygrad_tensor::Result<()> {
                super::$test(&polygrad_tensor::Device::<polygrad_reference::Reference>::default())
            })*
        }
        mod cpu {
            $(#[test]
            fn $test() -> polygrad_tensor::Result<()> {
                super::$test(&polygrad_tensor::Device::<polygrad_cpu::Cpu>::default())
            })*
        }
        mod erased {
            $(#[test]
            fn $test() -> polygrad_tensor::Result<()> {
                super::$test(&polygrad_tensor::Device::<polygrad_cpu::Cpu>::default().into_any())
            })*
        }
    };
}

mod backends;
mod chains;
mod creation;
mod einsum;
mod indexing;
mod integers;
mod joining;
mod narrow;
mod promotion;
mod random;
mod statistics;
mod windows;

use polygrad_reference::Reference;
use polygrad_tensor::Device;

pub(crate) type Tensor = polygrad_tensor::Tensor<Reference>;

pub(crate) fn device() -> Device<Reference> {
    Device::default()
}

/// `0, 1, 2, …` in i64.
pub(crate) fn counted(shape: &[usize]) -> Tensor {
    let numel: usize = shape.iter().product();
    Tensor::from_vec((0..numel as i64).collect(), shape, &device()).unwrap()
}

#[track_caller]
pub(crate) fn same(x: Tensor, shape: &[usize], values: &[i64]) {
    assert_eq!(x.dims(), shape);
    assert_eq!(x.to_vec::<i64>().unwrap(), values);
}
