//! What a quantization made, and what it lost.

use super::layers::Layer;
use crate::graph::Graph;

/// A quantized graph, and how far it is from the one it was made of.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// The graph, to be saved or run.
    pub graph: Graph,
    /// The layers that can be quantized, in the order in which they run.
    pub layers: Vec<LayerReport>,
    /// The outputs of floats, over all batches; empty without batches.
    pub outputs: Vec<OutputReport>,
}

/// A layer, and what it loses.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerReport {
    /// The name of its node.
    pub name: String,
    /// Its op.
    pub op: String,
    /// The signal-to-noise ratio of its result when it alone is quantized, in decibels: 20 is an error of a tenth, 40
    /// of a hundredth. Infinite without an error, NaN if nothing is known of it, as without batches.
    pub snr: f64,
    /// Why it is left in f32, if it is.
    pub left_out: Option<String>,
    /// Its place among the nodes.
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

/// An output, and how far it is from that of the graph in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputReport {
    /// Its name.
    pub name: String,
    /// The root of the sum of squared differences, as a part of that of the squared values in f32.
    pub relative_error: f64,
    /// The cosine of the angle between both, all values taken as one vector.
    pub cosine: f64,
}
