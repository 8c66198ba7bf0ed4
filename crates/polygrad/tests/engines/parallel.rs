//! Training with several ranks on every backend gives bit-identical results on all ranks, equal to those of one process
//! on the joined batches.

use std::sync::Arc;
use std::time::Duration;

use polygrad::communicator::{Communicator, Threads};
use polygrad::data::DataLoaderConfig;
use polygrad::manual_seed;
use polygrad::nn::models::{Gpt2, Gpt2Config};
use polygrad::nn::{
    BatchNorm2d, Conv2d, Conv2dConfig, LSTM, Linear, ReLU, Sequential, StateDict, loss::cross_entropy, sync_batch_norm,
};
use polygrad::optim::{AdamConfig, SGDConfig};
use polygrad::prelude::*;
use polygrad::train::{Accuracy, Step, TrainerConfig};

use crate::devices;

const STEPS: u64 = 50;

/// The kinds of training; each has its own difficulty.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Mlp,
    /// With batch normalisation synchronized over the joined batch.
    Cnn,
    /// Without synchronization: ranks then agree with each other, but not with one process.
    CnnPlain,
    /// With accumulation and clipping.
    Gpt,
    /// With a last batch of which some rank has no examples.
    Lstm,
}

/// A model of any kind; returns the logits of a batch.
trait Net: Module {
    fn logits(&self, x: &Tensor) -> Result<Tensor>;
}

impl Net for Sequential {
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

#[derive(Module)]
struct Convolutional {
    conv: Conv2d,
    norm: BatchNorm2d,
    head: Linear,
}

impl Net for Convolutional {
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv.forward(&x.reshape([-1, 1, 2, 4])?)?;
        self.head.forward(&self.norm.forward(&x)?.relu()?.flatten(1, -1)?)
    }
}

impl Net for Gpt2 {
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(&(x * 8.0)?.to_dtype(DType::I64)?)?
            .narrow(1, 7, 1)?
            .squeeze(1)
    }
}

#[derive(Module)]
struct Recurrent {
    lstm: LSTM,
    head: Linear,
}

impl Net for Recurrent {
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        let (outputs, _) = self.lstm.forward(&x.reshape([-1, 4, 2])?.transpose(0, 1)?, None)?;
        self.head.forward(&outputs.narrow(0, 3, 1)?.squeeze(0)?)
    }
}

/// The loss of each step and the final weights, on one of several ranks.
fn train(
    kind: Kind,
    device: &Device,
    dtype: DType,
    rank: Option<Threads>,
    joined: usize,
) -> Result<(Vec<f64>, StateDict)> {
    manual_seed(11);
    match kind {
        Kind::Mlp => {
            let net = Sequential::new()
                .push(Linear::new(8, 16, device)?)
                .push(ReLU)
                .push(Linear::new(16, 3, device)?);
            train_net(kind, net, device, dtype, rank, joined)
        }
        Kind::Cnn | Kind::CnnPlain => {
            let net = Convolutional {
                // The gradient of a bias before a norm is 0 except for rounding errors, which would accumulate.
                conv: Conv2dConfig::new(1, 4, 3).padding(1).bias(false).build(device)?,
                norm: BatchNorm2d::new(4, device)?,
                head: Linear::new(32, 3, device)?,
            };
            if let (Some(rank), Kind::Cnn) = (&rank, kind) {
                assert_eq!(sync_batch_norm(&net, rank)?, 1);
            }
            train_net(kind, net, device, dtype, rank, joined)
        }
        Kind::Gpt => {
            let config = Gpt2Config {
                vocab_size: 8,
                n_positions: 8,
                n_embd: 8,
                n_layer: 1,
                n_head: 2,
                resid_pdrop: 0.0,
                embd_pdrop: 0.0,
                attn_pdrop: 0.0,
                ..Gpt2Config::default()
            };
            train_net(kind, Gpt2::new(&config, device)?, device, dtype, rank, joined)
        }
        Kind::Lstm => {
            let net = Recurrent {
                lstm: LSTM::new(2, 8, device)?,
                head: Linear::new(8, 3, device)?,
            };
            train_net(kind, net, device, dtype, rank, joined)
        }
    }
}

fn train_net<N: Net + 'static>(
    kind: Kind,
    net: N,
    device: &Device,
    dtype: DType,
    rank: Option<Threads>,
    joined: usize,
) -> Result<(Vec<f64>, StateDict)> {
    net.to_dtype(dtype)?;
    let each = 4;
    // The last batch of an LSTM's epoch has a single example.
    let count = if kind == Kind::Lstm {
        2 * each * joined + 1
    } else {
        6 * each * joined
    };
    // Below 1, since rounding errors in sums of large numbers would exceed the tolerance.
    let examples: Vec<([f32; 8], i64)> = (0..count)
        .map(|i| {
            let x = std::array::from_fn(|j| ((i * 7 + j * 5) % 8) as f32 / 8.0);
            (x, (i % 3) as i64)
        })
        .collect();
    let batch_size = if rank.is_some() { each } else { each * joined };
    let loader = DataLoaderConfig::new(examples)
        .batch_size(batch_size)
        .shuffle(3)
        .build(device)?;
    let accumulate = if kind == Kind::Gpt { 2 } else { 1 };
    let mut options = TrainerConfig::steps(STEPS)
        .log_every(1)
        .accumulate(accumulate)
        .metric(Accuracy::new());
    if kind == Kind::Gpt {
        options = options.clip_grad_norm(0.5);
    }
    if let Some(rank) = rank {
        options = options.parallel(Arc::new(rank));
    }
    let loss = move |net: &N, (x, y): &(Tensor, Tensor)| {
        let logits = net.logits(&x.to_dtype(dtype)?)?;
        Ok(Step::new(cross_entropy(&logits, y)?).outputs(logits, y))
    };
    let mut trainer = match kind {
        // The gradient of the keys' bias is 0 except for rounding errors, which Adam would scale up to normal steps in
        // f32.
        Kind::Gpt if dtype == DType::F64 => {
            let optimizer = AdamConfig::adamw(1e-2).build(net.parameters())?;
            options.build_captured(net, optimizer, loss)?
        }
        _ => {
            let optimizer = SGDConfig::new(0.05).momentum(0.9).build(net.parameters())?;
            options.build_captured(net, optimizer, loss)?
        }
    };
    let validation = DataLoaderConfig::new(vec![([0.125f32; 8], 1i64); 5])
        .batch_size(2)
        .build(device)?;
    trainer.fit(&loader, Some(&validation))?;
    let seen = trainer.history().iter();
    let figures = seen.flat_map(|row| [row.loss, row.metrics[0]]).collect();
    Ok((figures, trainer.model().state_dict()?))
}

