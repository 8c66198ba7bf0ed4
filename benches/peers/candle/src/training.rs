//! Weights, data and optimizers.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::optim::{AdamW, Optimizer, ParamsAdamW, SGD};
use candle_nn::{Linear, loss};
use polygrad_peer::data::{INPUT, TARGET, classes, noise};
use polygrad_peer::{Step, Weights};

/// A model's parameters in the order of all peers.
#[derive(Default)]
pub struct Params {
    weights: Weights,
    pub vars: Vec<Var>,
}

impl Params {
    pub fn take(&mut self, shape: &[usize], scales: bool) -> Result<Tensor> {
        let values = self.weights.take(shape, scales);
        let var = Var::from_vec(values, shape, &Device::Cpu)?;
        self.vars.push(var.clone());
        Ok(var.into_inner())
    }

    pub fn linear(&mut self, inputs: usize, outputs: usize) -> Result<Linear> {
        let weight = self.take(&[outputs, inputs], false)?;
        Ok(Linear::new(weight, Some(self.take(&[outputs], false)?)))
    }
}

pub fn input(shape: &[usize]) -> Result<Tensor> {
    Tensor::from_vec(noise(shape.iter().product(), INPUT), shape, &Device::Cpu)
}

pub fn tokens(shape: &[usize], of: usize, seed: u64) -> Result<Tensor> {
    let classes = classes(shape.iter().product(), of, seed);
    Tensor::from_vec(classes, shape, &Device::Cpu)?.to_dtype(DType::U32)
}

enum Any {
    Plain(SGD),
    /// A buffer for each parameter, since candle-nn has no momentum.
    Momentum(Vec<Var>, Vec<Option<Tensor>>),
    Adam(AdamW),
}

impl Any {
    fn new(name: &str, vars: Vec<Var>) -> Result<Self> {
        let adam = |vars, weight_decay| {
            let params = ParamsAdamW {
                lr: 1e-3,
                weight_decay,
                ..ParamsAdamW::default()
            };
            AdamW::new(vars, params).map(Self::Adam)
        };
        match name {
            "sgd" => Ok(Self::Plain(SGD::new(vars, 0.01)?)),
            "momentum" => Ok(Self::Momentum(vars.clone(), vec![None; vars.len()])),
            "adam" => adam(vars, 0.0),
            _ => adam(vars, 0.01),
        }
    }

    fn step(&mut self, loss: &Tensor) -> Result<()> {
        match self {
            Self::Plain(optimizer) => optimizer.backward_step(loss),
            Self::Adam(optimizer) => optimizer.backward_step(loss),
            Self::Momentum(vars, buffers) => {
                let gradients = loss.backward()?;
                for (var, buffer) in vars.iter().zip(buffers) {
                    if let Some(gradient) = gradients.get(var) {
                        let direction = match buffer.take() {
                            Some(old) => ((old * 0.9)? + gradient)?,
                            None => gradient.clone(),
                        };
                        var.set(&(var.as_tensor() - (&direction * 0.01)?)?)?;
                        *buffer = Some(direction.detach());
                    }
                }
                Ok(())
            }
        }
    }
}

/// Trains on one batch whose targets are `rows` classes out of `of`.
pub fn training(
    params: Params,
    optimizer: &str,
    x: Tensor,
    (rows, of): (usize, usize),
    forward: impl Fn(&Tensor) -> Result<Tensor> + 'static,
) -> Result<Step> {
    let target = tokens(&[rows], of, TARGET)?;
    let mut optimizer = Any::new(optimizer, params.vars)?;
    Ok(Box::new(move || {
        let loss = loss::cross_entropy(&forward(&x)?, &target)?;
        optimizer.step(&loss)?;
        Ok(Some(f64::from(loss.to_scalar::<f32>()?)))
    }))
}
