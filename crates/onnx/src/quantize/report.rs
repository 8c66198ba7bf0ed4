//! The result of a quantization, and its errors.

use super::layers::Layer;
use crate::graph::Graph;

/// A quantized graph, and its errors relative to the original.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// The graph, to be saved or run.
    pub graph: Graph,
    /// The layers that can be quantized, in execution order.
    pub layers: Vec<LayerReport>,
    /// The float outputs, over all batches; empty without batches.
    pub outputs: Vec<OutputReport>,
}

/// A layer, and its error.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerReport {
    /// The name of its node.
    pub name: String,
    /// Its op.
    pub op: String,
    /// The signal-to-noise ratio of its result if only this layer is quantized, in decibels: 20 is an error of a tenth,
    /// 40 of a hundredth. Infinite without an error, NaN if unknown, as without batches.
    pub snr: f64,
    /// The reason why it is left in f32, if it is.
    pub left_out: Option<String>,
    /// The index of its node.
    pub(super) node: usize,
}

impl LayerReport {
    pub(super) fn new(layer: &Layer, snr: f64, left_out: Option<String>) -> Self {
        Self {
            name: layer.name.clone(),
            op: layer.op.clone(),
            snr,
            left_out,
            node: layer.node,
        }
    }
}

/// An output, and its error relative to the graph in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputReport {
    /// Its name.
    pub name: String,
    /// The root of the sum of squared differences, relative to that of the squared values in f32.
    pub relative_error: f64,
    /// The cosine of the angle between both outputs, each taken as one vector of all values.
    pub cosine: f64,
}
