//! The Python package `polygrad`: tensors by DLPack, models that learn and answer, and policies that learn in
//! Gymnasium's environments.

mod dlpack;
mod errors;
mod failure;
mod model;
mod network;
mod rl;
mod tensor;
mod training;

#[pyo3::pymodule]
mod _polygrad {
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::rl::{Policy, train};
    #[pymodule_export]
    use crate::tensor::{PyTensor, from_dlpack};
}
