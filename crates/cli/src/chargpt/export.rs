//! The contents of an ONNX file of a character model.

use polygrad::nn::models::Gpt2;
use polygrad::{DType, Tensor};
use polygrad_onnx::graph::Dim;
use polygrad_onnx::{Export, Input};

use super::Settings;
use crate::failure::Result;
use crate::onnx::Exported;

impl Exported for Settings {
    fn network(&self) -> String {
        "gpt".to_owned()
    }

    /// The logits of the next character after each character of a sequence.
    fn export(&self, batch: Dim) -> Result<Export> {
        let ids = Input::new("input_ids", DType::I64, (batch, "sequence"));
        let ids = ids.below(self.config().vocab_size as i64);
        Ok(Export::new([ids])
            .outputs(["logits"])
            .bound("sequence", 1..=self.context))
    }

    fn answer(&self, model: &Gpt2, x: &Tensor) -> polygrad::Result<Tensor> {
        model.forward(x)
    }

    fn metadata(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![("characters", self.characters.clone())])
    }

    fn summary(&self) -> String {
        format!(
            "gpt on characters: {} kinds of them, {} at a time",
            self.characters.chars().count(),
            self.context
        )
    }
}
