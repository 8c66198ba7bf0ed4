//! Measures the error of the quantized layers and outputs relative to f32.

use polygrad_core::Result;
use polygrad_tensor::{Device, Tensor, no_grad};

use super::Quantize;
use super::calibrate::{Probe, Ranges};
use super::layers::Layer;
use super::prepare::prune;
use super::report::OutputReport;
use crate::graph::Graph;
use crate::{OnnxModel, Options};

/// The signal-to-noise ratio of each layer's result on the first batch if only that layer is quantized, in decibels.
/// NaN without a batch.
pub(super) fn layers(
    options: &Quantize,
    graph: &Graph,
    layers: &[Layer],
    ranges: &Ranges,
    batches: &[Vec<Tensor>],
    device: &Device,
) -> Result<Vec<f64>> {
    let Some(batch) = batches.first() else {
        return Ok(vec![f64::NAN; layers.len()]);
    };
    let probe = Probe::new(graph, layers, device)?;
    let outputs = no_grad(|| probe.run(batch))?;
    let one = |layer: &Layer| {
        let x = probe.value(layer.x, batch, &outputs)?;
        let y = probe.value(layer.y, batch, &outputs)?;
        let (alone, layer) = alone(graph, layer);
        let quantized = options.write(&alone, &[layer], ranges)?;
        let model = OnnxModel::from_graph(&quantized, device, Options::default())?;
        let found = no_grad(|| model.forward(&[x]))?.tensor(0)?;
        let [wanted, found] = [y, found].map(|x| Ok(x.to_host()?.to_f64_vec()));
        let sums = Sums::of(&wanted?, &found?);
        Ok(match sums.difference {
            0.0 => f64::INFINITY,
            difference => 10.0 * (sums.wanted / difference).log10(),
        })
    };
    layers.iter().map(one).collect()
}

/// The graph of a single layer, with its tail.
fn alone(graph: &Graph, layer: &Layer) -> (Graph, Layer) {
    let mut graph = graph.clone();
    let nodes = [Some(layer.node), layer.tail].into_iter().flatten();
    graph.body.nodes = nodes.map(|i| graph.body.nodes[i].clone()).collect();
    graph.body.inputs = vec![layer.x];
    graph.body.outputs = vec![layer.y];
    // Drops initializers that only the other nodes used.
    prune(&mut graph.body);
    let layer = Layer {
        node: 0,
        tail: layer.tail.map(|_| 1),
        ..layer.clone()
    };
    (graph, layer)
}

/// The error of the float outputs relative to the graph in f32, over all batches.
pub(super) fn outputs(
    graph: &Graph,
    quantized: &Graph,
    batches: &[Vec<Tensor>],
    device: &Device,
) -> Result<Vec<OutputReport>> {
    if batches.is_empty() {
        return Ok(Vec::new());
    }
    let [real, quantized] = [graph, quantized].map(|graph| OnnxModel::from_graph(graph, device, Options::default()));
    let (real, quantized) = (real?, quantized?);
    let mut sums: Vec<(String, Sums)> = Vec::new();
    for batch in batches {
        let (wanted, found) =
            no_grad(|| Ok::<_, polygrad_core::Error>((real.forward(batch)?, quantized.forward(batch)?)))?;
        let both = wanted.iter().zip(found.iter());
        let floats = both.filter(|((_, wanted), _)| wanted.dtype().is_some_and(|dtype| dtype.is_float()));
        for (i, ((name, wanted), (_, found))) in floats.enumerate() {
            let [wanted, found] = [wanted, found].map(|x| Ok(x.host()?.to_f64_vec()));
            let (wanted, found): (Result<_>, Result<_>) = (wanted, found);
            let new = Sums::of(&wanted?, &found?);
            match sums.get_mut(i) {
                Some((_, sums)) => sums.add(&new),
                None => sums.push((name.to_owned(), new)),
            }
        }
    }
    let report = |(name, sums): (String, Sums)| OutputReport {
        name,
        relative_error: (sums.difference / sums.wanted).sqrt(),
        cosine: sums.product / (sums.wanted * sums.found).sqrt(),
    };
    Ok(sums.into_iter().map(report).collect())
}

/// Sums over pairs of numbers: the squares of both and of their difference, and their product.
struct Sums {
    wanted: f64,
    found: f64,
    product: f64,
    difference: f64,
}

impl Sums {
    fn of(wanted: &[f64], found: &[f64]) -> Self {
        let sum = |f: &dyn Fn(f64, f64) -> f64| wanted.iter().zip(found).map(|(&a, &b)| f(a, b)).sum();
        Self {
            wanted: sum(&|a, _| a * a),
            found: sum(&|_, b| b * b),
            product: sum(&|a, b| a * b),
            difference: sum(&|a, b| (a - b).powi(2)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.wanted += other.wanted;
        self.found += other.found;
        self.product += other.product;
        self.difference += other.difference;
    }
}
