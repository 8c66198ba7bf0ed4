//! A small model of each kind, with weights far from their initial values.

mod families;

use std::sync::Arc;

use polygrad_core::{Distribution, HostTensor, RandomKey, random_host};
use polygrad_nn::models::*;
use polygrad_nn::{
    AdaptiveAvgPool3d, AdaptiveMaxPool2d, AdaptiveMaxPool3d, AvgPool3d, BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d,
    Conv2d, Conv2dConfig, Conv3dConfig, ConvTranspose2dConfig, ConvTranspose3dConfig, ELU, Embedding, GELU, GRUConfig,
    GroupNorm, InstanceNorm3d, LSTMConfig, LeakyReLU, Linear, Masks, MaxPool2d, MaxPool3d, Module,
    MultiheadAttentionConfig, RMSNorm, RNNConfig, ReLU, Sequential, SiLU, Slot, Softplus, StateDict, Upsample,
};
use polygrad_onnx::{Export, Input};
use polygrad_rl::{
    ActionSpace, ActorCritic, EncoderConfig, MemoryConfig, MemoryKind, MlpEncoderConfig, Policy, PolicyConfig,
    PolicyState,
};
use polygrad_tensor::{DType, Device, PadMode, Result, Tensor};

/// A forward pass.
pub type Run = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A model, how it is exported, and how it runs.
pub struct Case {
    /// Its name in messages and files.
    pub name: &'static str,
    /// The model.
    pub model: Box<dyn Module>,
    /// Its inputs and outputs.
    pub export: Export,
    /// Its forward pass.
    pub run: Run,
}

/// Sets all parameters and buffers to other values, so that none is still an initial 0 or 1.
fn stir(model: &dyn Module) -> Result<()> {
    let mut state = StateDict::new();
    // A shared parameter has one of its names here.
    let params = model
        .named_parameters()
        .into_iter()
        .map(|(name, param)| (name, param.tensor()));
    let buffers = model
        .named_buffers()
        .into_iter()
        .map(|(name, buffer)| (name, buffer.tensor()));
    for (i, (name, tensor)) in params.chain(buffers).enumerate() {
        let host = tensor.to_host()?;
        if !host.dtype().is_float() {
            state.insert(name, host);
            continue;
        }
        let key = RandomKey {
            seed: 5,
            offset: (i as u64) << 32,
        };
        let noise = Distribution::Uniform { low: -0.1, high: 0.2 };
        let noise = random_host(*host.shape(), noise, DType::F64, key)?.to_f64_vec();
        let values = host.to_f64_vec().iter().zip(noise).map(|(a, b)| a + b).collect();
        state.insert(name, HostTensor::new(*host.shape(), values)?.cast(host.dtype()));
    }
    model.load_state_dict(&state, true).map(|_| ())
}

fn case<M: Module + 'static>(
    name: &'static str,
    model: M,
    inputs: Vec<Input>,
    run: impl Fn(&M, &[Tensor]) -> Result<Vec<Tensor>> + 'static,
) -> Result<Case> {
    let model = Arc::new(model);
    stir(&*model)?;
    let shared = Arc::clone(&model);
    Ok(Case {
        name,
        model: Box::new(model),
        export: Export::new(inputs),
        run: Box::new(move |x| run(&shared, x)),
    })
}

fn sequential(name: &'static str, model: Sequential, input: Input) -> Result<Case> {
    case(name, model, vec![input], |model, x| Ok(vec![model.forward(&x[0])?]))
}

fn images(channels: usize, side: usize) -> Input {
    Input::new("images", DType::F32, ("batch", channels, side, side))
}

fn tokens(name: &str, below: i64) -> Input {
    Input::new(name, DType::I64, ["batch", "seq"]).below(below)
}

/// All cases.
pub fn cases(device: &Device) -> Result<Vec<Case>> {
    let mut all = convolutional(device)?;
    all.extend(recurrent(device)?);
    all.extend(attending(device)?);
    all.extend(single_ops(device)?);
    Ok(all)
}

