//! Deep Q-learning.

mod config;
mod learner;
mod loss;

use polygrad_core::{Result, Rng};
use polygrad_nn::optim::{Adam, AdamConfig, Optimizer};
use polygrad_nn::{CapturedStep, Module, TrainStep};
use polygrad_tensor::{AnyBackend, Backend, Capture, Device, Tensor, no_grad};

pub use config::DqnConfig;
pub use loss::{DqnBatch, DqnLosses, DqnVariant, dqn_loss};

use crate::act::spaces::check_spaces;
use crate::agent::iteration_rng;
use crate::experience::Experience;
use crate::{ActionSpace, QNetwork, ReplayBuffer, VectorEnv};
use config::wrong;

type Loss = Box<dyn Fn(&Networks, &[Tensor]) -> Result<Seen> + Send>;
/// The loss, the errors of the transitions, and the mean value.
type Seen = (Tensor, Tensor, Tensor);

/// Trains a network that says what each action is worth, by deep Q-learning: [`DqnConfig`] has its variants.
///
/// Each [iteration](Dqn::iterate) does some steps in all environments, mostly the action of the greatest value and now
/// and then one of chance, and then learns from transitions that are drawn from a [`ReplayBuffer`]. The loss and the
/// gradients are one captured program.
///
/// The same seed gives the same training, bit for bit, and a training that was saved and goes on ends as one that was
/// not, replay buffer included.
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
pub struct Dqn {
    config: DqnConfig,
    device: Device,
    actions: usize,
    experience: Experience,
    step: CapturedStep<Networks, Adam, Loss>,
    acting: Capture,
    iteration: u64,
    steps: u64,
}

/// The network that learns, and the one that judges what is seen next, whose parameters are frozen.
#[derive(Module)]
struct Networks<B: Backend = AnyBackend> {
    online: QNetwork<B>,
    target: QNetwork<B>,
}

