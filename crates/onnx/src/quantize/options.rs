//! Options of a quantization, and its steps.

use polygrad_core::{Error, Result, nearest, printable};
use polygrad_tensor::{Device, Tensor};

use super::calibrate::{self, Ranges};
use super::layers::{self, Layer};
use super::learned::{self, Learned};
use super::report::{LayerReport, Quantized};
use super::{dynamic, fixed, measure, prepare};
use crate::graph::Graph;

/// When the ranges of values between layers are determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Int8 {
    /// Before the model runs, from data: scales are constants, convolutions and products return bytes. Batches do not
    /// affect each other.
    #[default]
    Static,
    /// In each run, without data: the input of each matrix product is quantized before it. Convolutions stay in f32.
    /// The rows of a batch share one range.
    Dynamic,
}

/// How the range of a value is derived from calibration data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Calibration {
    /// From the smallest to the largest number.
    #[default]
    MinMax,
    /// The range that holds this percentage of all numbers, such as 99.99, with the rest cut off evenly at both ends.
    Percentile(f64),
    /// The part of the full range whose rounding has the least mean squared error.
    Mse,
}

/// How a model is quantized to integers of 8 bits.
///
/// ```
/// use polygrad_nn::{Linear, ReLU, Sequential};
/// use polygrad_onnx::{Calibration, Export, ExportOnnx, Input, OnnxModel, Quantize};
/// # use polygrad_cpu::Cpu;
/// use polygrad_tensor::{DType, Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// # let device = Device::<Cpu>::default().into_any();
/// let model = Sequential::new().push(Linear::new(4, 8, &device)?).push(ReLU).push(Linear::new(8, 3, &device)?);
/// let export = Export::new([Input::new("x", DType::F32, ("batch", 4))]);
/// let graph = model.record_onnx(&export, |x| model.forward(&x[0]))?;
/// // Inputs like those that the model will see.
/// let batches = vec![vec![Tensor::randn([64, 4], &device)?]];
/// let quantized = Quantize::new().per_channel(true).calibration(Calibration::Mse).run(&graph, &batches, &device)?;
/// assert!(quantized.layers.iter().all(|layer| layer.snr > 25.0), "{:?}", quantized.layers);
/// // quantized.graph.save("model.onnx") writes the file.
/// let small = OnnxModel::from_graph(&quantized.graph, &device, Default::default())?;
/// assert_eq!(small.steps(), ["QuantizeLinear", "QGemm", "QGemm"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Quantize {
    pub(super) int8: Int8,
    pub(super) calibration: Calibration,
    pub(super) per_channel: bool,
    skip: Vec<String>,
    min_snr: Option<f64>,
}

impl Quantize {
    /// Static, with ranges by [`Calibration::MinMax`], one scale for each weight, and no layer left out.
    pub fn new() -> Self {
        Self::default()
    }

    /// When ranges are determined. Default: [`Int8::Static`].
    #[must_use]
    pub const fn int8(mut self, int8: Int8) -> Self {
        self.int8 = int8;
        self
    }

    /// How ranges are derived from data. Default: [`Calibration::MinMax`].
    #[must_use]
    pub const fn calibration(mut self, calibration: Calibration) -> Self {
        self.calibration = calibration;
        self
    }

    /// Whether a weight has a scale for each of its output channels. Default: one scale.
    #[must_use]
    pub const fn per_channel(mut self, per_channel: bool) -> Self {
        self.per_channel = per_channel;
        self
    }

