//! Models that people use, each a config that serializes to JSON and a [`Module`](crate::Module) with the parameter names of its PyTorch
//! counterpart.

mod activation;
pub mod lenet;
pub mod mlp;
pub mod policy;
pub mod resnet;

pub use activation::ActivationFn;
pub use lenet::{LeNet, LeNetConfig};
pub use mlp::{Mlp, MlpConfig};
pub use policy::{
    ActionParams, ActionSpace, CnnEncoderConfig, CnnPolicy, CnnPolicyConfig, ConvLayer, EncoderConfig, LstmPolicy,
    LstmPolicyConfig, MlpEncoderConfig, MlpPolicy, MlpPolicyConfig, Policy, PolicyOutput, PolicyState,
};
pub use resnet::{BasicBlock, ResNet, ResNetConfig};
