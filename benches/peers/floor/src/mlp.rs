//! Perceptrons: a training step, hand-written for this task.
//!
//! A step allocates nothing. Bias, ReLU and ReLU's gradient are computed tile by tile, and so is the optimizer's
//! update: weights' gradients are never stored in memory as a whole. Hidden layers keep their weights as [in, out],
//! which the forward pass reads and the update writes directly; the backward pass transposes them block by block. The
//! last layer has few outputs and keeps [out, in].

use polygrad_peer::data::{INPUT, TARGET, classes, noise};
use polygrad_peer::{Step, Weights};

use crate::loss::{CLASSES, cross_entropy, reduce};
use crate::rows::{Row, TILE, WIDTH, ZERO, panels, product, rectify, turned_product};
use crate::turn::transposed;
use crate::update::{Adam, Optimizer, Sgd};

/// A model is reset after this number of steps: it memorizes its one batch, and the remaining gradients become denormal
/// numbers, for which processors take ten times as long.
const AFRESH: usize = 10_000;

/// The place of a layer's parameters among all rows.
#[derive(Clone, Copy)]
struct Layer {
    inputs: usize,
    outputs: usize,
    weight: usize,
    bias: usize,
    end: usize,
}

impl Layer {
    fn weight<'a>(&self, params: &'a [Row]) -> &'a [Row] {
        &params[self.weight..self.bias]
    }

    fn bias<'a>(&self, params: &'a [Row]) -> &'a [Row] {
        &params[self.bias..self.end]
    }
}

struct Training<O> {
    params: Vec<Row>,
    hidden: Vec<Layer>,
    last: Layer,
    optimizer: O,
    batch: usize,
    x: Vec<Row>,
    targets: Vec<usize>,
    /// The outputs of each hidden layer, their gradients, and those of the bias.
    outputs: Vec<Vec<Row>>,
    gradients: Vec<Vec<Row>>,
    biases: Vec<Vec<Row>>,
    /// The logits; −∞ for absent classes.
    scores: Vec<[f32; CLASSES]>,
    /// The logits' gradient.
    logits: Vec<Row>,
    /// A weight as [out, in].
    turned: Vec<Row>,
}

/// Parameters of a perceptron of these extents, with the layers that they belong to.
fn parameters(sizes: &[usize]) -> (Vec<Row>, Vec<Layer>) {
    let (mut weights, mut params, mut layers) = (Weights::default(), Vec::new(), Vec::new());
    for (i, pair) in sizes.windows(2).enumerate() {
        let (inputs, outputs) = (pair[0], pair[1]);
        let weight = params.len();
        let values = weights.take(&[outputs, inputs], false);
        if i + 2 < sizes.len() {
            let turned: Vec<f32> = (0..inputs * outputs)
                .map(|at| values[at % outputs * inputs + at / outputs])
                .collect();
            params.extend(panels(&turned, outputs));
        } else {
            params.extend(panels(&values, inputs));
        }
        let bias = params.len();
        params.extend(panels(&weights.take(&[outputs], false), outputs));
        let end = params.len();
        layers.push(Layer {
            inputs,
            outputs,
            weight,
            bias,
            end,
        });
    }
    (params, layers)
}

impl<O: Optimizer> Training<O> {
    fn step(&mut self) -> f64 {
        self.optimizer.begin();
        self.forward();
        let loss = self.loss();
        self.backward();
        loss
    }

    fn forward(&mut self) {
        for (i, layer) in self.hidden.iter().enumerate() {
            let (before, from) = self.outputs.split_at_mut(i);
            let x = before.last().unwrap_or(&self.x);
            let (weight, bias) = (layer.weight(&self.params), layer.bias(&self.params));
            product(x, self.batch, weight, layer.inputs, &mut from[0], |panel, _, tile| {
                rectify(tile, &bias[panel])
            });
        }
    }

    /// Computes the last layer, the loss and its gradient.
    fn loss(&mut self) -> f64 {
        let Some(x) = self.outputs.last() else { return 0.0 };
        let (weight, bias) = (self.last.weight(&self.params), self.last.bias(&self.params));
        let classes = self.last.outputs;
        for (row, scores) in self.scores.iter_mut().enumerate() {
            for (class, score) in scores.iter_mut().enumerate().take(classes) {
                let mut sums = [0.0; WIDTH];
                for panel in 0..weight.len() / classes {
                    let (x, weight) = (&x[panel * self.batch + row].0, &weight[panel * classes + class].0);
                    for (sum, (x, weight)) in sums.iter_mut().zip(x.iter().zip(weight)) {
                        *sum = x.mul_add(*weight, *sum);
                    }
                }
                *score = reduce(sums, |a, b| a + b) + bias[0].0[class];
            }
        }
        let (mut product, mut distance) = (1f64, 0f64);
        for ((scores, &target), gradient) in self.scores.iter().zip(&self.targets).zip(&mut self.logits) {
            let share = cross_entropy(scores, target, self.batch, gradient);
            // Each of the 128 factors is at most 10.
            product *= f64::from(share.sum);
            distance += f64::from(share.distance);
        }
        (product.ln() + distance) / self.batch as f64
    }

