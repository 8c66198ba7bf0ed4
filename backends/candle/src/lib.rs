//! [candle](https://github.com/huggingface/candle) as a backend of Polygrad.
//!
//! Tensors are candle's own, and so are products, convolutions, movement ops and most element-wise ops. candle's
//! autodiff is not used: Polygrad's runs on top. Ops that candle lacks, or computes less accurately than Polygrad
//! promises, are loops over candle's CPU storage, in place.
//!
//! Tensors are converted without a copy, so a program can call candle and return:
//!
//! ```
//! use polygrad_candle::{candle_core, from_candle, to_candle};
//! use polygrad_tensor::Tensor;
//!
//! let x = candle_core::Tensor::new(&[1f32, 2.0], &candle_core::Device::Cpu).unwrap();
//! let x: Tensor<polygrad_candle::Candle> = from_candle(x)?;
//! let y = to_candle(&(&x + &x)?);
//! assert_eq!(y.to_vec1::<f32>().unwrap(), [2.0, 4.0]);
//! # Ok::<(), polygrad_tensor::Error>(())
//! ```

mod activation;
mod backend;
mod binary;
mod conv;
mod device;
mod engine;
mod index;
mod interop;
mod lines;
mod matmul;
mod movement;
mod norm;
mod optim;
mod pool;
mod reduce;
mod softmax;
mod support;
mod tensor;
mod unary;
mod values;

pub use candle_core;
pub use device::{CandleDevice, entry};
pub use interop::{from_candle, to_candle};
pub use tensor::CandleTensor;

/// The backend: a type without values, whose methods are the ops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Candle;
