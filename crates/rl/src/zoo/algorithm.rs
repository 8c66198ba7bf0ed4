//! Learning algorithms and their settings.

use std::sync::Arc;

use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, Result};
use polygrad_tensor::Device;
use serde::{Deserialize, Serialize};

use crate::{
    ActionSpace, ActorCritic, Agent, Annealed, BcConfig, BehaviorCloning, BoundedPolicy, Demonstrations, DistillConfig,
    Distillation, Dqn, DqnConfig, EncoderConfig, MlpEncoderConfig, NormalizedPolicy, Normalizer, Policy, PolicyConfig,
    Ppo, PpoConfig, Pqn, PqnConfig, QNetwork, Sac, SacConfig, Td3, Td3Config, VectorEnv,
};

/// An algorithm with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// [`Ppo`].
    Ppo(PpoConfig),
    /// [`Dqn`].
    Dqn(DqnConfig),
    /// [`Sac`].
    Sac(SacConfig),
    /// [`Td3`].
    Td3(Td3Config),
    /// [`Pqn`].
    Pqn(PqnConfig),
    /// [`BehaviorCloning`].
    Bc(BcConfig),
    /// [`Distillation`].
    Distill(DistillConfig),
}

/// What the imitation algorithms learn from.
pub enum Lesson {
    /// Recorded steps, for [`BehaviorCloning`].
    Demonstrations(Demonstrations),
    /// A policy that takes observations as environments give them, for [`Distillation`].
    Teacher(Box<dyn Policy>),
}

/// Applies an expression to the settings of each algorithm.
macro_rules! each {
    ($self:expr, $config:ident => $do:expr) => {
        match $self {
            Algorithm::Ppo($config) => $do,
            Algorithm::Dqn($config) => $do,
            Algorithm::Sac($config) => $do,
            Algorithm::Td3($config) => $do,
            Algorithm::Pqn($config) => $do,
            Algorithm::Bc($config) => $do,
            Algorithm::Distill($config) => $do,
        }
    };
}

impl Algorithm {
    /// The names on the command line.
    pub const NAMES: [&str; 7] = ["ppo", "dqn", "sac", "td3", "pqn", "bc", "distill"];