    fn backward(&mut self) {
        let Some(deepest) = self.hidden.len().checked_sub(1) else {
            return;
        };
        self.hidden_gradient(deepest, self.last, false);
        let mut bias = [ZERO];
        for row in &self.logits {
            bias[0] = bias[0].plus(*row);
        }
        self.update(self.last, None, &bias);
        for i in (0..=deepest).rev() {
            let layer = self.hidden[i];
            if i > 0 {
                transposed(layer.weight(&self.params), layer.inputs, &mut self.turned);
                self.hidden_gradient(i - 1, layer, true);
            }
            let bias = std::mem::take(&mut self.biases[i]);
            self.update(layer, Some(i), &bias);
            self.biases[i] = bias;
        }
    }

    /// The gradient of hidden layer `i`, from the layer after it.
    fn hidden_gradient(&mut self, i: usize, behind: Layer, turned: bool) {
        let (before, after) = self.gradients.split_at_mut(i + 1);
        let (gradient, weight) = match turned {
            true => (&after[0], &self.turned[..behind.inputs / WIDTH * behind.outputs]),
            false => (&self.logits, behind.weight(&self.params)),
        };
        let (outputs, bias) = (&self.outputs[i], &mut self.biases[i]);
        bias.fill(ZERO);
        let masked = |panel: usize, at: usize, tile: &mut [Row; TILE]| {
            let mut all = bias[panel];
            for (sums, output) in tile.iter_mut().zip(&outputs[at..]) {
                *sums = sums.where_positive(*output);
                all = all.plus(*sums);
            }
            bias[panel] = all;
        };
        product(gradient, self.batch, weight, behind.outputs, &mut before[i], masked);
    }

    /// Updates a layer: hidden layer `i`, or the last one if `None`.
    fn update(&mut self, layer: Layer, i: Option<usize>, bias: &[Row]) {
        let (params, optimizer) = (&mut self.params, &mut self.optimizer);
        let each = |at: usize, gradient: &Row| {
            let at = layer.weight + at;
            optimizer.update(at, &mut params[at], gradient);
        };
        let outputs = &self.outputs;
        match i {
            None => turned_product(
                &self.logits,
                layer.outputs,
                &outputs[outputs.len() - 1],
                self.batch,
                each,
            ),
            Some(0) => turned_product(&self.x, layer.inputs, &self.gradients[0], self.batch, each),
            Some(i) => turned_product(&outputs[i - 1], layer.inputs, &self.gradients[i], self.batch, each),
        }
        for (at, gradient) in (layer.bias..).zip(bias) {
            self.optimizer.update(at, &mut self.params[at], gradient);
        }
    }
}

fn steps<O: Optimizer + 'static>(
    sizes: &'static [usize],
    batch: usize,
    optimizer: impl Fn(usize) -> O + 'static,
) -> Option<Step> {
    let (begin, mut hidden) = parameters(sizes);
    let last = hidden.pop()?;
    let buffers = |rows: usize| -> Vec<Vec<Row>> {
        let of = |layer: &Layer| vec![ZERO; layer.outputs / WIDTH * rows];
        hidden.iter().map(of).collect()
    };
    let widest = hidden.iter().skip(1).map(|layer| layer.bias - layer.weight).max();
    let mut training = Training {
        params: begin.clone(),
        optimizer: optimizer(begin.len()),
        batch,
        x: panels(&noise(batch * sizes[0], INPUT), sizes[0]),
        targets: classes(batch, last.outputs, TARGET)
            .into_iter()
            .map(|class| class as usize)
            .collect(),
        outputs: buffers(batch),
        gradients: buffers(batch),
        biases: buffers(1),
        scores: vec![[f32::NEG_INFINITY; CLASSES]; batch],
        logits: vec![ZERO; batch],
        turned: vec![ZERO; widest.unwrap_or(0)],
        hidden,
        last,
    };
    let mut done = 0;
    Some(Box::new(move || {
        if done == AFRESH {
            training.params.clone_from(&begin);
            training.optimizer = optimizer(begin.len());
            done = 0;
        }
        done += 1;
        Ok(Some(training.step()))
    }))
}

/// Trains a perceptron with ReLU on one batch; `None` for an unknown optimizer.
pub fn training(sizes: &'static [usize], batch: usize, optimizer: &str) -> Option<Step> {
    match optimizer {
        "sgd" => steps(sizes, batch, |_| Sgd),
        "adam" => steps(sizes, batch, Adam::new),
        _ => None,
    }
}
