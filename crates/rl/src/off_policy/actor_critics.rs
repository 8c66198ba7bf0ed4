//! The networks of SAC and TD3, and what trains them.

use polygrad_core::Rng;
use polygrad_nn::optim::{Adam, AdamConfig, Optimizer};
use polygrad_nn::{CapturedStep, Checkpoint, Module, Param, TrainStep};
use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor, no_grad};

use super::noise::{Exploration, ExplorationNoise};
use super::{Acting, Following, Seen, Trained, finite};
use crate::act::spaces::check_spaces;
use crate::experience::Experience;
use crate::{ActionValue, BoundedPolicy, MlpEncoderConfig, Space, VectorEnv};

/// The networks that SAC and TD3 train: a policy, two networks that estimate the values of its actions, and their
/// targets, which follow slowly. The lower of the two values counts.
///
/// Source: Fujimoto et al., "Addressing function approximation error in actor-critic methods" (2018).
#[derive(Module)]
pub struct ActorCritics<B: Backend = AnyBackend> {
    /// The policy.
    pub actor: BoundedPolicy<B>,
    /// The two value networks.
    pub critics: [ActionValue<B>; 2],
    /// The policy's target, which follows it; TD3 only.
    pub target_actor: Option<BoundedPolicy<B>>,
    /// The targets of the critics, which follow them.
    pub target_critics: [ActionValue<B>; 2],
    /// The logarithm of the weight of entropy, `[1]`; SAC only.
    pub log_temperature: Option<Param<B>>,
}

impl<B: Backend> ActorCritics<B> {
    /// New networks for actions from `low` to `high`: with a temperature those of SAC, without those of TD3.
    ///
    /// # Errors
    /// Those of [`BoundedPolicy`]; if the temperature is not above 0.
    pub fn new(
        encoder: &MlpEncoderConfig,
        (low, high): (&[f32], &[f32]),
        temperature: Option<f64>,
        device: &Device<B>,
    ) -> Result<Self> {
        let log_temperature = match temperature.map(f64::ln) {
            None => None,
            Some(log) if log.is_finite() => Some(Param::new(Tensor::full([1], log as f32, device)?)?),
            Some(_) => return Err(Error::invalid("temperature is not above 0")),
        };
        let policy = || {
            let policy = BoundedPolicy::new(encoder, low.len(), temperature.is_some(), device)?;
            policy.set_bounds(low, high).map(|()| policy)
        };
        let critic = || ActionValue::new(encoder, low.len(), device);
        let networks = Self {
            actor: policy()?,
            critics: [critic()?, critic()?],
            target_actor: temperature.is_none().then(policy).transpose()?,
            target_critics: [critic()?, critic()?],
            log_temperature,
        };
        networks.follow(1.0).map(|()| networks)
    }

    /// The same with a policy that draws by [state-dependent exploration](BoundedPolicy::use_sde).
    ///
    /// # Errors
    /// Those of the policy.
    pub fn use_sde(mut self, log_std_init: f64) -> Result<Self> {
        self.actor = self.actor.use_sde(log_std_init)?;
        Ok(self)
    }

    /// How many numbers an action has.
    pub fn actions(&self) -> usize {
        self.actor.scale.tensor().numel()
    }