/// What an iteration of [`Dqn`] gave; NaN of what it did not compute, since it did not learn yet.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DqnIteration {
    /// The mean loss of the steps of the optimizer.
    pub loss: f64,
    /// The mean value of the actions that were learnt from.
    pub value: f64,
    /// How often an action was one of chance, in the last step.
    pub epsilon: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// Seconds for the steps of the environments.
    pub env_seconds: f64,
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
        check_spaces(envs.observation_space(), envs.action_space())?;
        let ActionSpace::Discrete(actions) = ActionSpace::from(envs.action_space()) else {
            return Err(wrong(format!(
                "it chooses one of several actions, not of {:?}",
                envs.action_space()
            ))
            .with_hint("take PPO"));
        };
        if envs.action_masks().is_some() {
            return Err(
                wrong("not all actions are always allowed in these environments".to_owned())
                    .with_hint("take PPO, which knows masks"),
            );
        }
        let mut replay = ReplayBuffer::new(config.buffer_size, envs.observation_space().flat_len(), 1)?;
        if let Some(priorities) = config.prioritized {
            replay = replay.prioritized(priorities)?;
        }
        let networks = Networks {
            online: make()?,
            target: make()?,
        };
        let outputs = networks.online.advantage.weight.shape()[0];
        if outputs != actions {
            let counts = format!("the network chooses among {outputs} actions, the environments have {actions}");
            return Err(wrong(counts).with_hint("make the network for the environments' action space"));
        }
        networks
            .target
            .parameters()
            .iter()
            .for_each(|param| param.set_trainable(false));
        networks.follow()?;
        let optimizer = AdamConfig::new(config.learning_rate.at(0.0)).build(networks.online.parameters())?;
        Ok(Self {
            device: networks.online.advantage.weight.device(),
            experience: Experience::new(Box::new(envs), replay, (config.n_step, config.gamma)),
            step: step(networks, optimizer, &config),
            acting: Capture::new(),
            actions,
            iteration: 0,
            steps: 0,
            config,
        })
    }

    /// The network that learns.
    pub fn network(&self) -> &QNetwork {
        &self.step.model().online
    }

    /// What it learns from.
    pub fn replay(&self) -> &ReplayBuffer {
        &self.experience.replay
    }

    /// Steps of all environments so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Steps of all environments in an iteration.
    pub fn steps_per_iteration(&self) -> u64 {
        (self.experience.rows() * self.config.train_frequency) as u64
    }

    /// Iterations until [`DqnConfig::total_steps`], at least one; a last one that would go beyond is left out.
    pub fn iterations(&self) -> u64 {
        let left = self.config.total_steps.saturating_sub(self.steps) / self.steps_per_iteration();
        (self.iteration + left).max(1)
    }

    /// Whether all iterations are done.
    pub fn is_done(&self) -> bool {
        self.iteration >= self.iterations()
    }

    /// The share of the steps that are done, from 0 to 1.
    fn progress(&self) -> f64 {
        self.steps as f64 / self.config.total_steps.max(1) as f64
    }

    /// Why the training or the choice of an action is not replayed, if that will not change.
    pub fn refusal(&self) -> Option<&str> {
        self.step.refusal().or_else(|| self.acting.refusal())
    }

    /// Acts, and learns from what happened so far.
    ///
    /// # Errors
    /// Those of the environments and the network, and numbers that are not finite. The training can then go on from a
    /// checkpoint alone.
    pub fn iterate(&mut self) -> Result<DqnIteration> {
        let mut rng = iteration_rng(self.config.seed, self.iteration);
        self.experience.ended.clear();
        self.experience.begin(self.config.seed)?;
        let (before, mut epsilon) = (self.steps, 1.0);
        for _ in 0..self.config.train_frequency {
            epsilon = self.config.epsilon_at(self.progress());
            let actions = self.act(epsilon, &mut rng)?;
            self.experience.step(&actions)?;
            self.steps += self.experience.rows() as u64;
        }
        let learning_rate = self.config.learning_rate.at(self.progress());
        self.step.optimizer_mut().set_lr(learning_rate);
        let (mut loss, mut value) = (f64::NAN, f64::NAN);
        if self.steps > self.config.learning_starts && !self.experience.replay.is_empty() {
            let learnt = (0..self.config.gradient_steps).map(|_| self.learn(&mut rng));
            let learnt = learnt.collect::<Result<Vec<_>>>()?;
            let mean = |of: fn(&(f64, f64)) -> f64| learnt.iter().map(of).sum::<f64>() / learnt.len() as f64;
            (loss, value) = (mean(|x| x.0), mean(|x| x.1));
        }
        if before / self.config.target_frequency < self.steps / self.config.target_frequency {
            self.step.model().follow()?;
        }
        self.iteration += 1;
        Ok(DqnIteration {
            loss,
            value,
            epsilon,
            learning_rate,
            env_seconds: std::mem::take(&mut self.experience.seconds),
        })
    }

    /// An action for each row: the one of the greatest value, or with a probability of `epsilon` any.
    fn act(&mut self, epsilon: f64, rng: &mut Rng) -> Result<Vec<f32>> {
        let any = |_| rng.chance(epsilon).then(|| rng.below(self.actions) as f32);
        let explored: Vec<Option<f32>> = (0..self.experience.rows()).map(any).collect();
        if explored.iter().all(Option::is_some) {
            return Ok(explored.into_iter().flatten().collect());
        }
        let dims = [&[explored.len()], &self.experience.shape[..]].concat();
        let observations = Tensor::from_vec(self.experience.observations.clone(), dims, &self.device)?;
        let network = &self.step.model().online;
        let inputs = network.parameters().into_iter().map(|param| param.tensor().detach());
        let inputs = std::iter::once(observations.clone()).chain(inputs).collect();
        let (values, ()) = self.acting.run(0, inputs, || {
            let best = no_grad(|| network.values(&observations)?.argmax(1))?;
            Ok((vec![best], ()))
        })?;
        let best = values.first().map_or_else(|| Ok(Vec::new()), Tensor::to_vec::<i64>)?;
        let chosen = explored.into_iter().zip(best);
        Ok(chosen.map(|(explored, best)| explored.unwrap_or(best as f32)).collect())
    }

    /// One step of the optimizer, on transitions that are drawn anew; gives the loss and the mean value.
    fn learn(&mut self, rng: &mut Rng) -> Result<(f64, f64)> {
        let progress = self.progress();
        let replay = &mut self.experience.replay;
        let places = replay.sample(self.config.batch_size, rng)?;
        let drawn = replay.upload(&places, &self.experience.shape, &self.device)?;
        let weights = Tensor::from_vec(replay.weights(&places, progress), [places.len()], &self.device)?;
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
        let loss = loss.item()?;
        match loss.is_finite() {
            true => Ok((loss, value.item()?)),
            false => Err(wrong("the loss is NaN or infinite".to_owned()).with_hint("take a lower learning rate")),
        }
    }
}

impl Networks {
    /// Gives the target the values of the other network.
    fn follow(&self) -> Result<()> {
        let mut pairs = self.target.parameters().into_iter().zip(self.online.parameters());
        pairs.try_for_each(|(target, online)| target.set(&online.tensor().detach()))
    }
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
