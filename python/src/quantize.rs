//! Models whose products use 8-bit integers.

use polygrad::backend::HostTensor;
use polygrad::onnx::graph::Graph;
use polygrad::onnx::{Calibration, Int8, Quantize, Quantized};
use polygrad::{DType, Device, Error, Result, Tensor};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use serde::Deserialize;

/// The settings of `polygrad.Model.quantize`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    int8: Ranges,
    calibration: Method,
    percentile: Option<f64>,
    per_channel: bool,
    skip: Vec<String>,
    min_snr: Option<f64>,
    batch_size: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ranges {
    Static,
    Dynamic,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    MinMax,
    Percentile,
    Mse,
}

impl Order {
    pub(crate) fn read(json: &str) -> Result<Self> {
        crate::errors::settings(json)
    }

    /// Quantizes a graph with the rows of its inputs as calibration data.
    ///
    /// # Errors
    /// Those of [`Quantize::run`]; if inputs do not fit.
    pub(crate) fn run(
        &self,
        graph: &Graph,
        dtypes: &[DType],
        inputs: &[HostTensor],
        device: &Device,
    ) -> Result<Quantized> {
        let calibration = match (&self.calibration, self.percentile) {
            (Method::Percentile, percent) => Calibration::Percentile(percent.unwrap_or(99.99)),
            (_, Some(_)) => {
                return Err(
                    Error::invalid("percentile is for calibration=\"percentile\"").with_hint("give both, or neither")
                );
            }
            (Method::MinMax, None) => Calibration::MinMax,
            (Method::Mse, None) => Calibration::Mse,
        };
        let quantize = Quantize::new()
            .int8(match self.int8 {
                Ranges::Static => Int8::Static,
                Ranges::Dynamic => Int8::Dynamic,
            })
            .calibration(calibration)
            .per_channel(self.per_channel)
            .skip(self.skip.iter().map(String::as_str));
        let quantize = self.min_snr.into_iter().fold(quantize, Quantize::min_snr);
        quantize.run(graph, &self.batches(dtypes, inputs, device)?, device)
    }

    fn batches(&self, dtypes: &[DType], inputs: &[HostTensor], device: &Device) -> Result<Vec<Vec<Tensor>>> {
        if inputs.is_empty() {
            return Ok(Vec::new());
        }
        if inputs.len() != dtypes.len() {
            let text = format!("{} inputs, but the model takes {}", inputs.len(), dtypes.len());
            return Err(Error::invalid(text));
        }
        let rows = inputs[0].shape().dims().first().copied().unwrap_or(0);
        let whole = inputs
            .iter()
            .zip(dtypes)
            .map(|(input, &dtype)| Tensor::from_host(input.cast(dtype), device));
        let whole = whole.collect::<Result<Vec<_>>>()?;
        let size = self.batch_size.max(1);
        let batch = |begin: usize| {
            whole
                .iter()
                .map(move |input| input.narrow(0, begin, size.min(rows - begin)))
                .collect()
        };
        (0..rows).step_by(size).map(batch).collect()
    }
}

/// The loss of accuracy of each layer, for Python.
pub(crate) fn report<'py>(py: Python<'py>, quantized: &Quantized) -> PyResult<Vec<Bound<'py, pyo3::types::PyDict>>> {
    let layers = quantized.layers.iter().map(|layer| {
        let told = [("name", &layer.name), ("op", &layer.op)].into_py_dict(py)?;
        told.set_item("snr", layer.snr)?;
        told.set_item("left_out", &layer.left_out)?;
        Ok(told)
    });
    layers.collect()
}