    /// The imitation algorithm of this name, with default settings; `None` for another name.
    pub fn of_others(name: &str) -> Option<Self> {
        let all = [Self::Bc(BcConfig::default()), Self::Distill(DistillConfig::default())];
        all.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ppo(_) => Self::NAMES[0],
            Self::Dqn(_) => Self::NAMES[1],
            Self::Sac(_) => Self::NAMES[2],
            Self::Td3(_) => Self::NAMES[3],
            Self::Pqn(_) => Self::NAMES[4],
            Self::Bc(_) => Self::NAMES[5],
            Self::Distill(_) => Self::NAMES[6],
        }
    }

    /// Seed of the random numbers.
    pub fn seed(&self) -> u64 {
        each!(self, config => config.seed)
    }

    /// The same, mutable.
    pub fn seed_mut(&mut self) -> &mut u64 {
        each!(self, config => &mut config.seed)
    }

    /// Steps of all environments together.
    pub fn total_steps(&self) -> u64 {
        each!(self, config => config.total_steps)
    }

    /// The same, mutable.
    pub fn total_steps_mut(&mut self) -> &mut u64 {
        each!(self, config => &mut config.total_steps)
    }

    /// The learning rate.
    pub fn learning_rate(&self) -> Annealed {
        each!(self, config => config.learning_rate)
    }

    /// The same, mutable.
    pub fn learning_rate_mut(&mut self) -> &mut Annealed {
        each!(self, config => &mut config.learning_rate)
    }

    /// The bound at which observations are clipped after normalization; `None` if they are not normalized.
    pub fn normalize_observations(&self) -> Option<f64> {
        match self {
            Self::Ppo(config) => config.normalize_observations,
            _ => None,
        }
    }

    /// The reason why its policies cannot sample actions; `None` if they can.
    pub fn refuses_sampling(&self) -> Option<&'static str> {
        match self {
            Self::Ppo(_) | Self::Bc(_) | Self::Distill(_) => None,
            Self::Dqn(_) => Some("a network of DQN says what they are worth"),
            Self::Pqn(_) => Some("a network of PQN says what they are worth"),
            Self::Sac(_) => Some("a policy of SAC draws them in training alone"),
            Self::Td3(_) => Some("a policy of TD3 draws nothing"),
        }
    }

    /// Fails unless such a policy can be trained with this number of environment rows.
    ///
    /// # Errors
    /// The first setting that is invalid.
    pub fn check(&self, policy: &PolicyConfig, rows: usize) -> Result<()> {
        match self {
            Self::Ppo(config) if config.use_sde => policy.check_sde().and_then(|()| config.check(rows)),
            Self::Ppo(config) => config.check(rows),
            Self::Dqn(config) => q_network("DQN", policy).and_then(|_| config.check(rows)),
            Self::Pqn(config) => q_network("PQN", policy).and_then(|_| config.check(rows)),
            Self::Sac(config) => bounded("SAC", policy).and_then(|_| config.check(rows)),
            Self::Td3(config) => bounded("TD3", policy).and_then(|_| config.check(rows)),
            Self::Bc(config) => forgetful("BC", policy).and_then(|()| config.check(rows)),
            Self::Distill(config) => forgetful("distillation", policy).and_then(|()| config.check(rows)),
        }
    }

    /// A new policy for use, including the normalization of its observations.
    ///
    /// # Errors
    /// Those of the policy; if it does not fit the algorithm.
    pub fn policy(&self, policy: &PolicyConfig, device: &Device) -> Result<Box<dyn Policy>> {
        let actor_critic = match self {
            Self::Ppo(config) => actor_critic(config, policy, device)?,
            Self::Bc(_) | Self::Distill(_) => return Ok(Box::new(ActorCritic::actor(policy, device)?)),
            Self::Dqn(config) => {
                let (encoder, actions) = q_network("DQN", policy)?;
                return Ok(Box::new(QNetwork::new(encoder, actions, config.dueling, device)?));
            }
            Self::Pqn(_) => {
                let (encoder, actions) = q_network("PQN", policy)?;
                return Ok(Box::new(QNetwork::orthogonal(encoder, actions, device)?));
            }
            Self::Sac(config) => {
                let (encoder, actions) = bounded("SAC", policy)?;
                let policy = BoundedPolicy::new(encoder, actions, true, device)?;
                return Ok(match config.use_sde {
                    true => Box::new(policy.use_sde(config.log_std_init)?),
                    false => Box::new(policy),
                });
            }
            Self::Td3(_) => {
                let (encoder, actions) = bounded("TD3", policy)?;
                return Ok(Box::new(BoundedPolicy::new(encoder, actions, false, device)?));
            }
        };
        let Some(clip) = self.normalize_observations() else {
            return Ok(Box::new(actor_critic));
        };
        let size = match &policy.encoder {
            EncoderConfig::Mlp(config) => config.observation_size,
            EncoderConfig::Cnn(config) => config.observation_shape.iter().product(),
        };
        let normalizer = Normalizer::new(size, Some(clip), device)?;
        let policy = actor_critic;
        Ok(Box::new(NormalizedPolicy { normalizer, policy }))
    }

    /// A training of a new policy, on its own or as one of the ranks of a group.
    ///
    /// # Errors
    /// Those of the algorithm; if it does not support several ranks.
    pub fn agent(
        &self,
        envs: Box<dyn VectorEnv>,
        policy: &PolicyConfig,
        device: &Device,
        group: Option<&Arc<dyn Communicator>>,
    ) -> Result<Box<dyn Agent>> {
        match self {
            Self::Ppo(config) => {
                let ppo = Ppo::new(envs, actor_critic(config, policy, device)?, config.clone())?;
                Ok(match group {
                    Some(group) => Box::new(ppo.parallel(Arc::clone(group))?),
                    None => Box::new(ppo),
                })
            }
            _ if group.is_some() => Err(Error::invalid("it learns in one process")
                .with_op(self.name().to_uppercase())
                .with_hint("leave the other processes out, or take PPO")),
            Self::Dqn(config) => {
                let (encoder, actions) = q_network("DQN", policy)?;
                let make = || QNetwork::new(encoder, actions, config.dueling, device);
                Ok(Box::new(Dqn::new(envs, make, config.clone())?))
            }
            Self::Pqn(config) => {
                let (encoder, actions) = q_network("PQN", policy)?;
                let network = QNetwork::orthogonal(encoder, actions, device)?;
                Ok(Box::new(Pqn::new(envs, network, config.clone())?))
            }
            Self::Sac(config) => {
                let (encoder, _) = bounded("SAC", policy)?;
                Ok(Box::new(Sac::new(envs, encoder, config.clone(), device)?))
            }
            Self::Td3(config) => {
                let (encoder, _) = bounded("TD3", policy)?;
                Ok(Box::new(Td3::new(envs, encoder, config.clone(), device)?))
            }
            Self::Bc(_) | Self::Distill(_) => Err(Error::invalid("it learns from others, and there are none")
                .with_op(self.name())
                .with_hint("train by Algorithm::taught, or by polygrad train with --demonstrations or --teacher")),
        }
    }

    /// A training of a new policy by imitation.
    ///
    /// # Errors
    /// Those of the algorithm; if it learns from another kind of lesson.
    pub fn taught(
        &self,
        envs: Box<dyn VectorEnv>,
        policy: &PolicyConfig,
        device: &Device,
        lesson: Lesson,
    ) -> Result<Box<dyn Agent>> {
        let policy = ActorCritic::actor(policy, device)?;
        match (self, lesson) {
            (Self::Bc(config), Lesson::Demonstrations(demonstrations)) => Ok(Box::new(BehaviorCloning::new(
                envs,
                policy,
                demonstrations,
                config.clone(),
            )?)),
            (Self::Distill(config), Lesson::Teacher(teacher)) => {
                Ok(Box::new(Distillation::new(envs, policy, teacher, config.clone())?))
            }
            (other, _) => {
                let text = format!("{} does not learn from that", other.name());
                Err(Error::invalid(text).with_hint("take bc for demonstrations, or distill for a teacher"))
            }
        }
    }
}

