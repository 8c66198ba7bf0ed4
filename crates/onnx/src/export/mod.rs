//! Models leave as ONNX files.
//!
//! [`Onnx`] is a backend that records instead of computing: a model that runs on it once has been written down. Extents
//! that are known when the model runs are recorded as such: model code computes with them as plain numbers, and
//! `symbols` reads them back.

mod backend;
mod call;
mod extent;
mod finish;
mod fold;
mod model;
mod ops;
mod opset;
mod options;
mod passes;
mod recording;
mod shape;
mod symbols;
mod tensor;
mod verify;

pub use model::ExportOnnx;
pub use opset::Opset;
pub use options::{Export, ForwardOutputs, Input, IntoDims};
pub(crate) use passes::fold_statistics;
pub use recording::{Onnx, Recording};
pub use tensor::OnnxTensor;
