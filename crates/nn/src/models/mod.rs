//! Well-known models, each a config that serializes to JSON and a [`Module`](crate::Module) with the parameter names of
//! its PyTorch or Hugging Face counterpart, so that state dicts can be exchanged in both directions. Their parts are
//! public, and each layer of a transformer is in a [`Slot`](crate::Slot), so that it can be replaced.

mod activation;
pub mod bert;
mod causal;
mod config;
pub mod gpt2;
mod lenet;
pub mod llama;
mod mlp;
mod resnet;
pub mod t5;
pub mod vit;

pub use activation::ActivationFn;
pub use bert::{Bert, BertClassifier, BertConfig, BertInput};
pub use causal::{CausalLm, CausalLmCache, ContinuousBatch, GenerateConfig, Generation, NextToken};
pub use config::ModelConfig;
pub use gpt2::{Gpt2, Gpt2Config, Gpt2Model};
pub use lenet::{LeNet, LeNetConfig};
pub use llama::{
    GgufTensor, GgufValue, Llama, LlamaConfig, LlamaModel, RopeScaling, llama_config_from_gguf, llama_from_gguf,
    llama_from_gguf_packed, llama_to_gguf,
};
pub use mlp::{Mlp, MlpConfig};
pub use resnet::{BasicBlock, ResNet, ResNetConfig};
pub use t5::{T5, T5Cache, T5Config, T5HiddenStates};
pub use vit::{VisionTransformer, VitConfig};
