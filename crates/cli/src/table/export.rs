//! The contents of an ONNX file of a table model.

use polygrad::nn::Sequential;
use polygrad::{DType, Tensor};
use polygrad_onnx::graph::Dim;
use polygrad_onnx::{Export, Input};

use super::Settings;
use super::settings::Goal;
use crate::failure::{Failure, Result};
use crate::onnx::Exported;

impl Exported for Settings {
    fn network(&self) -> String {
        "mlp".to_owned()
    }

    fn export(&self, batch: Dim) -> Result<Export> {
        let output = match self.goal {
            Goal::Regress { .. } => "prediction",
            _ => "logits",
        };
        let features = Input::new("features", DType::F32, (batch, self.encoder()?.width()));
        Ok(Export::new([features]).outputs([output]))
    }

    /// Numbers are in the target's units, and f32: `predict` computes these in f64.
    fn answer(&self, model: &Sequential, x: &Tensor) -> polygrad::Result<Tensor> {
        let answer = model.forward(x)?;
        match self.goal {
            Goal::Regress { mean, std } => (answer * std)? + mean,
            _ => Ok(answer),
        }
    }

    fn target(&self, y: Tensor) -> polygrad::Result<Tensor> {
        match self.goal {
            Goal::Regress { mean, std } => (y * std)? + mean,
            _ => Ok(y),
        }
    }

    fn metadata(&self) -> Result<Vec<(&'static str, String)>> {
        let encoder = serde_json::to_string(self.encoder()?)
            .map_err(|e| Failure::new(format!("the encoder cannot be written as JSON: {e}")))?;
        let mut metadata = vec![("target", self.target.clone()), ("encoder", encoder)];
        if let Goal::Classify { classes } = &self.goal {
            metadata.push(("classes", classes.join("\n")));
        }
        Ok(metadata)
    }

    fn summary(&self) -> String {
        format!(
            "mlp on a table: {} from {} columns, {}",
            self.target,
            self.columns.len(),
            match &self.goal {
                Goal::Classify { classes } => format!("one of {} classes", classes.len()),
                _ => "a number".to_owned(),
            }
        )
    }
}
