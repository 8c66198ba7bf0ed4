//! Twin delayed deep deterministic policy gradients.

mod config;

use polygrad_core::{Error, Result, Rng};
use polygrad_tensor::{Device, Tensor};

pub use config::Td3Config;

use crate::experience::Experience;
use crate::off_policy::{Method, OffPolicy, Part, Seen, Trained, Trainer, bounds, normal};
use crate::{ActorCritics, MlpEncoderConfig, Policy, VectorEnv};

/// Trains a policy with bounded continuous actions by TD3: two critics, whose targets value actions with added noise,
/// and a policy that is trained less often than they are.
///
/// In training, noise is added to the actions, too; before training starts, actions are random.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{MlpEncoderConfig, Pendulum, Td3, Td3Config, Vectorized};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let envs = Vectorized::new(|_| Pendulum::v1(), 1)?;
/// let config = Td3Config { total_steps: 60, batch_size: 8, learning_starts: 50, ..Td3Config::default() };
/// let encoder = MlpEncoderConfig { hidden: vec![16], ..MlpEncoderConfig::new(3) };
/// let mut td3 = Td3::new(envs, &encoder, config, &device)?;
/// while !td3.is_done() {
///     let loss = td3.iterate()?.loss;
/// }
/// assert_eq!(td3.steps(), 60);
/// # Ok(())
/// # }
/// ```
///
/// Source: Fujimoto et al., "Addressing function approximation error in actor-critic methods" (2018).
pub type Td3 = OffPolicy<Td3Step>;

/// How [`Td3`] acts and learns.
pub struct Td3Step {
    config: Td3Config,
    trainer: Trainer,
}

/// The result of a [step](Td3Step::update).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Td3Losses {
    /// The sum of both critics' mean squared errors.
    pub critics: f64,
    /// The mean value of the actions in the batch.
    pub value: f64,
    /// The loss of the policy, if it took a step.
    pub actor: Option<f64>,
}

impl Td3 {
    /// A training that has not begun, of networks whose hidden layers are those of `encoder`.
    ///
    /// # Errors
    /// If an option is invalid, the actions of the environments are not bounded continuous ones, or memory runs out.
    pub fn new(
        envs: impl VectorEnv + 'static,
        encoder: &MlpEncoderConfig,
        config: Td3Config,
        device: &Device,
    ) -> Result<Self> {
        config.check(envs.rows())?;
        let (low, high) = bounds(&envs).map_err(|e| e.with_op("TD3"))?;
        let networks = ActorCritics::new(encoder, (&low, &high), None, device)?;
        let pace = config.pace();
        Self::begin(Td3Step::new(networks, config)?, envs, pace, Ok)
    }

    /// The networks in training.
    pub fn networks(&self) -> &ActorCritics {
        self.method.networks()
    }
}

impl Td3Step {
    /// Takes networks that have not been trained.
    ///
    /// # Errors
    /// If they are those of SAC.
    pub fn new(networks: ActorCritics, config: Td3Config) -> Result<Self> {
        target_actor(&networks)?;
        let noise = [config.policy_noise, config.noise_clip];
        let loss = move |networks: &ActorCritics, part, batch: &[Tensor]| match part {
            Part::Critics => critic_loss(networks, batch, noise),
            Part::Actor | Part::Temperature => actor_loss(networks, &batch[0]),
        };
        let mut step = Self {
            trainer: Trainer::new(networks, Box::new(loss), Some(config.exploration_noise))?,
            config,
        };
        step.anneal(0.0)?;
        Ok(step)
    }

    /// Takes one step of the critics and, after each `policy_frequency` of them, one of the policy, after which the
    /// targets follow. `update` counts the steps from 0.
    ///
    /// `batch` is observations `[N, …]`, actions `[N, actions]`, rewards and discounts `[N]`, and next observations;
    /// `noise` is standard normal numbers `[N, actions]`.
    ///
    /// # Errors
    /// If shapes do not fit, or a loss is not finite.
    pub fn update(&mut self, batch: [Tensor; 5], update: u64, noise: Tensor) -> Result<Td3Losses> {
        let observations = batch[0].clone();
        let [a, b, c, d, e] = batch;
        let (critics, told) = self.trainer.train(Part::Critics, &[a, b, c, d, e, noise])?;
        let mut actor = None;
        if update.is_multiple_of(self.config.policy_frequency) {
            actor = Some(self.trainer.train(Part::Actor, &[observations])?.0);
            self.trainer.follow(self.config.tau)?;
        }
        Ok(Td3Losses {
            critics,
            value: told.item()?,
            actor,
        })
    }

    /// The networks.
    pub fn networks(&self) -> &ActorCritics {
        self.trainer.networks()
    }
}

fn target_actor(networks: &ActorCritics) -> Result<&crate::BoundedPolicy> {
    let target = networks.target_actor.as_ref();
    target.ok_or_else(|| Error::invalid("the networks have no policy that follows").with_op("TD3"))
}

/// Compares both critics with `reward + discount · value of the next action`, to which bounded noise is added.
fn critic_loss(networks: &ActorCritics, batch: &[Tensor], [std, most]: [f64; 2]) -> Result<(Tensor, Tensor)> {
    let (batch, noise) = (&batch[..5], &batch[5]);
    let (loss, value) = networks.critic_loss(batch, |next| {
        let policy = target_actor(networks)?;
        let (scale, middle) = (policy.scale.tensor(), policy.middle.tensor());
        let noise = noise
            .to_dtype(scale.dtype())?
            .mul(std)?
            .clamp(Some(-most), Some(most))?;
        let changed = policy.action(next)?.add(&noise.mul(&scale)?)?;
        let actions = changed.maximum(&middle.sub(&scale)?)?.minimum(&middle.add(&scale)?)?;
        ActorCritics::least(&networks.target_critics, next, &actions)
    })?;
    Ok((loss, value.reshape([1])?))
}

/// Low if actions are valuable.
fn actor_loss(networks: &ActorCritics, observations: &Tensor) -> Result<(Tensor, Tensor)> {
    let actions = networks.actor.action(observations)?;
    let loss = networks.critics[0].values(observations, &actions)?.mean(())?.neg()?;
    Ok((loss, actions.detach()))
}

impl Method for Td3Step {
    const NAME: &'static str = "TD3";
    const KEY: &'static str = "td3";
    const LEARNT: &'static [&'static str] = &["q_value"];

    fn policy(&self) -> &dyn Policy {
        &self.networks().actor
    }

    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        self.trainer
            .act(seen, rng, Vec::new(), |actor, inputs| actor.action(&inputs[0]))
    }

    fn ended(&mut self, row: usize) {
        self.trainer.ended(row);
    }

    fn anneal(&mut self, progress: f64) -> Result<f64> {
        let rate = self.config.learning_rate.at(progress);
        self.trainer.set_rates(rate, rate).map(|()| rate)
    }

    fn learn(&mut self, from: &mut Experience, update: u64, _progress: f64, rng: &mut Rng) -> Result<Vec<f64>> {
        let count = self.config.batch_size;
        let batch = self.trainer.draw(from, count, rng)?;
        let noise = normal([count, self.networks().actions()], rng, self.trainer.device())?;
        let found = self.update(batch, update, noise)?;
        Ok(vec![found.critics, found.value])
    }

    fn trained(&self) -> &dyn Trained {
        &self.trainer
    }

    fn trained_mut(&mut self) -> &mut dyn Trained {
        &mut self.trainer
    }
}
