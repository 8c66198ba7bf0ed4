//! Export of models as ONNX files.
//!
//! [`Onnx`] is a backend that records instead of computing: running a model on it once records the model. Extents that
//! are known only when the model runs are recorded as symbols: model code computes with them as plain numbers, and
//! `symbols` maps the numbers back to symbols.

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