    /// Moves the targets towards the networks that they follow, by this share of the difference.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn follow(&self, share: f64) -> Result<()> {
        self.following().follow(share)
    }

    fn following(&self) -> Following<B> {
        let mut all = Following::default();
        if let Some(target) = &self.target_actor {
            all.add(target, &self.actor);
        }
        let pairs = self.target_critics.iter().zip(&self.critics);
        pairs.for_each(|(target, critic)| all.add(target, critic));
        all
    }

    /// The lower of the two values.
    ///
    /// # Errors
    /// When shapes or devices do not fit.
    pub(crate) fn least(
        critics: &[ActionValue<B>; 2],
        observations: &Tensor<B>,
        actions: &Tensor<B>,
    ) -> Result<Tensor<B>> {
        let [a, b] = Self::values(critics, observations, actions)?;
        a.minimum(&b)
    }

    /// The values by both networks.
    fn values([a, b]: &[ActionValue<B>; 2], observations: &Tensor<B>, actions: &Tensor<B>) -> Result<[Tensor<B>; 2]> {
        let both = a.joined(observations, actions)?;
        Ok([a.values_of(&both)?, b.values_of(&both)?])
    }

    /// The loss of the critics, which is the sum of their mean squared errors, and the mean value that the first critic
    /// estimates. `next` computes the values of the next observations from the targets.
    ///
    /// # Errors
    /// Those of the networks and of `next`.
    pub(crate) fn critic_loss(
        &self,
        batch: &[Tensor<B>],
        next: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        let [observations, actions, rewards, discounts, next_observations] = batch else {
            return Err(Error::invalid(format!(
                "a batch has {} tensors instead of 5",
                batch.len()
            )));
        };
        let wanted = no_grad(|| {
            let next = next(next_observations)?;
            let as_computed = |x: &Tensor<B>| x.to_dtype(next.dtype());
            next.mul(&as_computed(discounts)?)?.add(&as_computed(rewards)?)
        })?;
        let values = Self::values(&self.critics, observations, actions)?;
        let [one, other] = [0, 1].map(|i| values[i].sub(&wanted)?.square()?.mean(()));
        Ok((one?.add(&other?)?, values[0].detach().mean(())?))
    }

    /// The part that is trainable.
    fn trained(&self) -> Part {
        if self.critics[0].value.weight.is_trainable() {
            Part::Critics
        } else if self.actor.mean.weight.is_trainable() {
            Part::Actor
        } else {
            Part::Temperature
        }
    }
}

/// The part that a loss trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Critics,
    Actor,
    Temperature,
}

/// The loss of a part, and numbers to report. The form of the batch depends on the part.
type PartLoss = Box<dyn Fn(&ActorCritics, Part, &[Tensor]) -> Result<(Tensor, Tensor)> + Send>;
type Loss = Box<dyn Fn(&ActorCritics, &[Tensor]) -> Result<(Tensor, Tensor)> + Send>;

/// Trains such networks with one optimizer and a captured program for the loss of each part.
pub(crate) struct Trainer {
    step: CapturedStep<ActorCritics, Adam, Loss>,
    parts: [(Part, Vec<Param>); 3],
    following: Following,
    acting: Acting,
    exploration: Option<Exploration>,
}

