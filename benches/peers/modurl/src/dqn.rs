//! DQN on CartPole.

use std::time::Instant;

use candle_core::{DType, Device};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use modurl::prelude::*;
use modurl_gym::classic_control::cartpole::CartPoleV1;

use crate::{Result, START, said};

/// Seconds for so many steps, after those that fill the buffer.
pub(crate) fn train(steps: usize) -> Result<f64> {
    let device = Device::Cpu;
    let env = said(CartPoleV1::builder().device(&device).build())?;
    let mut env = VectorizedGymWrapper::from(vec![env]);
    let network = |vars: &VarMap| {
        MLP::builder()
            .input_size(4)
            .output_size(2)
            .vb(VarBuilder::from_varmap(vars, DType::F32, &device))
            .hidden_layer_sizes(vec![64, 64])
            .build()
    };
    let (online, mut target) = (VarMap::new(), VarMap::new());
    let (online_network, target_network) = (network(&online)?, network(&target)?);
    let adam = ParamsAdamW {
        lr: 2.5e-4,
        weight_decay: 0.0,
        ..ParamsAdamW::default()
    };
    let agent = DQNAgent::builder()
        .action_space(Discrete::new(2))
        .observation_space(env.observation_space())
        .online_q_network(online_network)
        .target_q_network(target_network)
        .online_vars(&online)
        .target_vars(&mut target)
        .optimizer(AdamW::new(online.all_vars(), adam)?)
        .replay_capacity(10_000)
        .batch_size(64)
        .training_start(START)
        .update_frequency(4)
        .target_update_interval(500)
        .training_horizon(START + steps)
        .replay_storage_config(ReplayStorageConfig::new(ReplayDeviceStrategy::OneDevice(device.clone())))
        .build();
    let mut agent = said(agent)?;
    said(agent.learn(&mut env, START))?;
    let start = Instant::now();
    said(agent.learn(&mut env, steps))?;
    Ok(start.elapsed().as_secs_f64())
}
