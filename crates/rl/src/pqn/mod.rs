//! Q-learning from rollouts, without a replay buffer or a target network.

mod config;

use polygrad_core::{Error, Result, Rng};
use polygrad_nn::optim::{RAdam, RAdamConfig};
use polygrad_nn::{Module, TrainStep};
use polygrad_tensor::{Backend, DType, Tensor};

pub use config::PqnConfig;

use crate::experience::Experience;
use crate::off_policy::{Acting, Greedy, Method, OffPolicy, Seen, Trained, discrete_actions, finite};
use crate::{Outcomes, Policy, QNetwork, VectorEnv};

type Loss = Box<dyn Fn(&QNetwork, &[Tensor]) -> Result<Answer> + Send>;
/// The loss and the mean value.
type Answer = (Tensor, Tensor);

/// Trains a network that estimates the value of each action, from rollouts of many environments. Training is stable
/// without a replay buffer and a target network if layers are normalized ([`MlpEncoderConfig::layer_norm`]).
///
/// Each [iteration](OffPolicy::iterate) acts for some steps, mostly by the greatest value and sometimes randomly,
/// computes [`q_lambda`] targets, and trains on them in minibatches.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{CartPole, EncoderConfig, MlpEncoderConfig, Pqn, PqnConfig, QNetwork, Vectorized};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let encoder = EncoderConfig::Mlp(MlpEncoderConfig { layer_norm: true, ..MlpEncoderConfig::new(4) });
/// let envs = Vectorized::new(|_| CartPole::v1(), 4)?;
/// let config = PqnConfig { total_steps: 128, num_steps: 8, ..PqnConfig::default() };
/// let mut pqn = Pqn::new(envs, QNetwork::orthogonal(&encoder, 2, &device)?, config)?;
/// while !pqn.is_done() {
///     let loss = pqn.iterate()?.loss;
/// }
/// assert_eq!(pqn.steps(), 128);
/// # Ok(())
/// # }
/// ```
///
/// Source: Gallici et al., "Simplifying deep temporal difference learning" (2025).
///
/// [`MlpEncoderConfig::layer_norm`]: crate::MlpEncoderConfig::layer_norm
pub type Pqn = OffPolicy<ParallelQLearning>;

/// How [`Pqn`] acts and learns.
pub struct ParallelQLearning {
    config: PqnConfig,
    rows: usize,
    greedy: Greedy<QNetwork, RAdam, Loss>,
    judging: Acting,
    /// The current rollout: the number of its steps, and where episodes ended.
    steps: usize,
    ended: Vec<bool>,
    /// The order of its samples in training, and their targets.
    order: Vec<usize>,
    targets: Vec<f32>,
}

impl Pqn {
    /// A training that has not begun.
    ///
    /// # Errors
    /// If an option is invalid, or if the actions of the environments are not discrete, can be masked, or the
    /// environments begin episodes in separate steps.
    pub fn new(envs: impl VectorEnv + 'static, network: QNetwork, config: PqnConfig) -> Result<Self> {
        let rows = envs.rows();
        config.check(rows)?;
        let actions = discrete_actions(&envs, &network).map_err(|error| error.with_op("PQN"))?;
        if envs.begun().is_some() {
            return Err(
                wrong("steps that only begin an episode have no place in a rollout").with_hint(
                    "take environments that begin an episode in the step that ends another (Gymnasium's SAME_STEP)",
                ),
            );
        }
        let optimizer = RAdamConfig::new(config.learning_rate.at(0.0)).build(network.parameters())?;
        let judging = Acting::new(&network, network.advantage.weight.device());
        let pace = config.pace(rows);
        let loss: Loss = Box::new(|network, inputs| {
            let [observations, actions, targets] = inputs else {
                return Err(wrong("a minibatch does not have 3 tensors"));
            };
            pqn_loss(network, observations, actions, targets)
        });
        let step = TrainStep::new(network, optimizer, loss)
            .clip_grad_norm(config.max_grad_norm)
            .captured();
        let explored = (config.epsilon, config.exploration_fraction);
        let method = ParallelQLearning {
            greedy: Greedy::new(step, actions, explored),
            judging,
            ended: vec![false; rows * config.num_steps],
            steps: 0,
            order: Vec::new(),
            targets: Vec::new(),
            rows,
            config,
        };
        Self::begin(method, envs, pace, Ok)
    }

    /// The network that learns.
    pub fn network(&self) -> &QNetwork {
        self.method.greedy.step.model()
    }
}

/// The targets of a rollout, from the values of the best actions: within episodes
/// `G_t = r_t + γ (λ G_{t+1} + (1 − λ) max_a Q(s_{t+1}, a))`, and at the end of the rollout or of an episode that was
/// cut short `r_t + γ max_a Q(s_{t+1}, a)`.
///
/// In CleanRL's `pqn.py`, `λ G_{t+1}` counts even after the end of an episode; here it does not.
///
/// # Errors
/// If the lengths of the slices do not fit.
pub fn q_lambda(outcomes: Outcomes<'_>, gamma: f64, lambda: f64) -> Result<Vec<f32>> {
    outcomes.check()?;
    let mut targets = vec![0.0; outcomes.rewards.len()];
    outcomes.backwards(|at, next, after: Option<f64>| {
        let behind = after.map_or(next, |after| lambda * after + (1.0 - lambda) * next);
        let target = f64::from(outcomes.rewards[at]) + gamma * behind;
        targets[at] = target as f32;
        target
    });
    Ok(targets)
}

