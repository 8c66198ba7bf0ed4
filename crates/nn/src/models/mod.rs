//! Models that people use, each a config that serializes to JSON and a [`Module`](crate::Module) with the parameter names of its PyTorch or
//! Hugging Face counterpart, so that a state dict goes both ways unchanged.

mod activation;
mod bert;
mod causal;
mod config;
mod gpt2;
mod head;
mod lenet;
mod llama;
mod mlp;
mod resnet;
mod t5;
mod vit;

pub use activation::ActivationFn;
pub use bert::{Bert, BertClassifier, BertConfig, BertInput};
pub use causal::{CausalLm, CausalLmCache, GenerateConfig, Generation};
pub use config::ModelConfig;
pub use gpt2::{Gpt2, Gpt2Config};
pub use lenet::{LeNet, LeNetConfig};
pub use llama::{GgufValue, Llama, LlamaConfig, RopeScaling, llama_from_gguf};
pub use mlp::{Mlp, MlpConfig};
pub use resnet::{BasicBlock, ResNet, ResNetConfig};
pub use t5::{T5, T5Cache, T5Config};
pub use vit::{VisionTransformer, VitConfig};
