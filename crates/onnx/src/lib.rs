//! ONNX files: read, checked, written, and run on any backend.
//!
//! [`graph`] holds a file's content as plain data: [`Graph::load`](graph::Graph::load) reads and checks everything,
//! [`Graph::save`](graph::Graph::save) is its inverse.

pub mod graph;
mod proto;