impl Trainer {
    /// Takes networks that have not been trained.
    pub(crate) fn new(networks: ActorCritics, loss: PartLoss, noise: Option<ExplorationNoise>) -> Result<Self> {
        // Parameters keep their names within the whole, since the optimizer's state is keyed by them.
        let all = networks.named_parameters();
        all.iter().for_each(|(_, param)| param.set_trainable(false));
        let parts = [
            (
                Part::Critics,
                networks.critics.iter().flat_map(Module::parameters).collect(),
            ),
            (Part::Actor, networks.actor.parameters()),
            (Part::Temperature, Vec::from_iter(networks.log_temperature.clone())),
        ];
        let [(_, critics), rest @ ..] = &parts;
        let mut optimizer = AdamConfig::new(0.0).build(critics.iter().cloned())?;
        for (_, params) in rest.iter().filter(|(_, params)| !params.is_empty()) {
            optimizer.add_group(AdamConfig::new(0.0), params.iter().cloned())?;
        }
        let loss: Loss = Box::new(move |networks, batch| loss(networks, networks.trained(), batch));
        Ok(Self {
            parts,
            following: networks.following(),
            acting: Acting::new(&networks.actor, networks.actor.mean.weight.device()),
            step: TrainStep::new(networks, optimizer, loss).captured(),
            exploration: noise.map(Exploration::new),
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.acting.device
    }

    pub(crate) fn networks(&self) -> &ActorCritics {
        self.step.model()
    }

    /// Sets the learning rates of the actor and of everything else.
    pub(crate) fn set_rates(&mut self, actor: f64, others: f64) -> Result<()> {
        let optimizer = self.step.optimizer_mut();
        let groups = optimizer.lrs().len();
        let rates: Vec<f64> = (0..groups)
            .map(|group| if group == 1 { actor } else { others })
            .collect();
        optimizer.set_lrs(&rates)
    }

    /// One step of the optimizer for a part, whose loss treats all other parts as constants; returns the loss and the
    /// numbers to report.
    pub(crate) fn train(&mut self, part: Part, batch: &[Tensor]) -> Result<(f64, Tensor)> {
        for (own, params) in &self.parts {
            params.iter().for_each(|param| param.set_trainable(*own == part));
        }
        let (loss, told) = self.step.step(batch)?;
        Ok((finite(&loss)?, told))
    }

    /// Moves the targets by this share of the difference.
    pub(crate) fn follow(&self, share: f64) -> Result<()> {
        self.following.follow(share)
    }

    /// Actions of all rows. They are random before training starts. Later `f` computes them from the policy and its
    /// inputs, the observations followed by `inputs`, and exploration noise is added.
    pub(crate) fn act(
        &mut self,
        seen: &Seen<'_>,
        rng: &mut Rng,
        inputs: Vec<Tensor>,
        f: impl FnOnce(&BoundedPolicy, &[Tensor]) -> Result<Tensor>,
    ) -> Result<Vec<f32>> {
        if !seen.learns {
            return Ok(seen.any_actions(rng));
        }
        let actor = &self.step.model().actor;
        let actions = self.acting.run(seen, inputs, |inputs| f(actor, inputs))?;
        let mut actions = actions.to_vec()?;
        if let Some(exploration) = &mut self.exploration {
            exploration.add(&mut actions, seen.space, rng);
        }
        Ok(actions)
    }

    /// Called when an episode of a row has ended.
    pub(crate) fn ended(&mut self, row: usize) {
        let actions = self.networks().actions();
        if let Some(exploration) = &mut self.exploration {
            exploration.begin(row, actions);
        }
    }

    /// Samples new transitions: observations, actions, rewards, discounts and next observations.
    pub(crate) fn draw(&self, from: &Experience, count: usize, rng: &mut Rng) -> Result<[Tensor; 5]> {
        let places = from.replay.sample(count, rng)?;
        let drawn = from.replay.upload(&places, &from.shape, &self.acting.device)?;
        Ok([
            drawn.observations,
            drawn.actions,
            drawn.rewards,
            drawn.discounts,
            drawn.next_observations,
        ])
    }
}

impl Trained for Trainer {
    fn checkpoint(&self, iteration: u64) -> Result<Checkpoint> {
        let checkpoint = self.step.checkpoint(iteration)?;
        match &self.exploration {
            Some(exploration) => exploration.save(checkpoint),
            None => Ok(checkpoint),
        }
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.step.restore(checkpoint)?;
        match &mut self.exploration {
            Some(exploration) => exploration.restore(checkpoint),
            None => Ok(()),
        }
    }

    fn refusal(&self) -> Option<&str> {
        self.step.refusal().or_else(|| self.acting.refusal())
    }
}

/// The bounds of the environments' actions.
///
/// # Errors
/// If actions are not continuous, or a space is invalid.
pub(crate) fn bounds(envs: &impl VectorEnv) -> Result<(Vec<f32>, Vec<f32>)> {
    check_spaces(envs.observation_space(), envs.action_space())?;
    match envs.action_space() {
        Space::Box { low, high, .. } => Ok((low.clone(), high.clone())),
        other => {
            let text = format!("an action is numbers within bounds, not one of {other:?}");
            Err(Error::invalid(text).with_hint("take PPO or DQN"))
        }
    }
}

/// Samples of the standard normal distribution.
pub(crate) fn normal(shape: [usize; 2], rng: &mut Rng, device: &Device) -> Result<Tensor> {
    let numbers = (0..shape[0] * shape[1]).map(|_| rng.normal() as f32).collect();
    Tensor::from_vec(numbers, shape, device)
}