fn ranks(kind: Kind, device: &Device, dtype: DType, size: usize) -> Result<Vec<(Vec<f64>, StateDict)>> {
    let ends = Threads::group(size, Duration::from_secs(60))?;
    std::thread::scope(|scope| {
        let start = |end: Threads| scope.spawn(move || train(kind, device, dtype, Some(end), size));
        let started: Vec<_> = ends.into_iter().map(start).collect();
        started
            .into_iter()
            .map(|rank| rank.join().expect("a rank panicked"))
            .collect()
    })
}

fn compare(kind: Kind, dtype: DType, tolerance: f64) {
    for (name, device) in devices().unwrap() {
        // 50 steps of each kind take minutes on a software driver or with a graph compiler.
        if !["cpu", "torch", "candle", "burn"]
            .iter()
            .any(|known| name.starts_with(known))
            || name.contains("wgpu")
        {
            println!("skipped: {name}");
            continue;
        }
        if let Err(reason) = Tensor::zeros([1], (&device, dtype)) {
            println!("skipped: {name} in {dtype}: {reason}");
            continue;
        }
        for size in [2, 3, 4] {
            let case = format!("{kind:?} on {size} ranks of {name} in {dtype}");
            let found = ranks(kind, &device, dtype, size).unwrap_or_else(|e| panic!("{case}: {e}"));
            let (figures, weights) = train(kind, &device, dtype, None, size).unwrap();
            for (rank, (seen, own)) in found.iter().enumerate() {
                for (name, value) in own.iter() {
                    let first = found[0].1.get(name).unwrap();
                    assert!(
                        value.bytes() == first.bytes(),
                        "{case}: {name} of rank {rank} is another one"
                    );
                    if kind == Kind::CnnPlain {
                        continue;
                    }
                    let wanted = weights.get(name).unwrap().to_f64_vec();
                    for (a, b) in value.to_f64_vec().iter().zip(&wanted) {
                        assert!(
                            (a - b).abs() <= tolerance * (1.0 + b.abs()),
                            "{case}: {name} is {a}, not {b}"
                        );
                    }
                }
                assert_eq!(seen.len(), figures.len(), "{case}");
                if kind == Kind::CnnPlain {
                    continue;
                }
                for (a, b) in seen.iter().zip(&figures) {
                    assert!(
                        (a - b).abs() <= tolerance * 10.0 * (1.0 + b.abs()),
                        "{case}: a figure is {a}, not {b}"
                    );
                }
            }
        }
    }
}

#[test]
fn several_ranks_train_as_one_does() {
    compare(Kind::Mlp, DType::F32, 1e-6);
    compare(Kind::Mlp, DType::F64, 1e-12);
}

#[test]
fn several_ranks_normalize_joined_batches_or_their_own() {
    compare(Kind::Cnn, DType::F32, 1e-6);
    compare(Kind::Cnn, DType::F64, 1e-12);
    compare(Kind::CnnPlain, DType::F32, 0.0);
}

#[test]
fn several_ranks_train_a_transformer_with_accumulation_and_clipping() {
    compare(Kind::Gpt, DType::F32, 1e-6);
    compare(Kind::Gpt, DType::F64, 1e-12);
}

#[test]
fn several_ranks_train_on_uneven_tails() {
    compare(Kind::Lstm, DType::F32, 1e-6);
    compare(Kind::Lstm, DType::F64, 1e-12);
}

#[test]
fn ranks_that_differ_are_named() {
    let ends = Threads::group(2, Duration::from_secs(60)).unwrap();
    let errors: Vec<String> = std::thread::scope(|scope| {
        let start = |end: Threads| {
            scope.spawn(move || {
                let device = Device::<Cpu>::default().into_any();
                manual_seed(end.rank() as u64);
                let net = Linear::new(8, 3, &device).unwrap();
                let optimizer = SGDConfig::new(0.1).build(net.parameters()).unwrap();
                let loader = DataLoaderConfig::new(vec![([1.0f32; 8], 1i64)]).build(&device).unwrap();
                let options = TrainerConfig::steps(1).parallel(Arc::new(end));
                let loss = |net: &Linear, (x, y): &(Tensor, Tensor)| cross_entropy(&net.forward(x)?, y);
                let mut trainer = options.build(net, optimizer, loss).unwrap();
                trainer.fit(&loader, None).unwrap_err().to_string()
            })
        };
        let started: Vec<_> = ends.into_iter().map(start).collect();
        started.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for error in errors {
        assert!(
            error.contains("rank 1 has a model of other weights than rank 0"),
            "{error}"
        );
        assert!(error.contains("manual_seed"), "{error}");
    }
}
