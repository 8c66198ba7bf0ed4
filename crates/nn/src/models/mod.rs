//! Whole models, each made from a config that serializes to JSON, with the parameter names of its PyTorch or Hugging Face counterpart, so that
//! a state dict goes both ways unchanged.

mod bert;
mod config;
mod gpt2;
mod t5;
mod vit;

pub use bert::{BertClassifier, BertConfig, BertInput};
pub use config::{HiddenAct, ModelConfig};
pub use gpt2::{GenerateConfig, Gpt2, Gpt2Cache, Gpt2Config};
pub use t5::{T5, T5Cache, T5Config};
pub use vit::{VisionTransformer, VitConfig};
