//! Calibration: the ranges of values between layers, on data.

use std::collections::HashMap;

use polygrad_core::{Error, Result};
use polygrad_tensor::{Device, Tensor, no_grad};

use super::Calibration;
use super::layers::Layer;
use super::numbers::Bytes;
use super::range::{Extremes, Histogram};
use crate::graph::{Body, Graph, ValueId};
use crate::{OnnxModel, Options, Outputs};

/// The byte encoding of each value.
pub(super) type Ranges = HashMap<ValueId, Bytes>;

/// A graph that also outputs the operands and results of layers.
pub(super) struct Probe {
    model: OnnxModel,
    /// Each value, with the name of a node that reads or produces it.
    pub(super) values: Vec<(ValueId, String)>,
    names: HashMap<ValueId, String>,
    /// The indices of the values that are inputs.
    inputs: HashMap<ValueId, usize>,
}

impl Probe {
    pub(super) fn new(graph: &Graph, layers: &[Layer], device: &Device) -> Result<Self> {
        let mut probe = graph.clone();
        let mut values: Vec<(ValueId, String)> = Vec::new();
        for layer in layers {
            for id in [layer.x, layer.y] {
                if values.iter().all(|(known, _)| *known != id) {
                    values.push((id, layer.name.clone()));
                }
            }
        }
        let body = &mut probe.body;
        let inputs = needed_inputs(body);
        for (id, _) in &values {
            if !inputs.contains_key(id) && !body.outputs.contains(id) {
                body.outputs.push(*id);
            }
        }
        let names = values.iter().map(|(id, _)| (*id, body.name_of(*id).to_owned()));
        Ok(Self {
            names: names.collect(),
            model: OnnxModel::from_graph(&probe, device, Options::default())?,
            values,
            inputs,
        })
    }

    pub(super) fn run(&self, batch: &[Tensor]) -> Result<Outputs> {
        self.model.forward(batch)
    }

    /// A value in a run on a batch.
    pub(super) fn value(&self, id: ValueId, batch: &[Tensor], outputs: &Outputs) -> Result<Tensor> {
        match self.inputs.get(&id) {
            Some(&at) => Ok(batch[at].clone()),
            None => outputs.named(&self.names[&id]),
        }
    }
}

/// The inputs without a default, with their indices in a batch.
fn needed_inputs(body: &Body) -> HashMap<ValueId, usize> {
    let needed = body.inputs.iter().filter(|id| body.initializer(**id).is_none());
    needed.enumerate().map(|(i, &id)| (id, i)).collect()
}

/// The byte encodings of the operands and results of layers, over all batches.
///
/// # Errors
/// Batches that do not fit the graph; a value that is not finite, with the name of a node that has it.
pub(super) fn ranges(
    graph: &Graph,
    layers: &[Layer],
    calibration: Calibration,
    batches: &[Vec<Tensor>],
    device: &Device,
) -> Result<Ranges> {
    let probe = Probe::new(graph, layers, device)?;
    let mut extremes = vec![Extremes::NONE; probe.values.len()];
    each(&probe, batches, |i, x| extremes[i].see(x))?;
    for ((id, node), seen) in probe.values.iter().zip(&extremes) {
        if !(seen.low.is_finite() && seen.high.is_finite()) {
            return Err(Error::invalid(format!(
                "the value {:?} at node {node:?} is empty or not finite on the calibration data",
                graph.body.name_of(*id)
            ))
            .with_hint("look for NaN or infinity in the data, or leave the node out by its name"));
        }
    }
    let mut histograms: Vec<Histogram> = extremes.into_iter().map(Histogram::new).collect();
    if calibration != Calibration::MinMax {
        each(&probe, batches, |i, x| histograms[i].see(x))?;
    }
    let ranges = probe.values.iter().zip(&histograms);
    Ok(ranges
        .map(|((id, _), seen)| (*id, Bytes::of(seen.range(calibration))))
        .collect())
}

/// Calls a function with the index of each value and each of its numbers, batch after batch.
fn each(probe: &Probe, batches: &[Vec<Tensor>], mut see: impl FnMut(usize, f64)) -> Result<()> {
    for batch in batches {
        let outputs = no_grad(|| probe.run(batch))?;
        for (i, (id, _)) in probe.values.iter().enumerate() {
            let host = probe.value(*id, batch, &outputs)?.to_host()?;
            // NaN would be lost in a comparison.
            host.each_f64(|x| see(i, if x.is_nan() { f64::INFINITY } else { x }));
        }
    }
    Ok(())
}
