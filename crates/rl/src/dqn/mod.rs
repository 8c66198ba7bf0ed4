//! Deep Q-learning.

mod config;
mod loss;

use polygrad_core::{Error, Result, Rng};
use polygrad_nn::optim::{Adam, AdamConfig, Optimizer};
use polygrad_nn::{CapturedStep, Checkpoint, Module, TrainStep};
use polygrad_tensor::{AnyBackend, Backend, Tensor};

pub use config::DqnConfig;
pub use loss::{DqnBatch, DqnLosses, DqnVariant, dqn_loss};

use crate::act::spaces::check_spaces;
use crate::experience::Experience;
use crate::off_policy::{Acting, Method, OffPolicy, Seen, finite, follow};
use crate::{ActionSpace, Annealed, Policy, QNetwork, VectorEnv};

type Loss = Box<dyn Fn(&Networks, &[Tensor]) -> Result<Answer> + Send>;
/// The loss, the errors of the transitions, and the mean value.
type Answer = (Tensor, Tensor, Tensor);

/// Trains a network that says what each action is worth, by deep Q-learning: [`DqnConfig`] has its variants.
///
/// It does mostly the action of the greatest value, and now and then one of chance.
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
    actions: usize,
    step: CapturedStep<Networks, Adam, Loss>,
    acting: Acting,
}

/// The network that learns, and the one that judges what is seen next, whose parameters are frozen.
#[derive(Module)]
struct Networks<B: Backend = AnyBackend> {
    online: QNetwork<B>,
    target: QNetwork<B>,
}

impl Dqn {
    /// A training that has not begun, of a network that `make` makes. It is called twice, for the target network is one
    /// of its own.
    ///
    /// # Errors
    /// Those of `make`; when an option makes no sense, the environments have actions that are not one of several, or
    /// that are not always allowed, or memory runs out.
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
        follow(&networks.target, &networks.online, 1.0)?;
        let optimizer = AdamConfig::new(config.learning_rate.at(0.0)).build(networks.online.parameters())?;
        let (pace, prioritized) = (config.pace(), config.prioritized);
        let method = QLearning {
            acting: Acting::new(networks.online.advantage.weight.device()),
            step: step(networks, optimizer, &config),
            actions,
            config,
        };
        Self::begin(method, envs, pace, |replay| match prioritized {
            Some(priorities) => replay.prioritized(priorities),
            None => Ok(replay),
        })
    }

    /// The network that learns.
    pub fn network(&self) -> &QNetwork {
        &self.method.step.model().online
    }
}

impl Method for QLearning {
    const NAME: &'static str = "DQN";
    const KEY: &'static str = "dqn";
    const LEARNT: &'static [&'static str] = &["q_value"];
    const TOLD: &'static [&'static str] = &["epsilon"];

    fn policy(&self) -> &dyn Policy {
        &self.step.model().online
    }

    /// The action of the greatest value, or with a probability of `epsilon` any.
    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        let epsilon = epsilon_at(self.config.epsilon, self.config.exploration_fraction, seen.progress);
        let network = &self.step.model().online;
        epsilon_greedy(&mut self.acting, network, seen, (self.actions, epsilon), rng)
    }

    fn anneal(&mut self, progress: f64) -> Result<f64> {
        let rate = self.config.learning_rate.at(progress);
        self.step.optimizer_mut().set_lr(rate);
        Ok(rate)
    }

    fn learn(&mut self, from: &mut Experience, _update: u64, progress: f64, rng: &mut Rng) -> Result<Vec<f64>> {
        let replay = &mut from.replay;
        let places = replay.sample(self.config.batch_size, rng)?;
        let drawn = replay.upload(&places, &from.shape, &self.acting.device)?;
        let weights = replay.weights(&places, progress);
        let weights = Tensor::from_vec(weights, [places.len()], &self.acting.device)?;
        let (loss, errors, value) = self.step.step(&[
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

    /// Where it is time, gives the target the values of the other network.
    fn settle(&mut self, before: u64, after: u64) -> Result<()> {
        let (networks, every) = (self.step.model(), self.config.target_frequency);
        match before / every < after / every {
            true => follow(&networks.target, &networks.online, 1.0),
            false => Ok(()),
        }
    }

    fn told(&self, progress: f64) -> Result<Vec<f64>> {
        Ok(vec![epsilon_at(
            self.config.epsilon,
            self.config.exploration_fraction,
            progress,
        )])
    }

    fn checkpoint(&self, iteration: u64) -> Result<Checkpoint> {
        Checkpoint::new(self.step.model(), self.step.optimizer(), iteration)
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let (networks, optimizer) = self.step.parts_mut();
        checkpoint.restore(networks, optimizer).map(drop)
    }

    fn refusal(&self) -> Option<&str> {
        self.step.refusal().or_else(|| self.acting.refusal())
    }
}

/// How many actions there are in environments that a network is for.
///
/// # Errors
/// When an action is not one of several, not all are always allowed, or the network is for others.
pub(crate) fn discrete_actions(envs: &impl VectorEnv, network: &QNetwork) -> Result<usize> {
    check_spaces(envs.observation_space(), envs.action_space())?;
    let ActionSpace::Discrete(actions) = ActionSpace::from(envs.action_space()) else {
        let what = format!("it chooses one of several actions, not of {:?}", envs.action_space());
        return Err(Error::invalid(what).with_hint("take PPO"));
    };
    if envs.action_masks().is_some() {
        let what = "not all actions are always allowed in these environments";
        return Err(Error::invalid(what).with_hint("take PPO, which knows masks"));
    }
    match network.advantage.weight.shape()[0] {
        outputs if outputs == actions => Ok(actions),
        outputs => {
            let what = format!("the network chooses among {outputs} actions, the environments have {actions}");
            Err(Error::invalid(what).with_hint("make the network for the environments' action space"))
        }
    }
}

/// How often an action is one of chance after a share of the training, if that changes in its first `fraction`.
pub(crate) fn epsilon_at(epsilon: Annealed, fraction: f64, progress: f64) -> f64 {
    match fraction > 0.0 {
        true => epsilon.at(progress / fraction),
        false => epsilon.at(1.0),
    }
}

/// The action of the greatest value for each row, or with a probability of `epsilon` any of so many.
pub(crate) fn epsilon_greedy(
    acting: &mut Acting,
    network: &QNetwork,
    seen: &Seen<'_>,
    (actions, epsilon): (usize, f64),
    rng: &mut Rng,
) -> Result<Vec<f32>> {
    let any = |_| rng.chance(epsilon).then(|| rng.below(actions) as f32);
    let explored: Vec<Option<f32>> = (0..seen.rows).map(any).collect();
    if explored.iter().all(Option::is_some) {
        return Ok(explored.into_iter().flatten().collect());
    }
    let best = acting.run(network, seen, Vec::new(), |x| network.values(&x[0])?.argmax(1))?;
    let chosen = explored.into_iter().zip(best.to_vec::<i64>()?);
    Ok(chosen.map(|(explored, best)| explored.unwrap_or(best as f32)).collect())
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
