//! The trainings on the failing device.

use std::cell::Cell;
use std::collections::BTreeMap;

use polygrad_nn::loss::{cross_entropy, mse_loss};
use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{Device, Result, Tensor, manual_seed};

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Phase {
    Forward,
    Loss,
    Backward,
    Clip,
    Step,
}

/// Everything that a training step needs.
pub(crate) struct Training {
    pub(crate) model: Sequential,
    pub(crate) optimizer: Box<dyn Optimizer>,
    pub(crate) input: Tensor,
    pub(crate) target: Tensor,
    loss: fn(&Tensor, &Tensor) -> Result<Tensor>,
    /// Clips by the norm of all gradients, which reads values, instead of clipping each gradient separately.
    pub(crate) by_norm: bool,
    pub(crate) phase: Cell<Phase>,
}

impl Training {
    pub(crate) fn step(&mut self) -> Result<()> {
        // Gives the same dropout each time.
        manual_seed(7);
        self.phase.set(Phase::Forward);
        let output = self.model.forward(&self.input)?;
        self.phase.set(Phase::Loss);
        let loss = (self.loss)(&output, &self.target)?;
        self.phase.set(Phase::Backward);
        let mut gradients = loss.backward()?;
        self.phase.set(Phase::Clip);
        match self.by_norm {
            true => clip_grad_norm(&mut gradients, 1e-3).map(drop)?,
            false => clip_grad_value(&mut gradients, 1e-3)?,
        }
        self.phase.set(Phase::Step);
        self.optimizer.step(&gradients)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.model
            .named_parameters()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// The bytes of each parameter and of its optimizer state.
    pub(crate) fn values(&self) -> BTreeMap<String, Vec<Vec<u8>>> {
        let state = self.optimizer.state_dict().unwrap();
        let of_one = |(name, param): (String, Param)| {
            let mut values = vec![param.tensor().to_host().unwrap().bytes().to_vec()];
            values.extend(
                state
                    .with_prefix(&format!("{name}."))
                    .iter()
                    .map(|(_, x)| x.bytes().to_vec()),
            );
            (name, values)
        };
        self.model.named_parameters().into_iter().map(of_one).collect()
    }

    pub(crate) fn is_finite(&self) -> bool {
        let finite = |(_, param): (String, Param)| param.tensor().to_f64_vec().unwrap().iter().all(|x| x.is_finite());
        self.model.named_parameters().into_iter().all(finite)
    }
}

pub(crate) fn training(
    device: &Device,
    model: Sequential,
    optimizer: impl Optimizer + 'static,
    input: Tensor,
    classes: usize,
) -> Result<Training> {
    let rows = input.shape()[0];
    let target = (0..rows).map(|i| (i % classes) as i64).collect();
    Ok(Training {
        model,
        optimizer: Box::new(optimizer),
        input,
        target: Tensor::from_vec::<i64>(target, [rows], device)?,
        loss: cross_entropy,
        by_norm: false,
        phase: Cell::new(Phase::Forward),
    })
}

pub(crate) fn mlp_layers(device: &Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .push(Linear::new(6, 8, device)?)
        .push(Tanh)
        .push(Linear::new(8, 3, device)?))
}

pub(crate) fn mlp(device: &Device) -> Result<Training> {
    let model = mlp_layers(device)?;
    let optimizer = Adam::new(model.parameters(), 0.01)?;
    training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)
}

/// An optimizer that takes many ops on the device instead of one.
pub(crate) fn mlp_with_rmsprop(device: &Device) -> Result<Training> {
    let model = mlp_layers(device)?;
    let config = RMSpropConfig::new(0.01).momentum(0.9).weight_decay(0.1).centered(true);
    let optimizer = config.build(model.parameters())?;
    let mut out = training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)?;
    out.target = Tensor::randn([5, 3], device)?;
    out.loss = |output, target| mse_loss(output, target);
    Ok(out)
}

/// One group of parameters for each layer.
pub(crate) fn mlp_with_lamb(device: &Device) -> Result<Training> {
    let model = mlp_layers(device)?;
    let params = model.parameters();
    let mut optimizer = LAMBConfig::new(0.01).build(params[..2].to_vec())?;
    optimizer.add_group(LAMBConfig::new(0.1).weight_decay(0.0), params[2..].to_vec())?;
    training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)
}

pub(crate) fn mlp_with_lion(device: &Device) -> Result<Training> {
    let model = mlp_layers(device)?;
    let optimizer = LionConfig::new(0.01).weight_decay(0.1).build(model.parameters())?;
    training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)
}

/// Only matrices, one of which is taller than wide.
pub(crate) fn mlp_with_muon(device: &Device) -> Result<Training> {
    let model = Sequential::new()
        .push(LinearConfig::new(6, 8).bias(false).build(device)?)
        .push(Tanh)
        .push(LinearConfig::new(8, 3).bias(false).build(device)?);
    let optimizer = MuonConfig::new(0.02).ns_steps(2).build(model.parameters())?;
    training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)
}

pub(crate) fn cnn(device: &Device) -> Result<Training> {
    let model = Sequential::new()
        .push(Conv2d::new(1, 4, 3, device)?)
        .push(BatchNorm2d::new(4, device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(AvgPool2d::new(2).stride(1))
        .push(Dropout::new(0.3)?)
        .push(Flatten::new())
        .push(Linear::new(16, 3, device)?);
    let optimizer = SGDConfig::new(0.05).momentum(0.9).nesterov(true).weight_decay(1e-4);
    let optimizer = optimizer.build(model.parameters())?;
    training(device, model, optimizer, Tensor::randn([4, 1, 8, 8], device)?, 3)
}

pub(crate) fn embedded(device: &Device) -> Result<Training> {
    let model = Sequential::new()
        .push(Embedding::new(11, 6, device)?)
        .push(LayerNorm::new(6, device)?)
        .push(GELU::default())
        .push(Flatten::new())
        .push(Linear::new(24, 5, device)?);
    let optimizer = AdamW::new(model.parameters(), 0.01)?;
    let words = (0..12).map(|i| (i * 7) % 11).collect();
    let words = Tensor::from_vec::<i64>(words, [3, 4], device)?;
    training(device, model, optimizer, words, 5)
}

pub(crate) type Build = fn(&Device) -> Result<Training>;
