//! The optimizers that PPO can take.

use polygrad_nn::optim::{Adam, AdamConfig, Muon, MuonConfig, Optimizer};
use polygrad_nn::{Module, StateDict};
use polygrad_tensor::{Gradients, Result};

use super::config::{PpoConfig, PpoOptimizer};
use super::minibatch::BoxedOptimizer;

/// CleanRL's.
const ADAM_EPS: f64 = 1e-5;

/// Layers without a hidden layer behind them, which Muon is not for.
const HEADS: [&str; 2] = ["actor.", "critic."];

pub(super) fn build(policy: &impl Module, config: &PpoConfig) -> Result<BoxedOptimizer> {
    let adam = AdamConfig::new(config.learning_rate.at(0.0)).eps(ADAM_EPS);
    Ok(match config.optimizer {
        PpoOptimizer::Adam => Box::new(adam.build(policy.parameters())?),
        PpoOptimizer::Muon(lr) => {
            let (hidden, others): (Vec<_>, Vec<_>) =
                policy.named_parameters().into_iter().partition(|(name, param)| {
                    param.shape().rank() == 2 && !HEADS.iter().any(|head| name.starts_with(head))
                });
            let params = |named: Vec<(String, _)>| named.into_iter().map(|(_, param)| param).collect::<Vec<_>>();
            Box::new(MuonAndAdam {
                muon: MuonConfig::new(lr).weight_decay(0.0).build(params(hidden))?,
                adam: adam.build(params(others))?,
            })
        }
    })
}

/// Two optimizers, each of parameters of its own; the groups of the first come first.
struct MuonAndAdam {
    muon: Muon,
    adam: Adam,
}

impl Optimizer for MuonAndAdam {
    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        self.muon.step(gradients)?;
        self.adam.step(gradients)
    }

    fn allow_unused(&mut self, allow: bool) {
        self.muon.allow_unused(allow);
        self.adam.allow_unused(allow);
    }

    fn error_if_nonfinite(&mut self, error: bool) {
        self.muon.error_if_nonfinite(error);
        self.adam.error_if_nonfinite(error);
    }

    fn lr(&self) -> f64 {
        self.adam.lr()
    }

    fn set_lr(&mut self, lr: f64) {
        self.muon.set_lr(lr);
        self.adam.set_lr(lr);
    }

    fn lrs(&self) -> Vec<f64> {
        [self.muon.lrs(), self.adam.lrs()].concat()
    }

    fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        let (muon, adam) = lrs.split_at(lrs.len().min(self.muon.lrs().len()));
        self.muon.set_lrs(muon)?;
        self.adam.set_lrs(adam)
    }

    fn base_lrs(&self) -> Vec<f64> {
        [self.muon.base_lrs(), self.adam.base_lrs()].concat()
    }

    fn state_dict(&self) -> Result<StateDict> {
        let mut all = StateDict::new();
        for (prefix, state) in [("muon.", self.muon.state_dict()?), ("adam.", self.adam.state_dict()?)] {
            all.extend(
                state
                    .iter()
                    .map(|(name, value)| (format!("{prefix}{name}"), value.clone())),
            );
        }
        Ok(all)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        self.muon.load_state_dict(&state.with_prefix("muon."))?;
        self.adam.load_state_dict(&state.with_prefix("adam."))
    }
}