/// A new policy for PPO.
fn actor_critic(config: &PpoConfig, policy: &PolicyConfig, device: &Device) -> Result<ActorCritic> {
    let policy = ActorCritic::new(policy, device)?;
    match config.use_sde {
        true => policy.use_sde(config.log_std_init),
        false => Ok(policy),
    }
}

/// The encoder of a network that says what actions are worth, and how many it chooses among.
fn q_network<'a>(algorithm: &'static str, policy: &'a PolicyConfig) -> Result<(&'a EncoderConfig, usize)> {
    plain(algorithm, policy)?;
    match policy.action {
        ActionSpace::Discrete(actions) => Ok((&policy.encoder, actions)),
        ref other => Err(wrong(
            algorithm,
            format!("it chooses one of several actions, not of {other:?}"),
        )),
    }
}

/// The layers of a policy with bounded continuous actions, and the length of an action.
fn bounded<'a>(algorithm: &'static str, policy: &'a PolicyConfig) -> Result<(&'a MlpEncoderConfig, usize)> {
    plain(algorithm, policy)?;
    match (&policy.encoder, &policy.action) {
        (EncoderConfig::Mlp(encoder), ActionSpace::Continuous(actions)) => Ok((encoder, *actions)),
        (EncoderConfig::Cnn(_), _) => Err(wrong(algorithm, "its critics take vectors, and no images".to_owned())),
        (_, other) => Err(wrong(
            algorithm,
            format!("an action is numbers within bounds, not of {other:?}"),
        )),
    }
}

/// Fails if a policy has a feature that only PPO supports.
fn plain(algorithm: &'static str, policy: &PolicyConfig) -> Result<()> {
    forgetful(algorithm, policy)?;
    if policy.shared || policy.state_dependent_std || !policy.ortho_init {
        let what = "shared, state_dependent_std and ortho_init are for PPO's actor and critic, and mean nothing here";
        return Err(Error::invalid(what).with_op(algorithm).with_hint("leave them out"));
    }
    Ok(())
}

/// Fails if a policy has memory.
fn forgetful(algorithm: &'static str, policy: &PolicyConfig) -> Result<()> {
    if let Some(memory) = policy.memory {
        let text = format!(
            "its network remembers nothing, and the policy is to have {:?}",
            memory.kind
        );
        return Err(wrong(algorithm, text));
    }
    Ok(())
}

fn wrong(algorithm: &'static str, what: String) -> Error {
    Error::invalid(what).with_op(algorithm).with_hint("take PPO")
}
