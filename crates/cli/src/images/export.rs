//! The contents of an ONNX file of an image model.

use polygrad::nn::Sequential;
use polygrad::{DType, Tensor};
use polygrad_onnx::graph::Dim;
use polygrad_onnx::{self as onnx, Export};

use super::config::{Config, Input};
use crate::failure::Result;
use crate::onnx::Exported;
use crate::run::config::name;

impl Exported for Config {
    fn network(&self) -> String {
        name(self.model)
    }

    fn export(&self, batch: Dim) -> Result<Export> {
        let Input {
            channels, rows, cols, ..
        } = self.input;
        let images = onnx::Input::new("images", DType::F32, (batch, channels, rows, cols));
        Ok(Export::new([images]).outputs(["logits"]))
    }

    fn answer(&self, model: &Sequential, x: &Tensor) -> polygrad::Result<Tensor> {
        model.forward(x)
    }

    fn metadata(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("classes", self.classes.join("\n")),
            ("mean", self.input.mean.to_string()),
            ("std", self.input.std.to_string()),
        ])
    }

    fn summary(&self) -> String {
        format!(
            "{} on {}: images of {} × {} × {} (channels, rows, columns), {} classes",
            name(self.model),
            self.dataset,
            self.input.channels,
            self.input.rows,
            self.input.cols,
            self.classes.len()
        )
    }
}
