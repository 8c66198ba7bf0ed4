//! Ranks compared with PyTorch's: the losses recorded by `scripts/compare_ddp.py`, from the same weights and data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polygrad_data::{DataLoaderConfig, Dataset};
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::optim::{AdamConfig, SGDConfig};
use polygrad_nn::{
    BatchNorm2d, Conv2d, Embedding, Flatten, Forward, LSTM, LayerNorm, Linear, Masks, Module, ReLU, Sequential,
    StateDict, TransformerActivation, TransformerEncoder, TransformerLayerConfig, sync_batch_norm,
};
use polygrad_tensor::{DType, Device, Result, Tensor};
use polygrad_threads::Threads;
use polygrad_train::TrainerConfig;

const STEPS: u64 = 50;
const EACH: usize = 4;

fn recorded(file: &str) -> PathBuf {
    let folder: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into();
    folder.join("tests/data/ddp").join(file)
}

#[derive(Module)]
#[module(forward)]
struct Gpt {
    wte: Embedding,
    wpe: Embedding,
    encoder: TransformerEncoder,
    head: Linear,
}

impl Gpt {
    fn new(device: &Device) -> Result<Self> {
        let layer = TransformerLayerConfig::new(16, 2)
            .dim_feedforward(32)
            .dropout(0.0)
            .activation(TransformerActivation::Gelu)
            .batch_first(true)
            .norm_first(true);
        Ok(Self {
            wte: Embedding::new(16, 16, device)?,
            wpe: Embedding::new(8, 16, device)?,
            encoder: TransformerEncoder::new(layer, 2, device)?.with_norm(LayerNorm::new(16, device)?),
            head: Linear::new(16, 16, device)?,
        })
    }

    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let places = Tensor::arange(0i64, 8i64, 1i64, (&tokens.device(), DType::I64))?;
        let x = self.wte.forward(tokens)?.add(&self.wpe.forward(&places)?)?;
        let logits = self.head.forward(&self.encoder.forward(&x, Masks::causal())?)?;
        logits.reshape([-1, 16])
    }
}

#[derive(Module)]
#[module(forward)]
struct Lstm {
    lstm: LSTM,
    head: Linear,
}

impl Lstm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (outputs, _) = self.lstm.forward(&x.transpose(0, 1)?, None)?;
        self.head.forward(&outputs.narrow(0, 5, 1)?.squeeze(0)?)
    }
}

fn train(name: &str, stored: &StateDict, rank: Threads) -> Result<Vec<f64>> {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    match name {
        "mlp" => {
            let net = Sequential::new()
                .push(Linear::new(16, 32, device)?)
                .push(ReLU)
                .push(Linear::new(32, 4, device)?);
            train_net(name, net, stored, rank)
        }
        "gpt" => train_net(name, Gpt::new(device)?, stored, rank),
        "lstm" => {
            let net = Lstm {
                lstm: LSTM::new(3, 12, device)?,
                head: Linear::new(12, 4, device)?,
            };
            train_net(name, net, stored, rank)
        }
        _ => {
            let net = Sequential::new()
                .push(Conv2d::new(1, 6, 3, device)?)
                .push(BatchNorm2d::new(6, device)?)
                .push(ReLU)
                .push(Conv2d::new(6, 8, 3, device)?)
                .push(BatchNorm2d::new(8, device)?)
                .push(ReLU)
                .push(Flatten::new())
                .push(Linear::new(128, 4, device)?);
            train_net(name, net, stored, rank)
        }
    }
}

/// The loss of each step, on one rank.
fn train_net<N: Forward + 'static>(name: &str, net: N, stored: &StateDict, rank: Threads) -> Result<Vec<f64>> {
    let prefix = format!("{name}.weights.");
    let weights: StateDict = stored
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), value.clone())))
        .collect();
    net.load_state_dict(&weights, true)?;
    if name == "cnn_sync" {
        assert_eq!(sync_batch_norm(&net, &rank)?, 2);
    }
    let [x, y] = ["x", "y"].map(|kind| stored.get(&format!("{name}.{kind}")).unwrap().clone());
    let loader = DataLoaderConfig::new(x.zip(y)?)
        .batch_size(EACH)
        .build(&Device::<polygrad_cpu::Cpu>::default().into_any())?;
    let mut options = TrainerConfig::steps(STEPS).log_every(1).parallel(Arc::new(rank));
    if name == "gpt" {
        options = options.accumulate(2).clip_grad_norm(0.5);
    }
    let loss = |net: &N, (x, y): &(Tensor, Tensor)| cross_entropy(&net.forward(x)?, &y.flatten(0, -1)?);
    let mut trainer = match name {
        "gpt" => {
            let optimizer = AdamConfig::adamw(1e-3).build(net.parameters())?;
            options.build_captured(net, optimizer, loss)?
        }
        _ => {
            let optimizer = SGDConfig::new(0.02).momentum(0.9).build(net.parameters())?;
            options.build_captured(net, optimizer, loss)?
        }
    };
    trainer.fit(&loader, None)?;
    Ok(trainer.history().iter().map(|row| row.loss).collect())
}

#[test]
fn losses_are_those_of_pytorch_ddp() {
    let stored = StateDict::load(recorded("ddp.safetensors")).unwrap();
    let text = std::fs::read_to_string(recorded("losses.json")).unwrap();
    let losses: BTreeMap<String, BTreeMap<usize, Vec<f64>>> = serde_json::from_str(&text).unwrap();
    assert_eq!(losses.len(), 5);
    for (name, of) in &losses {
        for (&size, wanted) in of {
            let ends = Threads::group(size, Duration::from_secs(60)).unwrap();
            let found: Vec<Vec<f64>> = std::thread::scope(|scope| {
                let start = |end| scope.spawn(|| train(name, &stored, end).unwrap());
                let started: Vec<_> = ends.into_iter().map(start).collect();
                started.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            assert_eq!((found[0].len(), wanted.len()), (STEPS as usize, STEPS as usize));
            let pairs = found[0].iter().zip(wanted);
            let worst = pairs.map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max);
            println!("{name} on {size} ranks: {worst:.1e}");
            assert!(worst < 1e-5, "{name} on {size} ranks: losses are {worst:e} apart");
        }
    }
}
