//! Soft actor-critic.

mod config;

use polygrad_core::{Error, Result, Rng};
use polygrad_tensor::{Device, Tensor};

pub use config::SacConfig;

use crate::experience::Experience;
use crate::off_policy::{Method, OffPolicy, Part, Seen, Trained, Trainer, bounds, normal};
use crate::policy::StateDependent;
use crate::{ActorCritics, MlpEncoderConfig, Policy, VectorEnv};

/// Trains a policy with bounded continuous actions by soft actor-critic: two critics, and a learned temperature.
///
/// Actions are sampled, and random before training starts. As a policy it takes the likeliest action and does not
/// sample.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{MlpEncoderConfig, Pendulum, Sac, SacConfig, Vectorized};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let envs = Vectorized::new(|_| Pendulum::v1(), 1)?;
/// let config = SacConfig { total_steps: 60, batch_size: 8, learning_starts: 50, ..SacConfig::default() };
/// let encoder = MlpEncoderConfig { hidden: vec![16], ..MlpEncoderConfig::new(3) };
/// let mut sac = Sac::new(envs, &encoder, config, &device)?;
/// while !sac.is_done() {
///     let loss = sac.iterate()?.loss;
/// }
/// assert_eq!(sac.steps(), 60);
/// # Ok(())
/// # }
/// ```
///
/// Source: Haarnoja et al., "Soft actor-critic algorithms and applications" (2018).
pub type Sac = OffPolicy<SacStep>;

/// How [`Sac`] acts and learns.
pub struct SacStep {
    config: SacConfig,
    trainer: Trainer,
    /// Matrices of state-dependent exploration; the first step of an iteration draws others, so that a checkpoint,
    /// which is made between iterations, needs none.
    matrices: Option<Tensor>,
}

/// The result of a [step](SacStep::update).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SacLosses {
    /// The sum of both critics' mean squared errors.
    pub critics: f64,
    /// The mean value of the actions in the batch.
    pub value: f64,
    /// The mean entropy of the policy at the next observations, estimated from one sample each, in nats.
    pub entropy: f64,
    /// The last losses of the policy and of the temperature, if they took a step.
    pub actor: Option<f64>,
    /// The loss of the learned temperature.
    pub temperature: Option<f64>,
}

impl Sac {
    /// A training that has not begun, of networks whose hidden layers are those of `encoder`.
    ///
    /// # Errors
    /// If an option is invalid, the actions of the environments are not bounded continuous ones, or memory runs out.
    pub fn new(
        envs: impl VectorEnv + 'static,
        encoder: &MlpEncoderConfig,
        config: SacConfig,
        device: &Device,
    ) -> Result<Self> {
        config.check(envs.rows())?;
        let (low, high) = bounds(&envs).map_err(|e| e.with_op("SAC"))?;
        let temperature = Some(config.temperature.unwrap_or(1.0));
        let mut networks = ActorCritics::new(encoder, (&low, &high), temperature, device)?;
        if config.use_sde {
            networks = networks.use_sde(config.log_std_init)?;
        }
        let pace = config.pace();
        Self::begin(SacStep::new(networks, config)?, envs, pace, Ok)
    }

    /// The networks in training.
    pub fn networks(&self) -> &ActorCritics {
        self.method.trainer.networks()
    }
}

impl SacStep {
    /// Takes networks that have not been trained.
    ///
    /// # Errors
    /// When they have no temperature, or explore in another way than the options say.
    pub fn new(networks: ActorCritics, config: SacConfig) -> Result<Self> {
        if networks.log_temperature.is_none() {
            return Err(Error::invalid("the networks have no temperature").with_op("SAC"));
        }
        if networks.actor.sde_log_std.is_some() != config.use_sde {
            let error = Error::invalid("use_sde is not what the networks were made with").with_op("SAC");
            return Err(error.with_hint("make them by ActorCritics::use_sde exactly if use_sde is set"));
        }
        let target_entropy = config.target_entropy.unwrap_or(-(networks.actions() as f64));
        let loss = move |networks: &ActorCritics, part, batch: &[Tensor]| match part {
            Part::Critics => critic_loss(networks, batch),
            Part::Actor => actor_loss(networks, batch),
            Part::Temperature => temperature_loss(networks, batch, target_entropy),
        };
        let mut step = Self {
            trainer: Trainer::new(networks, Box::new(loss), config.exploration_noise)?,
            config,
            matrices: None,
        };
        step.anneal(0.0)?;
        Ok(step)
    }

    /// Takes one step of the critics and, after each `policy_frequency` of them, as many of the policy and the
    /// temperature; then the targets follow. `update` counts the steps from 0.
    ///
    /// `batch` are observations `[N, …]`, actions `[N, actions]`, rewards and discounts `[N]`, and next observations.
    /// `noise` gives numbers of the standard normal distribution, of the [shape](crate::BoundedPolicy::noise_shape)
    /// that the policy asks for, others each time: for the critics, then for the policy and the temperature by turns.
    ///
    /// # Errors
    /// If shapes do not fit, or a loss is not finite.
    pub fn update(
        &mut self,
        batch: [Tensor; 5],
        update: u64,
        mut noise: impl FnMut() -> Result<Tensor>,
    ) -> Result<SacLosses> {
        let observations = batch[0].clone();
        let [a, b, c, d, e] = batch;
        let (critics, told) = self.trainer.train(Part::Critics, &[a, b, c, d, e, noise()?])?;
        let told = told.to_f64_vec()?;
        let (mut actor, mut temperature) = (None, None);
        let every = self.config.policy_frequency;
        if update.is_multiple_of(every) {
            for _ in 0..every {
                let batch = [observations.clone(), noise()?];
                actor = Some(self.trainer.train(Part::Actor, &batch)?.0);
                if self.config.temperature.is_none() {
                    let batch = [observations.clone(), noise()?];
                    temperature = Some(self.trainer.train(Part::Temperature, &batch)?.0);
                }
            }
        }
        self.trainer.follow(self.config.tau)?;
        Ok(SacLosses {
            critics,
            value: told[0],
            entropy: told[1],
            actor,
            temperature,
        })
    }

