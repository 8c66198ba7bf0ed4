//! A graph that is trained like a model in Rust.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use polygrad_core::{AnyBackend, Error, Result};
use polygrad_nn::{Module, Param, Visit, Visitor};
use polygrad_tensor::{Device, Tensor, no_grad};

use crate::graph::{Attribute, Body, Graph, Literal, Node};
use crate::{OnnxModel, Options, Outputs};

/// An ONNX graph as a [`Module`]: optimizers, checkpoints, `freeze` and the trainer work with its parameters, which
/// have the initializers' names.
///
/// ```no_run
/// use polygrad_nn::Module;
/// use polygrad_nn::optim::{AdamW, Optimizer};
/// use polygrad_onnx::graph::Graph;
/// use polygrad_onnx::{OnnxModule, learnable};
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::new("cpu")?;
/// let graph = Graph::load("classifier.onnx")?;
/// let weights = learnable(&graph.body);
/// let model = OnnxModule::new(&graph, |name| weights.contains(&name), &device)?;
/// let mut optimizer = AdamW::new(model.parameters(), 1e-4)?;
/// let loss = model.forward(&[Tensor::ones([1, 64], &device)?])?.tensor(0)?.square()?.mean_all()?;
/// optimizer.step(&loss.backward()?)?;
/// model.written(&graph)?.save("trained.onnx")?;
/// # Ok(())
/// # }
/// ```
pub struct OnnxModule {
    model: Mutex<OnnxModel>,
    params: Vec<(String, Param)>,
}

/// The ops by which a graph computes in 8 bits.
const ROUNDING: [&str; 7] = [
    "ConvInteger",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
];

impl OnnxModule {
    /// The model of a graph, with those initializers of a float dtype as parameters for which `choose` returns true.
    ///
    /// # Errors
    /// If none is chosen, if the graph computes in 8 bits, and as [`OnnxModel::from_graph`].
    pub fn new(graph: &Graph, mut choose: impl FnMut(&str) -> bool, device: &Device) -> Result<Self> {
        let rounding = |op: &str| ROUNDING.contains(&op);
        if let Some(node) = graph.body.nodes.iter().find(|node| rounding(&node.op_type)) {
            return Err(
                Error::unsupported(format!("the model is in 8 bits, by its node {}", node.op_type)).with_hint(
                    "whole numbers do not learn: train the model that it was made of, and quantize it again",
                ),
            );
        }
        let mut model = OnnxModel::from_graph(graph, device, Options::default())?;
        let chosen = model.parameters()?.into_iter().filter(|(name, _)| choose(name));
        let params = chosen.map(|(name, tensor)| Ok((name, Param::new(tensor)?)));
        let params = params.collect::<Result<Vec<_>>>()?;
        if params.is_empty() {
            let text = "the model has no weights to be trained: no float initializers of rank 1 or more";
            return Err(in_nodes(&graph.body, Error::invalid(text)));
        }
        model.set(params.iter().map(|(name, param)| (name.clone(), param.tensor())))?;
        let model = Mutex::new(model);
        Ok(Self { model, params })
    }

    /// Runs the model with the current parameters; gradients reach those that are trainable.
    ///
    /// # Errors
    /// As [`OnnxModel::forward`].
    pub fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        model.set(self.params.iter().map(|(name, param)| (name.clone(), param.tensor())))?;
        model.forward(inputs)
    }

    /// The graph that the model was made of, with the current parameters.
    ///
    /// # Errors
    /// If it is another graph, which lacks a parameter; and those of the device.
    pub fn written(&self, graph: &Graph) -> Result<Graph> {
        let mut graph = graph.clone();
        for (name, param) in &self.params {
            let body = &graph.body;
            let mut initializers = body.initializers.iter();
            let place = initializers.position(|known| body.name_of(known.value) == name);
            let Some(place) = place else {
                return Err(Error::invalid(format!("the graph has no weight {name:?}"))
                    .with_hint("give the graph that the model was made of"));
            };
            let host = no_grad(|| param.tensor().to_host())?;
            let element = graph.body.initializers[place].tensor.element();
            graph.body.initializers[place].tensor = Literal::new(element, host)?;
        }
        Ok(graph)
    }
}

impl fmt::Debug for OnnxModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.params.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl Visit<AnyBackend> for OnnxModule {
    fn visit(&self, visitor: &mut Visitor<'_, AnyBackend>) {
        visitor.module(self);
        for (name, param) in &self.params {
            visitor.field(name, param);
        }
    }
}

impl Module<AnyBackend> for OnnxModule {}

/// An error about weights that were not found, with the fix if they are in nodes.
pub(crate) fn in_nodes(body: &Body, error: Error) -> Error {
    let has_weight = |node: &Node| match node.attribute("value") {
        Some(Attribute::Tensor(value)) => value.host().dtype().is_float() && value.host().shape().rank() > 1,
        _ => false,
    };
    match body.nodes.iter().any(has_weight) {
        true => error.with_hint("weights in Constant nodes do not learn: export the model with initializers for them"),
        false => error,
    }
}

/// The names of the initializers that training usually changes, since a file does not say which of its numbers are
/// weights: floats of rank 1 and more, except the statistics of batch normalization and the bounds and scales of
/// Resize, Upsample, Clip and Pad.
pub fn learnable(body: &Body) -> Vec<&str> {
    let is_fixed = |value| {
        body.nodes.iter().any(|node| {
            let inputs = node.inputs.iter().enumerate();
            let mut places = inputs
                .filter(|(_, input)| **input == Some(value))
                .map(|(place, _)| place);
            match node.op_type.as_str() {
                "BatchNormalization" => places.any(|place| place >= 3),
                "Resize" | "Upsample" | "Clip" | "Pad" => places.next().is_some(),
                _ => false,
            }
        })
    };
    let initializers = body.initializers.iter();
    let floats =
        initializers.filter(|known| known.tensor.host().dtype().is_float() && known.tensor.host().shape().rank() > 0);
    floats
        .filter(|known| !is_fixed(known.value))
        .map(|known| body.name_of(known.value))
        .collect()
}
