//! Deep Q-learning.

mod config;
mod loss;

use polygrad_core::{Error, Result, Rng};
use polygrad_nn::optim::{Adam, AdamConfig};
use polygrad_nn::{CapturedStep, Module, TrainStep};
use polygrad_tensor::{AnyBackend, Backend, Tensor};

pub use config::DqnConfig;
pub use loss::{DqnBatch, DqnLosses, DqnVariant, dqn_loss};

use crate::experience::Experience;
use crate::off_policy::{Following, Greedy, Method, OffPolicy, Seen, Trained, discrete_actions, finite};
use crate::{Policy, QNetwork, VectorEnv};

type Loss = Box<dyn Fn(&Networks, &[Tensor]) -> Result<Answer> + Send>;
/// The loss, the errors of the transitions, and the mean value.
type Answer = (Tensor, Tensor, Tensor);

/// Trains a network that estimates the value of each action, by deep Q-learning. [`DqnConfig`] has its variants.
///
/// It mostly takes the action of the greatest value, and sometimes a random one.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{CartPole, Dqn, DqnConfig, EncoderConfig, MlpEncoderConfig, QNetwork, Vectorized};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let encoder = EncoderConfig::Mlp(MlpEncoderConfig::new(4));
/// let envs = Vectorized::new(|_| CartPole::v1(), 1)?;
/// let config = DqnConfig { total_steps: 100, batch_size: 8, learning_starts: 50, ..DqnConfig::default() };
/// let mut dqn = Dqn::new(envs, || QNetwork::new(&encoder, 2, false, &device), config)?;
/// while !dqn.is_done() {
///     let loss = dqn.iterate()?.loss;
/// }
/// assert_eq!(dqn.steps(), 100);
/// # Ok(())
/// # }
/// ```
///
/// Source: Mnih et al., "Human-level control through deep reinforcement learning" (2015).
pub type Dqn = OffPolicy<QLearning>;

/// How [`Dqn`] acts and learns.
pub struct QLearning {
    config: DqnConfig,
    greedy: Greedy<Networks, Adam, Loss>,
    following: Following,
}

/// The network that learns, and the target network, which values the next observation and whose parameters are frozen.
#[derive(Module)]
struct Networks<B: Backend = AnyBackend> {
    online: QNetwork<B>,
    target: QNetwork<B>,
}

impl AsRef<QNetwork> for Networks {
    fn as_ref(&self) -> &QNetwork {
        &self.online
    }
}

impl Dqn {
    /// A training that has not begun, of a network that `make` creates. `make` is called twice, since the target
    /// network is separate.
    ///
    /// # Errors
    /// Those of `make`; if an option is invalid, if the actions of the environments are not discrete or can be masked,
    /// or if memory runs out.
    pub fn new(envs: impl VectorEnv + 'static, make: impl Fn() -> Result<QNetwork>, config: DqnConfig) -> Result<Self> {
        config.check(envs.rows())?;
        let networks = Networks {
            online: make()?,
            target: make()?,
        };
        let actions = discrete_actions(&envs, &networks.online).map_err(|error| error.with_op("DQN"))?;
        networks
            .target
            .parameters()
            .iter()
            .for_each(|param| param.set_trainable(false));
        let mut following = Following::default();
        following.add(&networks.target, &networks.online);
        following.follow(1.0)?;
        let optimizer = AdamConfig::new(config.learning_rate.at(0.0)).build(networks.online.parameters())?;
        let (pace, prioritized) = (config.pace(), config.prioritized);
        let explored = (config.epsilon, config.exploration_fraction);
        let method = QLearning {
            greedy: Greedy::new(step(networks, optimizer, &config), actions, explored),
            following,
            config,
        };
        Self::begin(method, envs, pace, |replay| match prioritized {
            Some(priorities) => replay.prioritized(priorities),
            None => Ok(replay),
        })
    }

    /// The network that learns.
    pub fn network(&self) -> &QNetwork {
        &self.method.greedy.step.model().online
    }
}

impl Method for QLearning {
    const NAME: &'static str = "DQN";
    const KEY: &'static str = "dqn";
    const LEARNT: &'static [&'static str] = &["q_value"];
    const TOLD: &'static [&'static str] = &["epsilon"];

    fn policy(&self) -> &dyn Policy {
        &self.greedy.step.model().online
    }

    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        self.greedy.act(seen, rng)
    }

    fn anneal(&mut self, progress: f64) -> Result<f64> {
        Ok(self.greedy.set_rate(self.config.learning_rate.at(progress)))
    }

    fn learn(&mut self, from: &mut Experience, _update: u64, progress: f64, rng: &mut Rng) -> Result<Vec<f64>> {
        let replay = &mut from.replay;
        let places = replay.sample(self.config.batch_size, rng)?;
        let drawn = replay.upload(&places, &from.shape, self.greedy.device())?;
        let weights = replay.weights(&places, progress);
        let weights = Tensor::from_vec(weights, [places.len()], self.greedy.device())?;
        let (loss, errors, value) = self.greedy.step.step(&[
            drawn.observations,
            drawn.actions,
            drawn.rewards,
            drawn.discounts,
            drawn.next_observations,
            weights,
        ])?;
        if self.config.prioritized.is_some() {
            replay.set_errors(&places, &errors.to_vec::<f32>()?)?;
        }
        Ok(vec![finite(&loss)?, value.item()?])
    }

    /// If it is due, copies the values of the learning network to the target.
    fn settle(&mut self, before: u64, after: u64) -> Result<()> {
        let every = self.config.target_frequency;
        match before / every < after / every {
            true => self.following.follow(1.0),
            false => Ok(()),
        }
    }

    fn told(&self, progress: f64) -> Result<Vec<f64>> {
        Ok(vec![self.greedy.epsilon(progress)])
    }

    fn trained(&self) -> &dyn Trained {
        &self.greedy
    }

    fn trained_mut(&mut self) -> &mut dyn Trained {
        &mut self.greedy
    }
}

fn wrong(message: String) -> Error {
    Error::invalid(message).with_op("DQN")
}

/// The captured step of the optimizer.
fn step(networks: Networks, optimizer: Adam, config: &DqnConfig) -> CapturedStep<Networks, Adam, Loss> {
    let variant = DqnVariant {
        double: config.double,
        huber: config.huber,
    };
    let loss: Loss = Box::new(move |networks, inputs| {
        let [observations, actions, rewards, discounts, next_observations, weights] = inputs else {
            return Err(wrong(format!("a batch has {} tensors instead of 6", inputs.len())));
        };
        let batch = DqnBatch {
            observations: observations.clone(),
            actions: actions.clone(),
            rewards: rewards.clone(),
            discounts: discounts.clone(),
            next_observations: next_observations.clone(),
            weights: weights.clone(),
        };
        let losses = dqn_loss(&networks.online, &networks.target, &batch, variant)?;
        Ok((losses.loss, losses.errors, losses.value))
    });
    let step = TrainStep::new(networks, optimizer, loss);
    match config.max_grad_norm {
        Some(norm) => step.clip_grad_norm(norm).captured(),
        None => step.captured(),
    }
}
