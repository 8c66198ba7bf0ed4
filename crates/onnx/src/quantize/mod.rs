//! Quantization of a model to bytes: graph in, graph out.
//!
//! [`Quantize`] reads a graph in f32, as a file or an export has it, and writes one whose matrix products and
//! convolutions are on integers of 8 bits: `prepare` computes constants and folds batch normalization, `layers` finds
//! what can be quantized, `calibrate` runs the graph on data for the ranges of values, unless they are `learned`,
//! `fixed` and `dynamic` write the nodes, `measure` computes the error of each layer.

mod calibrate;
mod dynamic;
mod fixed;
mod layers;
mod learned;
mod measure;
mod numbers;
mod options;
mod prepare;
mod range;
mod report;
mod writer;

pub(crate) use layers::{Layer, Seen};
pub(crate) use prepare::prune;
pub(crate) use writer::Writer;

pub use options::{Calibration, Int8, Quantize};
pub use report::{LayerReport, OutputReport, Quantized};