fn convolutional(device: &Device) -> Result<Vec<Case>> {
    let mlp = Mlp::new(&MlpConfig::new([6, 16, 12, 3]), device)?;
    let x = Input::new("x", DType::F32, ("batch", 6));
    let lenet = LeNet::new(&LeNetConfig::default(), device)?;
    let cnn = Sequential::new()
        .push(Conv2dConfig::new(3, 8, 3).padding(1).build(device)?)
        .push(BatchNorm2d::new(8, device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Conv2dConfig::new(8, 8, 3).groups(4).bias(false).build(device)?)
        .push(BatchNorm2d::new(8, device)?)
        .push(SiLU)
        .push(GroupNorm::new(2, 8, device)?)
        .push(
            ConvTranspose2dConfig::new(8, 4, 3)
                .stride(2)
                .output_padding(1)
                .build(device)?,
        )
        .push(LeakyReLU::default())
        .push(ELU::default());
    let any_size = Sequential::new()
        .push(Conv2dConfig::new(3, 8, 3).stride(2).padding(1).build(device)?)
        .push(BatchNorm2d::new(8, device)?)
        .push(ReLU)
        .push(Conv2d::new(8, 4, 3, device)?)
        .push(Softplus::default());
    let any = Input::new("images", DType::F32, ("batch", 3, "height", "width"));
    let line = Sequential::new()
        .push(Conv1d::new(4, 6, 3, device)?)
        .push(BatchNorm1d::new(6, device)?)
        .push(GELU::Exact);
    let padded = |mode| {
        Conv2dConfig::new(3, 3, 3)
            .padding([1, 2])
            .padding_mode(mode)
            .build(device)
    };
    let modes = Sequential::new()
        .push(padded(PadMode::Reflect)?)
        .push(padded(PadMode::Replicate)?)
        .push(padded(PadMode::Circular)?)
        .push(AdaptiveMaxPool2d::new([5, 3]));
    let volumes = Sequential::new()
        .push(Conv3dConfig::new(2, 4, 3).padding([1, 0, 1]).groups(2).build(device)?)
        .push(BatchNorm3d::new(4, device)?)
        .push(MaxPool3d::new(2).stride(1).ceil_mode(true))
        .push(
            ConvTranspose3dConfig::new(4, 3, 3)
                .stride([1, 2, 2])
                .output_padding([0, 1, 0])
                .build(device)?,
        )
        .push(InstanceNorm3d::new(3, device)?)
        .push(AvgPool3d::new([1, 2, 2]).padding([0, 1, 1]).count_include_pad(false))
        .push(AdaptiveMaxPool3d::new([4, 5, 2]))
        .push(AvgPool3d::new(2).divisor_override(3))
        .push(AdaptiveAvgPool3d::new([2, 3, 1]))
        .push(Upsample::scale_factor(2.0));
    let volume = Input::new("volumes", DType::F32, ("batch", 2, 6, 7, 8));
    let signal = Input::new("signal", DType::F32, ("batch", 4, "length"));
    let small = ResNetConfig {
        num_classes: 10,
        width: 4,
        small_images: true,
        ..ResNetConfig::default()
    };
    let resnet = ResNet::new(&small, device)?;
    Ok(vec![
        case("mlp", mlp, vec![x], |model, x| Ok(vec![model.forward(&x[0])?]))?,
        case("lenet", lenet, vec![images(1, 28)], |model, x| {
            Ok(vec![model.forward(&x[0])?])
        })?,
        sequential("cnn", cnn, images(3, 16))?,
        with_bounds(sequential("cnn_any_size", any_size, any)?, &["height", "width"]),
        with_bounds(sequential("conv1d", line, signal)?, &["length"]),
        sequential("padding_modes", modes, images(3, 8))?,
        sequential("volumes", volumes, volume)?,
        case("resnet18", resnet, vec![images(3, 32)], |model, x| {
            Ok(vec![model.forward(&x[0])?])
        })?,
    ])
}

/// Bounds the named extents from below, so that images and signals are not smaller than the windows.
fn with_bounds(mut case: Case, names: &[&str]) -> Case {
    for name in names {
        case.export = case.export.bound(name, 9..=usize::MAX);
    }
    case
}

fn recurrent(device: &Device) -> Result<Vec<Case>> {
    let series = || Input::new("x", DType::F32, ("batch", "seq", 5));
    let state = |name: &str, layers: usize| Input::new(name, DType::F32, (layers, "batch", 7));
    let lstm = LSTMConfig::new(5, 7)
        .num_layers(2)
        .batch_first(true)
        .bidirectional(true)
        .build(device)?;
    let carried = LSTMConfig::new(5, 7).num_layers(2).batch_first(true).build(device)?;
    let gru = GRUConfig::new(5, 7)
        .batch_first(true)
        .bidirectional(true)
        .build(device)?;
    let bare = GRUConfig::new(5, 7)
        .num_layers(2)
        .bias(false)
        .batch_first(true)
        .build(device)?;
    let rnn = RNNConfig::new(5, 7)
        .batch_first(true)
        .bidirectional(true)
        .build(device)?;
    let encoder = MlpEncoderConfig {
        hidden: vec![8],
        ..MlpEncoderConfig::new(5)
    };
    let config = PolicyConfig {
        memory: Some(MemoryConfig::new(MemoryKind::Lstm, 7)),
        shared: true,
        ..PolicyConfig::new(EncoderConfig::Mlp(encoder), ActionSpace::Discrete(3))
    };
    let policy: ActorCritic = ActorCritic::new(&config, device)?;
    let parts = policy.initial_state(1)?.parts().len();
    let mut inputs = vec![Input::new("observations", DType::F32, ("batch", 5))];
    inputs.extend((0..parts).map(|i| state(["h", "c", "h_critic", "c_critic"][i % 4], 1)));
    Ok(vec![
        case("lstm", lstm, vec![series()], |model, x| {
            let (y, (h, c)) = model.forward(&x[0], None)?;
            Ok(vec![y, h, c])
        })?,
        case(
            "lstm_with_state",
            carried,
            vec![series(), state("h", 2), state("c", 2)],
            |model, x| {
                let (y, (h, c)) = model.forward(&x[0], Some((x[1].clone(), x[2].clone())))?;
                Ok(vec![y, h, c])
            },
        )?,
        case("gru", gru, vec![series()], |model, x| {
            let (y, h) = model.forward(&x[0], None)?;
            Ok(vec![y, h])
        })?,
        case("gru_without_bias", bare, vec![series(), state("h", 2)], |model, x| {
            let (y, h) = model.forward(&x[0], Some(x[1].clone()))?;
            Ok(vec![y, h])
        })?,
        case("rnn", rnn, vec![series()], |model, x| {
            let (y, h) = model.forward(&x[0], None)?;
            Ok(vec![y, h])
        })?,
        case("lstm_policy", policy, inputs, |model, x| {
            let answer = model.forward(&x[0], &PolicyState::new(x[1..].to_vec()))?;
            let mut outputs = vec![answer.action.output().clone(), answer.value()?.clone()];
            outputs.extend(answer.state.parts().iter().cloned());
            Ok(outputs)
        })?,
    ])
}

/// Families of single ops, on tensors `[batch, seq, 6]` and on images `[batch, 4, 12, 12]`.
fn single_ops(device: &Device) -> Result<Vec<Case>> {
    let mut all = Vec::new();
    for (name, run) in families::ALL {
        let model = Linear::new(6, 6, device)?;
        let inputs = vec![
            Input::new("x", DType::F32, ("batch", "seq", 6)),
            Input::new("y", DType::F32, ("batch", "seq", 6)),
            Input::new("images", DType::F32, ("batch", 4, 12, 12)),
            Input::new("ids", DType::I64, ("batch", "seq", 6)).below(4),
        ];
        all.push(case(name, model, inputs, run)?);
    }
    Ok(all)
}

fn attending(device: &Device) -> Result<Vec<Case>> {
    let bert = BertConfig {
        vocab_size: 40,
        hidden_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 3,
        intermediate_size: 32,
        num_labels: Some(3),
        ..BertConfig::default()
    };
    let gpt2 = Gpt2Config {
        vocab_size: 40,
        n_positions: 512,
        n_embd: 24,
        n_layer: 2,
        n_head: 3,
        ..Gpt2Config::default()
    };
    let vit = VitConfig {
        image_size: 16,
        patch_size: 4,
        num_layers: 2,
        num_heads: 3,
        hidden_dim: 24,
        mlp_dim: 32,
        num_classes: 5,
        ..VitConfig::default()
    };
    let t5 = T5Config {
        vocab_size: 40,
        d_model: 24,
        d_kv: 8,
        d_ff: 32,
        num_layers: 2,
        num_heads: 3,
        ..T5Config::default()
    };
    let llama = LlamaConfig {
        vocab_size: 40,
        hidden_size: 24,
        intermediate_size: 20,
        num_hidden_layers: 2,
        num_attention_heads: 6,
        num_key_value_heads: Some(2),
        max_position_embeddings: 512,
        ..LlamaConfig::default()
    };
    let mut wrapped_bert = Bert::new(&bert, device)?;
    for layer in &mut wrapped_bert.encoder.layer {
        Lora::wrap(&mut layer.attention.heads.query, device)?;
    }
    let mut wrapped_llama = Llama::new(&llama, device)?;
    for layer in &mut wrapped_llama.model.layers {
        Lora::wrap(&mut layer.self_attn.q_proj, device)?;
    }
    let llama = Llama::new(&llama, device)?;
    let bert = BertClassifier::new(&bert, device)?;
    let cached = Gpt2::new(&gpt2, device)?;
    let gpt2 = Gpt2::new(&gpt2, device)?;
    let mut past = vec![tokens("ids", 40)];
    for name in ["key_0", "value_0", "key_1", "value_1"] {
        past.push(Input::new(name, DType::F32, ("batch", 3, "past", 8)));
    }
    let vit = VisionTransformer::new(&vit, device)?;
    let t5 = T5::new(&t5, device)?;
    let attention = MultiheadAttentionConfig::new(12, 3).batch_first(true).build(device)?;
    let (embedding, norm, head) = (
        Embedding::new(40, 12, device)?,
        RMSNorm::new([12], device)?,
        Linear::new(12, 4, device)?,
    );
    let mixed = Mixed {
        embedding,
        attention,
        norm,
        head,
    };
    let target = Input::new("decoder_ids", DType::I64, ["batch", "target"]).below(40);
    Ok(vec![
        case("bert", bert, vec![tokens("ids", 40), tokens("mask", 2)], |model, x| {
            Ok(vec![model.forward(BertInput::new(&x[0]).attention_mask(&x[1]))?])
        })?,
        case("gpt2", gpt2, vec![tokens("ids", 40)], |model, x| {
            Ok(vec![model.forward(&x[0])?])
        })?,
        case("llama", llama, vec![tokens("ids", 40)], |model, x| {
            Ok(vec![model.forward(&x[0])?])
        })?,
        case("wrapped_bert", wrapped_bert, vec![tokens("ids", 40)], |model, x| {
            model.hidden_states(BertInput::new(&x[0]))
        })?,
        case("wrapped_llama", wrapped_llama, vec![tokens("ids", 40)], |model, x| {
            Ok(vec![model.forward(&x[0])?])
        })?,
        case("gpt2_with_past", cached, past, |model, x| {
            let mut cache = model.new_cache();
            for (layer, past) in cache.layers().iter_mut().zip(x[1..].chunks(2)) {
                layer.append(&past[0], &past[1])?;
            }
            let mut outputs = vec![model.forward_cached(&x[0], &mut cache)?];
            for layer in cache.layers() {
                outputs.extend(layer.get()?.into_iter().flat_map(|(k, v)| [k, v]));
            }
            Ok(outputs)
        })?,
        case("vit", vit, vec![images(3, 16)], |model, x| {
            Ok(vec![model.forward(&x[0])?])
        })?,
        case(
            "t5",
            t5,
            vec![tokens("ids", 40), tokens("mask", 2), target],
            |model, x| Ok(vec![model.forward(&x[0], Some(&x[1]), &x[2])?]),
        )?,
        case("causal_attention", mixed, vec![tokens("ids", 40)], Mixed::run)?,
    ])
}

/// A user's wrapper around a layer of width 24.
#[derive(Module)]
#[module(forward)]
struct Lora {
    base_layer: Slot<Linear>,
    lora_a: Linear,
    lora_b: Linear,
}

impl Lora {
    fn wrap(layer: &mut Slot<Linear>, device: &Device) -> Result<()> {
        let lora = Self {
            base_layer: layer.clone(),
            lora_a: Linear::new(24, 4, device)?,
            lora_b: Linear::new(4, 24, device)?,
        };
        layer.set(lora);
        Ok(())
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.base_layer
            .forward(x)?
            .add(self.lora_b.forward(&self.lora_a.forward(x)?)?)
    }
}

/// A user's model with causal attention that classifies by the last token.
#[derive(Module)]
struct Mixed {
    embedding: Embedding,
    attention: polygrad_nn::MultiheadAttention,
    norm: RMSNorm,
    head: Linear,
}

impl Mixed {
    fn run(&self, x: &[Tensor]) -> Result<Vec<Tensor>> {
        let x = self.embedding.forward(&x[0])?;
        let y = self
            .norm
            .forward(&(&x + self.attention.forward(&x, &x, &x, Masks::causal())?)?)?;
        let last = y.select(1, -1)?;
        let (b, s, e) = (y.dims()[0], y.dims()[1], y.dims()[2]);
        let flat = y.reshape([b * s, e])?.reshape([b, s * e])?;
        let mean = (flat.reshape([b, s, e])?.sum(1)? / s as f64)?;
        Ok(vec![self.head.forward(&(last + mean)?)?])
    }
}
