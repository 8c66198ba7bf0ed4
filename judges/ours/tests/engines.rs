//! The engines for ONNX files, in a build that has them.

#[path = "../../../crates/onnx/tests/all/engines.rs"]
mod engines;
