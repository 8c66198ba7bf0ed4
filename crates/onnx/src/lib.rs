//! ONNX files: read, checked, written, and run on any backend.
//!
//! [`graph`] represents a file's content as plain data: [`Graph::load`](graph::Graph::load) reads and checks
//! everything, [`Graph::save`](graph::Graph::save) is its inverse. [`OnnxModel`] runs a file on any backend, with
//! gradients if requested. In the other direction, [`ExportOnnx::export_onnx`] writes a model of `polygrad-nn` as a
//! file: [`Onnx`] is a backend that records. [`OnnxModule`] trains a file, and [`lora`] an adapter of it. [`Quantize`]
//! converts a graph's weights and activations to 8-bit integers.

mod engine;
mod export;
pub mod graph;
mod import;
pub mod lora;
mod module;
mod proto;
mod quantize;

pub use engine::Engine;
pub use export::{Export, ExportOnnx, ForwardOutputs, Input, IntoDims, Onnx, OnnxTensor, Opset, Recording};
pub use import::{OnnxModel, Options, Outputs, Value, op_versions};
pub use module::{OnnxModule, learnable};
pub use quantize::{Calibration, Int8, LayerReport, OutputReport, Quantize, Quantized};
