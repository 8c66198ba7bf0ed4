//! The null backend: tensors with shape, dtype and device, but without values.
//!
//! It only counts: a model of any size runs on it in microseconds, and then its device tells the peak of live bytes,
//! and whether any are left. So a training step can be planned before it is run, and leaks can be found.
//!
//! Each op, including fused ones, needs the memory of its results and no scratch memory. Views need none; updates in
//! place need none unless the tensor is shared. So the figures are those of a backend that has a kernel for every op.
//! Anything that depends on values is missing: [`to_host`](polygrad_core::Backend::to_host), and thus `item`, is an
//! error, and an index out of range is not noticed.
//!
//! ```
//! use polygrad_nn::{Linear, Module, ReLU, Sequential, loss::cross_entropy};
//! use polygrad_nn::optim::{Adam, Optimizer};
//! use polygrad_null::Null;
//! use polygrad_tensor::{Device, Result, Tensor};
//!
//! /// The most bytes that are alive at once in a training step.
//! fn peak_bytes(batch: usize) -> Result<usize> {
//!     let device = Device::<Null>::default();
//!     let model = Sequential::new()
//!         .push(Linear::new(784, 4096, &device)?)
//!         .push(ReLU)
//!         .push(Linear::new(4096, 10, &device)?);
//!     let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
//!     let x = Tensor::zeros([batch, 784], &device)?;
//!     let classes = Tensor::full([batch], 0, &device)?;
//!     let loss = cross_entropy(&model.forward(&x)?, &classes)?;
//!     optimizer.step(&loss.backward()?)?;
//!     Ok(device.inner().stats().peak_bytes)
//! }
//!
//! # fn main() -> Result<()> {
//! let (small, large) = (peak_bytes(64)?, peak_bytes(128)?);
//! // Parameters, two moments of Adam, and gradients do not depend on the batch; what the graph holds does.
//! assert!(small < large && large < 2 * small);
//! # Ok(())
//! # }
//! ```

mod backend;
mod device;
mod driver;
mod tensor;

pub use backend::Null;
pub use device::{NullDevice, Stats};
pub use driver::{DriverStats, NullDriver};
pub use tensor::NullTensor;
