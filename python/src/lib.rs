//! The Python package `polygrad`: tensors by DLPack, models for training and inference, and policies that learn in
//! Gymnasium's environments.

mod arrays;
mod communicator;
mod dlpack;
mod errors;
mod failure;
mod model;
mod network;
mod quantize;
mod rl;
mod serving;
mod tensor;
mod texts;
mod training;

#[pyo3::pymodule]
mod _polygrad {
    #[pymodule_export]
    use crate::communicator::{Communicator, join};
    #[pymodule_export]
    use crate::model::{Model, merge};
    #[pymodule_export]
    use crate::rl::{Environments, Policy, train};
    #[pymodule_export]
    use crate::serving::Server;
    #[pymodule_export]
    use crate::tensor::{PyTensor, from_dlpack};
}
