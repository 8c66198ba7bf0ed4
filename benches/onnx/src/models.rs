//! The models that are run, with seeded weights, written by our exporter.

use std::path::{Path, PathBuf};

use polygrad_core::{Distribution, HostTensor, RandomKey, random_host};
use polygrad_nn::models::{BertClassifier, BertConfig, BertInput, Mlp, MlpConfig, ResNet, ResNetConfig};
use polygrad_nn::{BatchNorm2d, Conv2dConfig, Flatten, LSTM, LSTMConfig, Linear, MaxPool2d, Module, ReLU, Sequential};
use polygrad_onnx::{Export, ExportOnnx, Input};
use polygrad_tensor::{DType, Device, Result, Shape, Tensor, manual_seed};

/// The size of BERT's vocabulary.
const TOKENS: i64 = 1000;
/// Steps of the LSTM and tokens of a text.
const LENGTH: usize = 64;

pub const NAMES: [&str; 5] = ["mlp", "cnn", "resnet18", "lstm", "bert"];

/// An exported model: the file, the weights beside it, and its inputs.
pub struct Exported {
    pub onnx: PathBuf,
    pub weights: PathBuf,
    inputs: Vec<Input>,
}

#[derive(Module)]
struct Sequence {
    lstm: LSTM,
    head: Linear,
}

/// Writes the file of a model and its weights to a folder.
pub fn export(name: &str, folder: &Path, device: &Device) -> Result<Exported> {
    manual_seed(7);
    let images = |channels, side| vec![Input::new("images", DType::F32, ("batch", channels, side, side))];
    let to = Target { name, folder };
    match name {
        "mlp" => {
            let model = Mlp::new(&MlpConfig::new([784, 512, 512, 10]), device)?;
            let x = vec![Input::new("x", DType::F32, ("batch", 784))];
            to.write(&model, x, |m, x| m.forward(&x[0]))
        }
        "cnn" => {
            let conv = |from, to| Conv2dConfig::new(from, to, 3).padding(1).build(device);
            let model = Sequential::new()
                .push(conv(1, 32)?)
                .push(BatchNorm2d::new(32, device)?)
                .push(ReLU)
                .push(MaxPool2d::new(2))
                .push(conv(32, 64)?)
                .push(BatchNorm2d::new(64, device)?)
                .push(ReLU)
                .push(MaxPool2d::new(2))
                .push(Flatten::default())
                .push(Linear::new(3136, 128, device)?)
                .push(ReLU)
                .push(Linear::new(128, 10, device)?);
            to.write(&model, images(1, 28), |m, x| m.forward(&x[0]))
        }
        "resnet18" => {
            let config = ResNetConfig {
                num_classes: 10,
                small_images: true,
                ..ResNetConfig::default()
            };
            let model = ResNet::new(&config, device)?;
            to.write(&model, images(3, 32), |m, x| m.forward(&x[0]))
        }
        "lstm" => {
            let model = Sequence {
                lstm: LSTMConfig::new(64, 128).batch_first(true).build(device)?,
                head: Linear::new(128, 10, device)?,
            };
            let x = vec![Input::new("x", DType::F32, ("batch", LENGTH, 64))];
            to.write(&model, x, |m, x| {
                let (_, (hidden, _)) = m.lstm.forward(&x[0], None)?;
                m.head.forward(&hidden.select(0, 0)?)
            })
        }
        _ => {
            let config = BertConfig {
                vocab_size: TOKENS as usize,
                hidden_size: 128,
                num_hidden_layers: 4,
                num_attention_heads: 4,
                intermediate_size: 512,
                max_position_embeddings: LENGTH,
                ..BertConfig::default()
            };
            let model = BertClassifier::new(&config, device)?;
            let x = vec![
                Input::new("ids", DType::I64, ("batch", LENGTH)).below(TOKENS),
                Input::new("mask", DType::I64, ("batch", LENGTH)),
            ];
            to.write(&model, x, |m, x| m.forward(BertInput::new(&x[0]).attention_mask(&x[1])))
        }
    }
}

struct Target<'a> {
    name: &'a str,
    folder: &'a Path,
}

impl Target<'_> {
    fn write<M: Module>(
        &self,
        model: &M,
        inputs: Vec<Input>,
        forward: impl Fn(&M, &[Tensor]) -> Result<Tensor>,
    ) -> Result<Exported> {
        let path = |ending| self.folder.join(format!("{}.{ending}", self.name));
        let (onnx, weights) = (path("onnx"), path("safetensors"));
        model.state_dict()?.save(&weights)?;
        let export = Export::new(inputs.clone()).outputs(["logits"]);
        model.export_onnx(&onnx, &export, |x| forward(model, x))?;
        Ok(Exported { onnx, weights, inputs })
    }
}

impl Exported {
    /// Random inputs, by name: normal floats, tokens, and masks without padding.
    pub fn inputs(&self, batch: usize) -> Result<Vec<(String, HostTensor)>> {
        let make = |(i, input): (usize, &Input)| {
            let extent = |dim: &polygrad_onnx::graph::Dim| match dim {
                polygrad_onnx::graph::Dim::Fixed(extent) => *extent,
                _ => batch,
            };
            let shape = Shape::new(&input.dims().iter().map(extent).collect::<Vec<_>>())?;
            let key = RandomKey {
                seed: 100 + i as u64,
                offset: 0,
            };
            let (distribution, dtype) = match input.name() {
                "ids" => (Distribution::Integers { low: 0, high: TOKENS }, DType::I64),
                "mask" => (Distribution::Integers { low: 1, high: 2 }, DType::I64),
                _ => (Distribution::Normal { mean: 0.0, std: 1.0 }, DType::F32),
            };
            Ok((input.name().to_owned(), random_host(shape, distribution, dtype, key)?))
        };
        self.inputs.iter().enumerate().map(make).collect()
    }
}
