//! SAC on Pendulum.

use std::time::Instant;

use candle_core::{DType, Device, Module, Tensor, Var};
use candle_nn::{AdamW, Init, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use modurl::prelude::*;
use modurl_gym::classic_control::pendulum::PendulumV1;

use crate::{Result, START, said};

/// Means that depend on the observation, and a standard deviation that does not: as in its guide.
struct Gaussian {
    mean: MLP,
    log_std: Tensor,
}

impl Module for Gaussian {
    fn forward(&self, observations: &Tensor) -> candle_core::Result<Tensor> {
        let mean = self.mean.forward(observations)?;
        let log_std = self.log_std.broadcast_as(mean.shape())?.clamp(-20.0, 2.0)?;
        Tensor::cat(&[mean, log_std], 1)
    }
}

fn network(vb: VarBuilder<'_>, inputs: usize) -> Result<MLP> {
    let network = MLP::builder().input_size(inputs).output_size(1).vb(vb);
    Ok(network.hidden_layer_sizes(vec![64, 64]).build()?)
}

fn adam(vars: Vec<Var>) -> Result<AdamW> {
    let config = ParamsAdamW {
        lr: 3e-4,
        weight_decay: 0.0,
        ..ParamsAdamW::default()
    };
    Ok(AdamW::new(vars, config)?)
}

/// Seconds for so many steps, after those that fill the buffer.
pub(crate) fn train(steps: usize) -> Result<f64> {
    let device = Device::Cpu;
    let builder = |vars: &VarMap| VarBuilder::from_varmap(vars, DType::F32, &device);
    let env = said(PendulumV1::builder().device(&device).build())?;
    let mut env = VectorizedGymWrapper::from(vec![TimeLimitGym::new(env, 200)]);
    let actor = VarMap::new();
    let module = Gaussian {
        mean: network(builder(&actor).pp("mean"), 3)?,
        log_std: builder(&actor).get_with_hints((1, 1), "log_std", Init::Const(0.0))?,
    };
    let squashed = TransformedDistribution::new(said(GaussianDistribution::new(vec![1]))?, TanhTransform);
    let numbers = |x: f32| Tensor::full(x, 1, &device);
    let scaled = said(AffineTransform::new(numbers(2.0)?, numbers(0.0)?))?;
    let policy = ProbabilisticPolicyModel::with_distribution(module, TransformedDistribution::new(squashed, scaled));
    let online = [VarMap::new(), VarMap::new()];
    let mut targets = [VarMap::new(), VarMap::new()];
    let mut critics = Vec::new();
    for (online, target) in online.iter().zip(&mut targets) {
        let (own, following) = (network(builder(online), 4)?, network(builder(target), 4)?);
        let critic = SACCritic::builder()
            .online_network(ScalarStateActionCritic::new(own))
            .target_network(ScalarStateActionCritic::new(following))
            .online_vars(online)
            .target_vars(target)
            .optimizer(adam(online.all_vars())?)
            .build();
        critics.push(said(critic)?);
    }
    let log_alpha = Var::from_vec(vec![0.0f32], (), &device)?;
    let entropy = SACEntropyConfiguration::automatic(log_alpha.clone(), adam(vec![log_alpha])?);
    let agent = SACAgent::builder()
        .policy(policy)
        .actor_optimizer(adam(actor.all_vars())?)
        .critics(critics)
        .entropy_configuration(entropy)
        .action_space(env.action_space())
        .observation_space(env.observation_space())
        .replay_storage_config(ReplayStorageConfig::new(ReplayDeviceStrategy::OneDevice(device.clone())))
        .batch_size(64)
        .training_start(START)
        .training_horizon(START + steps)
        .build();
    let mut agent = said(agent)?;
    said(agent.learn(&mut env, START))?;
    let start = Instant::now();
    said(agent.learn(&mut env, steps))?;
    Ok(start.elapsed().as_secs_f64())
}