/// The mean squared error between the values of actions, `[N]` or `[N, 1]` of any dtype, and their targets `[N]`; and
/// the mean value, without a gradient.
///
/// # Errors
/// Those of the network; if shapes do not fit, or an action is out of range.
pub fn pqn_loss<B: Backend>(
    network: &QNetwork<B>,
    observations: &Tensor<B>,
    actions: &Tensor<B>,
    targets: &Tensor<B>,
) -> Result<(Tensor<B>, Tensor<B>)> {
    let values = network.values(observations)?;
    let actions = actions.to_dtype(DType::I64)?.reshape([-1, 1])?;
    let value = values.gather(1, &actions)?.squeeze(1)?;
    let loss = value.sub(&targets.to_dtype(value.dtype())?)?.square()?.mean(())?;
    Ok((loss, value.detach().mean(())?))
}

impl ParallelQLearning {
    /// Computes the targets of the rollout in the buffer, step by step.
    fn judge(&mut self, from: &Experience) -> Result<()> {
        let (rows, len) = (self.rows, from.replay.len());
        let all: Vec<_> = (0..len).filter_map(|place| from.replay.get(place)).collect();
        let next: Vec<f32> = all.iter().flat_map(|one| one.next_observation).copied().collect();
        let seen = Seen {
            observations: &next,
            shape: &from.shape,
            rows: len,
            step: 0,
            progress: 0.0,
            learns: true,
            space: from.action_space(),
        };
        let network = self.greedy.step.model();
        let best = self
            .judging
            .run(&seen, Vec::new(), |x| network.values(&x[0])?.amax(1))?;
        let best = best.to_vec::<f32>()?;
        let rewards: Vec<f32> = all.iter().map(|one| one.reward).collect();
        // The value before a step is that of the next observation of the step before.
        let values = [&vec![0.0; rows], &best[..len - rows]].concat();
        let is_cut = |place: &usize| self.ended[*place] && all[*place].discount > 0.0;
        let mut final_values = vec![0.0; len];
        (0..len)
            .filter(is_cut)
            .for_each(|place| final_values[place] = best[place]);
        let outcomes = Outcomes {
            rewards: &rewards,
            values: &values,
            ended: &self.ended,
            final_values: &final_values,
            last_values: &best[len - rows..],
        };
        self.targets = q_lambda(outcomes, self.config.gamma, self.config.q_lambda)?;
        self.order = (0..len).collect();
        (self.steps, self.ended) = (0, vec![false; len]);
        Ok(())
    }
}

impl Method for ParallelQLearning {
    const NAME: &'static str = "PQN";
    const KEY: &'static str = "pqn";
    const LEARNT: &'static [&'static str] = &["q_value"];
    const TOLD: &'static [&'static str] = &["epsilon"];

    fn policy(&self) -> &dyn Policy {
        self.greedy.step.model()
    }

    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        self.steps += 1;
        self.greedy.act(seen, rng)
    }

    fn ended(&mut self, row: usize) {
        // Without a step in this rollout, the environments were begun anew before it.
        if let Some(step) = self.steps.checked_sub(1) {
            self.ended[step * self.rows + row] = true;
        }
    }

    /// Uses the rate at the rollout's beginning.
    fn anneal(&mut self, progress: f64) -> Result<f64> {
        let own = (self.rows * self.config.num_steps) as f64 / self.config.total_steps.max(1) as f64;
        let rate = self.config.learning_rate.at((progress - own).max(0.0));
        Ok(self.greedy.set_rate(rate))
    }

    fn learn(&mut self, from: &mut Experience, update: u64, _progress: f64, rng: &mut Rng) -> Result<Vec<f64>> {
        let parts = self.config.num_minibatches;
        let place = (update % (self.config.update_epochs * parts) as u64) as usize;
        if place == 0 {
            self.judge(from)?;
        }
        if place.is_multiple_of(parts) {
            for i in (1..self.order.len()).rev() {
                self.order.swap(i, rng.below(i + 1));
            }
        }
        let size = self.order.len() / parts;
        let places = &self.order[place % parts * size..][..size];
        let drawn = from.replay.upload(places, &from.shape, self.greedy.device())?;
        let targets = places.iter().map(|place| self.targets[*place]).collect();
        let targets = Tensor::from_vec(targets, [size], self.greedy.device())?;
        let (loss, value) = self.greedy.step.step(&[drawn.observations, drawn.actions, targets])?;
        Ok(vec![finite(&loss)?, value.item()?])
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

fn wrong(message: &str) -> Error {
    Error::invalid(message.to_owned()).with_op("PQN")
}