    /// Actions by state-dependent exploration.
    fn explore(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        if seen.step == 0 {
            self.matrices = None;
        }
        let renews = StateDependent::renews(seen.step, self.config.sde_sample_freq);
        let matrices = match self.matrices.take() {
            Some(matrices) if !renews => matrices,
            _ => {
                let actor = &self.networks().actor;
                let [features, actions] = actor.noise_shape(seen.rows);
                let normal = normal([seen.rows * features, actions], rng, self.trainer.device())?;
                actor.noise_matrices(&normal, seen.rows)?
            }
        };
        self.matrices = Some(matrices.clone());
        self.trainer.act(seen, rng, vec![matrices], |actor, inputs| {
            actor.explore(&inputs[0], &inputs[1])
        })
    }

    /// The networks.
    pub fn networks(&self) -> &ActorCritics {
        self.trainer.networks()
    }
}

/// The weight of entropy, `[1]`.
fn temperature(networks: &ActorCritics) -> Result<Tensor> {
    match &networks.log_temperature {
        Some(log) => log.tensor().exp(),
        None => Err(Error::invalid("the networks have no temperature").with_op("SAC")),
    }
}

/// Compares both critics with `reward + discount · (value of the next action − temperature · its log probability)`.
fn critic_loss(networks: &ActorCritics, batch: &[Tensor]) -> Result<(Tensor, Tensor)> {
    let (batch, noise) = (&batch[..5], &batch[5]);
    let mut entropy = None;
    let (loss, value) = networks.critic_loss(batch, |next| {
        let (actions, log_prob) = networks.actor.draw(next, noise)?;
        let least = ActorCritics::least(&networks.target_critics, next, &actions)?;
        entropy = Some(log_prob.mean(())?.neg()?);
        least.sub(&log_prob.mul(&temperature(networks)?)?)
    })?;
    let told: Vec<Tensor> = [Some(value), entropy].into_iter().flatten().collect();
    Ok((loss, Tensor::stack(&told.iter().collect::<Vec<_>>(), 0)?))
}

/// Low if actions are valuable or improbable.
fn actor_loss(networks: &ActorCritics, batch: &[Tensor]) -> Result<(Tensor, Tensor)> {
    let (observations, noise) = (&batch[0], &batch[1]);
    let (actions, log_prob) = networks.actor.draw(observations, noise)?;
    let least = ActorCritics::least(&networks.critics, observations, &actions)?;
    let loss = log_prob.mul(&temperature(networks)?)?.sub(&least)?.mean(())?;
    Ok((loss, log_prob.detach()))
}

/// Low if the temperature is high and the entropy above its target, or the reverse.
fn temperature_loss(networks: &ActorCritics, batch: &[Tensor], target: f64) -> Result<(Tensor, Tensor)> {
    let (_, log_prob) = networks.actor.draw(&batch[0], &batch[1])?;
    let loss = log_prob.add(target)?.mul(&temperature(networks)?)?.mean(())?.neg()?;
    Ok((loss, log_prob))
}

impl Method for SacStep {
    const NAME: &'static str = "SAC";
    const KEY: &'static str = "sac";
    const LEARNT: &'static [&'static str] = &["q_value", "entropy"];
    const TOLD: &'static [&'static str] = &["temperature"];

    fn policy(&self) -> &dyn Policy {
        &self.networks().actor
    }

    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        if self.config.use_sde {
            return self.explore(seen, rng);
        }
        let noise = normal(self.networks().actor.noise_shape(seen.rows), rng, self.trainer.device())?;
        self.trainer.act(seen, rng, vec![noise], |actor, inputs| {
            Ok(actor.draw(&inputs[0], &inputs[1])?.0)
        })
    }

    fn ended(&mut self, row: usize) {
        self.trainer.ended(row);
    }

    fn anneal(&mut self, progress: f64) -> Result<f64> {
        let rate = self.config.learning_rate.at(progress);
        self.trainer
            .set_rates(rate, self.config.critic_learning_rate.at(progress))?;
        Ok(rate)
    }

    fn learn(&mut self, from: &mut Experience, update: u64, _progress: f64, rng: &mut Rng) -> Result<Vec<f64>> {
        let count = self.config.batch_size;
        let batch = self.trainer.draw(from, count, rng)?;
        let shape = self.networks().actor.noise_shape(count);
        let device = self.trainer.device().clone();
        let found = self.update(batch, update, || normal(shape, rng, &device))?;
        Ok(vec![found.critics, found.value, found.entropy])
    }

    fn told(&self, _progress: f64) -> Result<Vec<f64>> {
        Ok(vec![temperature(self.networks())?.item()?])
    }

    fn trained(&self) -> &dyn Trained {
        &self.trainer
    }

    fn trained_mut(&mut self) -> &mut dyn Trained {
        &mut self.trainer
    }
}
