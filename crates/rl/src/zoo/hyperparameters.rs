//! Settings for the environments.
//!
//! Source, where nothing else is said: rl-zoo3's `hyperparams/ppo.yml`. What it leaves open are Stable-Baselines3's
//! defaults, whose value loss is the whole squared error, and so its weight twice ours.

use polygrad_nn::models::ActivationFn;

use super::GRID;
use crate::{
    ActionSpace, Annealed, CnnEncoderConfig, ConvLayer, EncoderConfig, MemoryConfig, MemoryKind, PolicyConfig,
    PpoConfig,
};

/// Settings to train a policy with.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyperparameters {
    /// How many environments step together.
    pub num_envs: usize,
    /// What learns.
    pub policy: PolicyConfig,
    /// How it learns, and how long.
    pub ppo: PpoConfig,
}

fn stable_baselines() -> PpoConfig {
    PpoConfig {
        total_steps: 1_000_000,
        learning_rate: 3e-4.into(),
        clip_value: false,
        entropy_coefficient: 0.0.into(),
        value_coefficient: 1.0,
        ..PpoConfig::default()
    }
}

fn normalized() -> PpoConfig {
    PpoConfig {
        normalize_observations: Some(10.0),
        normalize_rewards: Some(10.0),
        ..stable_baselines()
    }
}

pub(super) fn cart_pole() -> Hyperparameters {
    Hyperparameters {
        num_envs: 8,
        policy: PolicyConfig::mlp(4, ActionSpace::Discrete(2)),
        ppo: PpoConfig {
            total_steps: 100_000,
            num_steps: 32,
            num_minibatches: 1,
            update_epochs: 20,
            learning_rate: Annealed::Linear(1e-3, 0.0),
            gamma: 0.98,
            gae_lambda: 0.8,
            clip: Annealed::Linear(0.2, 0.0),
            ..stable_baselines()
        },
    }
}

pub(super) fn acrobot() -> Hyperparameters {
    Hyperparameters {
        num_envs: 16,
        policy: PolicyConfig::mlp(6, ActionSpace::Discrete(3)),
        ppo: PpoConfig {
            num_steps: 256,
            num_minibatches: 64,
            update_epochs: 4,
            gae_lambda: 0.94,
            ..normalized()
        },
    }
}

pub(super) fn mountain_car() -> Hyperparameters {
    Hyperparameters {
        num_envs: 16,
        policy: PolicyConfig::mlp(2, ActionSpace::Discrete(3)),
        ppo: PpoConfig {
            num_steps: 16,
            num_minibatches: 4,
            update_epochs: 4,
            gae_lambda: 0.98,
            ..normalized()
        },
    }
}

pub(super) fn mountain_car_continuous() -> Hyperparameters {
    Hyperparameters {
        num_envs: 16,
        policy: PolicyConfig::mlp(2, ActionSpace::Continuous(1)),
        ppo: PpoConfig {
            num_steps: 256,
            num_minibatches: 64,
            update_epochs: 4,
            gamma: 0.9999,
            ..normalized()
        },
    }
}

/// Without the exploration that depends on states, and with rewards that are normalized: the values' gradient is so
/// large without it that little of the policy's is left within the norm of both.
pub(super) fn pendulum() -> Hyperparameters {
    Hyperparameters {
        num_envs: 4,
        policy: PolicyConfig::mlp(3, ActionSpace::Continuous(1)),
        ppo: PpoConfig {
            total_steps: 100_000,
            num_steps: 1024,
            num_minibatches: 64,
            update_epochs: 10,
            learning_rate: 1e-3.into(),
            gamma: 0.9,
            normalize_rewards: Some(10.0),
            ..stable_baselines()
        },
    }
}

/// Own settings.
pub(super) fn t_maze() -> Hyperparameters {
    Hyperparameters {
        num_envs: 32,
        policy: PolicyConfig {
            memory: Some(MemoryConfig::new(MemoryKind::Lstm, 32)),
            shared: true,
            ..PolicyConfig::mlp(3, ActionSpace::Discrete(4))
        },
        ppo: PpoConfig {
            total_steps: 300_000,
            num_steps: 64,
            learning_rate: Annealed::Linear(2e-3, 0.0),
            ..PpoConfig::default()
        },
    }
}

/// Own settings.
pub(super) fn grid_world() -> Hyperparameters {
    Hyperparameters {
        num_envs: 16,
        policy: PolicyConfig::mlp(4 * GRID, ActionSpace::Discrete(4)),
        ppo: PpoConfig {
            total_steps: 300_000,
            num_steps: 128,
            learning_rate: Annealed::Linear(1e-3, 0.0),
            ..PpoConfig::default()
        },
    }
}

/// Own settings: both players are the same policy.
pub(super) fn connect_four() -> Hyperparameters {
    let convolution = ConvLayer {
        channels: 32,
        kernel: 3,
        stride: 1,
    };
    let encoder = CnnEncoderConfig {
        convolutions: vec![convolution; 2],
        hidden: vec![64],
        activation: ActivationFn::Relu,
        scale: 1.0,
        ..CnnEncoderConfig::new([3, 6, 7])
    };
    Hyperparameters {
        num_envs: 32,
        policy: PolicyConfig {
            shared: true,
            ..PolicyConfig::new(EncoderConfig::Cnn(encoder), ActionSpace::Discrete(7))
        },
        ppo: PpoConfig {
            num_steps: 64,
            learning_rate: Annealed::Linear(1e-3, 0.0),
            ..PpoConfig::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use polygrad_reference::Reference;
    use polygrad_tensor::Device;

    use crate::zoo::{Stepping, all, find};
    use crate::{ActionSpace, ActorCritic, Ppo};

    #[test]
    fn settings_fit_their_environments() {
        let device = Device::<Reference>::default().into_any();
        for spec in all() {
            let settings = spec.hyperparameters();
            let envs = spec.make(settings.num_envs, Stepping::Serial).unwrap();
            assert_eq!(
                ActionSpace::from(envs.action_space()),
                settings.policy.action,
                "{}",
                spec.name
            );
            let policy = ActorCritic::new(&settings.policy, &device).unwrap();
            let ppo = Ppo::new(envs, policy, settings.ppo).unwrap_or_else(|error| panic!("{}: {error}", spec.name));
            assert!(ppo.iterations() > 10, "{}", spec.name);
        }
    }

    #[test]
    fn what_there_is_not_is_told() {
        let error = find("cart-pole").err().unwrap();
        assert_eq!(error.message(), "there is no environment \"cart-pole\"");
        assert!(error.hint().unwrap().starts_with("there are cartpole, acrobot, "));
    }
}