    /// Leaves layers out, given by names of nodes, in which `*` matches any text. Default: none.
    #[must_use]
    pub fn skip<'a>(mut self, patterns: impl IntoIterator<Item = &'a str>) -> Self {
        self.skip.extend(patterns.into_iter().map(str::to_owned));
        self
    }

    /// Leaves out layers whose result has a signal-to-noise ratio below this, in decibels, if only they are quantized.
    /// Default: none.
    #[must_use]
    pub const fn min_snr(mut self, decibels: f64) -> Self {
        self.min_snr = Some(decibels);
        self
    }

    /// Whether a graph already has ranges, since its model is [in training for 8 bits](polygrad_nn::qat).
    pub fn is_learned(graph: &Graph) -> bool {
        learned::is_learned(&graph.body)
    }

    /// Quantizes a graph. Each of `batches` has a tensor for each input, in order. The ranges of [`Int8::Static`] come
    /// from all batches, the errors of layers in the result from the first, and those of outputs from all. The same
    /// graph and batches give the same result, bit by bit.
    ///
    /// A graph of a model [in training for 8 bits](polygrad_nn::qat) already has ranges. They are used, with the scales
    /// of its weights, and each layer without them stays in f32. Batches are only used to measure errors, so there may
    /// be none.
    ///
    /// # Errors
    /// A graph of an op set below 13, one that is quantized already or has no layer that can be quantized; a pattern
    /// that matches no layer; batches that are missing, do not fit the inputs, or lead to a value that is not finite.
    pub fn run(&self, graph: &Graph, batches: &[Vec<Tensor>], device: &Device) -> Result<Quantized> {
        let (graph, learned) = prepare::prepare(graph, device)?;
        self.verify(batches, learned.is_some())?;
        let mut found = layers::find(&graph.body, self.int8)?;
        let mut reports = self.leave_out(&graph, &mut found)?;
        if let Some(learned) = &learned {
            reports.extend(take_learned(&graph, learned, &mut found)?);
        }
        if self.per_channel && learned.is_none() && found.iter().all(|layer| layer.outputs(&graph.body) == 1) {
            return Err(Error::invalid(
                "no weight to be quantized has more than one output channel, so there is nothing to do per channel",
            )
            .with_hint("quantize it per tensor"));
        }
        let ranges = match self.int8 {
            _ if learned.is_some() => fixed::learned(&graph.body, &found),
            Int8::Static => calibrate::ranges(&graph, &found, self.calibration, batches, device)?,
            Int8::Dynamic => Ranges::default(),
        };
        let noise = measure::layers(self, &graph, &found, &ranges, batches, device)?;
        let mut kept = Vec::new();
        for (layer, snr) in found.into_iter().zip(noise) {
            let hurts = self.min_snr.is_some_and(|least| snr < least);
            let left_out = hurts.then(|| "its error".to_owned());
            reports.push(LayerReport::new(&layer, snr, left_out));
            if !hurts {
                kept.push(layer);
            }
        }
        if kept.is_empty() {
            return Err(Error::invalid("every layer is left out: there is nothing to quantize")
                .with_hint("skip fewer layers, or ask for a lower signal-to-noise ratio"));
        }
        reports.sort_by_key(|report| report.node);
        let made = self.write(&graph, &kept, &ranges)?;
        let outputs = measure::outputs(&graph, &made, batches, device)?;
        Ok(Quantized {
            graph: made,
            layers: reports,
            outputs,
        })
    }

    /// The graph with these layers quantized.
    pub(super) fn write(&self, graph: &Graph, layers: &[Layer], ranges: &Ranges) -> Result<Graph> {
        let mut made = match self.int8 {
            Int8::Static => fixed::write(self, graph, layers, ranges)?,
            Int8::Dynamic => dynamic::write(self, graph, layers)?,
        };
        prepare::prune(&mut made.body);
        made.check()?;
        Ok(made)
    }

    fn verify(&self, batches: &[Vec<Tensor>], learned: bool) -> Result<()> {
        if learned && self.int8 == Int8::Dynamic {
            return Err(
                Error::invalid("the model learned ranges in training, which dynamic ones have no use for")
                    .with_hint("quantize it statically"),
            );
        }
        if learned && self.calibration != Calibration::MinMax {
            return Err(
                Error::invalid("the model learned its ranges in training, so none follow from data")
                    .with_hint("leave the calibration out"),
            );
        }
        if let Calibration::Percentile(percent) = self.calibration
            && !(percent > 50.0 && percent <= 100.0)
        {
            return Err(Error::invalid(format!("{percent} is no percentile to cut a range at"))
                .with_hint("give one above 50 and up to 100, such as 99.99"));
        }
        if self.int8 == Int8::Static && batches.is_empty() && !learned {
            return Err(
                Error::invalid("there are no batches, from which the ranges of values would follow")
                    .with_hint("give some hundred rows of data, or quantize dynamically"),
            );
        }
        Ok(())
    }

    /// Removes the layers that a pattern matches, and reports them.
    fn leave_out(&self, graph: &Graph, layers: &mut Vec<Layer>) -> Result<Vec<LayerReport>> {
        for pattern in &self.skip {
            if layers.iter().any(|layer| matches(pattern, &layer.name)) {
                continue;
            }
            let names = || layers.iter().map(|layer| layer.name.as_str());
            let all: Vec<&str> = names().take(8).collect();
            let hint = match nearest(pattern, names()) {
                Some(near) => format!("near it: {}", printable(near)),
                None => format!("the layers are {}", printable(&all.join(", "))),
            };
            return Err(Error::invalid(format!(
                "no layer to be quantized is called {:?}, of {} in {:?}",
                printable(pattern),
                layers.len(),
                printable(&graph.body.name)
            ))
            .with_hint(hint));
        }
        let mut reports = Vec::new();
        layers.retain(|layer| {
            let named = self.skip.iter().find(|pattern| matches(pattern, &layer.name));
            if named.is_some() {
                reports.push(LayerReport::new(layer, f64::INFINITY, Some("its name".to_owned())));
            }
            named.is_none()
        });
        Ok(reports)
    }
}

/// Sets the learned ranges of layers. Removes layers without them, and reports them.
fn take_learned(graph: &Graph, learned: &Learned, layers: &mut Vec<Layer>) -> Result<Vec<LayerReport>> {
    let mut reports = Vec::new();
    layers.retain_mut(|layer| {
        layer.learned = learned.of(layer.x, layer.weight, layer.axis, layer.outputs(&graph.body));
        if layer.learned.is_none() {
            reports.push(LayerReport::new(
                layer,
                f64::INFINITY,
                Some("want of learned ranges".to_owned()),
            ));
        }
        layer.learned.is_some()
    });
    match layers.is_empty() {
        false => Ok(reports),
        true => Err(
            Error::invalid("no layer that is to be quantized learned ranges in training")
                .with_hint("skip fewer layers, or attach `qat` to the layers of the model"),
        ),
    }
}

/// Whether a name matches a pattern, in which `*` matches any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(start) else {
        return false;
    };
    (0..=name.len()).any(|at| name.is_char_boundary(at) && matches(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, name, expected) in [
            ("fc/Gemm", "fc/Gemm", true),
            ("fc/Gemm", "fc/Gemm_1", false),
            ("fc*", "fc/Gemm", true),
            ("*", "", true),
            ("*.4/*", "net.4/Conv", true),
            ("*.4/*x", "net.4/Conv", false),
            ("größe*", "größer", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
