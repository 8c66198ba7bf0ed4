//! ModuRL as its user would write it, with the settings that its own figures are of, and two layers of 64 features:
//!
//! - `ppo` on CartPole: 8 environments, rollouts of 256 steps, minibatches of 64, 10 epochs, tanh, Adam with 3e-4, no
//!   bonus for entropy;
//! - `dqn` on CartPole: a minibatch of 64 every 4 steps, Adam with 2.5e-4;
//! - `sac` on Pendulum: a minibatch of 64 every step, the temperature learnt, Adam with 3e-4.
//!
//! ```sh
//! RAYON_NUM_THREADS=1 cargo run --release -- ppo 20480
//! ```
//!
//! prints how long training took for so many steps, after a part of the training before the clock starts.

mod dqn;
mod sac;

use std::error::Error;
use std::fmt::Debug;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use modurl::prelude::*;
use modurl_gym::classic_control::cartpole::CartPoleV1;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ENVS: usize = 8;
const BATCH: usize = ENVS * 256;
/// What DQN and SAC do before they learn.
const START: usize = 1_000;

/// Converts ModuRL's errors, not all of which are `std::error::Error`.
fn said<T, E: Debug>(result: std::result::Result<T, E>) -> Result<T> {
    result.map_err(|e| format!("{e:?}").into())
}

/// A network and its optimizer.
fn network(name: &str, outputs: usize, output_gain: f64, device: &Device) -> Result<(MLP, AdamW)> {
    let vars = VarMap::new();
    let mlp = MLP::builder()
        .input_size(4)
        .output_size(outputs)
        .vb(VarBuilder::from_varmap(&vars, DType::F32, device))
        .activation(Tensor::tanh)
        .hidden_layer_sizes(vec![64, 64])
        .initializer(OrthogonalMLPInitializer {
            hidden_gain: std::f64::consts::SQRT_2,
            output_gain,
        })
        .name(name.to_owned())
        .build()?;
    let adam = ParamsAdamW {
        lr: 3e-4,
        eps: 1e-5,
        weight_decay: 0.0,
        ..ParamsAdamW::default()
    };
    Ok((mlp, AdamW::new(vars.all_vars(), adam)?))
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let algorithm = args.next().unwrap_or_default();
    let steps: usize = args.next().map_or(Ok(10 * BATCH), |text| text.parse())?;
    let seconds = match algorithm.as_str() {
        "ppo" => ppo(steps)?,
        "dqn" => dqn::train(steps)?,
        "sac" => sac::train(steps)?,
        other => return Err(format!("{other:?} is no algorithm: take ppo, dqn or sac").into()),
    };
    let speed = steps as f64 / seconds;
    println!("ModuRL 0.1.0, {algorithm}: {steps} steps in {seconds:.2} s, {speed:.0} steps/s");
    Ok(())
}

/// Seconds for so many steps, after one iteration.
fn ppo(steps: usize) -> Result<f64> {
    if steps == 0 || steps % BATCH != 0 {
        return Err(format!("{steps} steps are no whole iterations: take a multiple of {BATCH}").into());
    }
    let device = Device::Cpu;
    let envs = (0..ENVS).map(|_| CartPoleV1::builder().device(&device).build());
    let mut env = VectorizedGymWrapper::from(said(envs.collect::<std::result::Result<Vec<_>, _>>())?);
    let (actor, actor_optimizer) = network("actor", 2, 0.01, &device)?;
    let (critic, critic_optimizer) = network("critic", 1, 1.0, &device)?;
    let networks = SeparatePPONetwork::builder()
        .actor_network(ProbabilisticPolicyModel::<CategoricalDistribution>::new(actor))
        .critic_network(critic)
        .actor_optimizer(actor_optimizer)
        .critic_optimizer(critic_optimizer)
        .combined_loss(true)
        .build();
    let agent = PPOAgent::builder()
        .action_space(env.action_space())
        .network_info(PPONetworkInfo::Separate(networks))
        .batch_size(BATCH)
        .mini_batch_size(64)
        .num_epochs(10)
        .ent_coef(0.0)
        .clip_range(ConstantSchedule::new(0.2))
        .training_horizon(BATCH + steps)
        .device(device)
        .build();
    let mut agent = said(agent)?;
    said(agent.learn(&mut env, BATCH))?;
    let start = Instant::now();
    said(agent.learn(&mut env, steps))?;
    Ok(start.elapsed().as_secs_f64())
}
