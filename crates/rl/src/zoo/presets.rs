//! Settings for the environments.
//!
//! Sources: for `zoo` rl-zoo3's `hyperparams/ppo.yml`, `dqn.yml`, `sac.yml` and `td3.yml`, for `cleanrl` CleanRL's
//! `ppo.py`, `dqn.py`, `pqn.py`, `sac_continuous_action.py` and `td3_continuous_action.py`.
//! Settings that rl-zoo3 does not give are Stable-Baselines3's defaults. PPO's value loss there is the whole squared
//! error, so that its weight here is twice as large; DQN's loss is Huber's, with a gradient norm of at most 10.

use polygrad_nn::models::ActivationFn;

use super::{Algorithm, GRID};
use crate::{
    ActionSpace, Annealed, CnnEncoderConfig, ConvLayer, DqnConfig, EncoderConfig, ExplorationNoise, MemoryConfig,
    MemoryKind, MlpEncoderConfig, PolicyConfig, PpoConfig, PqnConfig, SacConfig, SelfPlayConfig, Td3Config,
};

/// Settings to train a policy with.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// The source: `zoo`, `cleanrl`, or `own`.
    pub name: &'static str,
    /// The number of environments that step together.
    pub num_envs: usize,
    /// The policy to train.
    pub policy: PolicyConfig,
    /// The algorithm and the length of the training.
    pub algorithm: Algorithm,
    /// The opponents in a two-player game. Without them, the policy plays both players at once.
    pub self_play: Option<SelfPlayConfig>,
}

/// The settings of our environment that corresponds to this one of Gymnasium, if there is one.
#[cfg(feature = "gym")]
pub(crate) fn presets_like(gymnasium: &str) -> Option<Vec<Preset>> {
    Some(match gymnasium {
        "CartPole-v1" => cart_pole(),
        "Acrobot-v1" => acrobot(),
        "MountainCar-v0" => mountain_car(),
        "MountainCarContinuous-v0" => mountain_car_continuous(),
        "Pendulum-v1" => pendulum(),
        _ => return None,
    })
}

/// CleanRL's settings for PPO with this policy.
fn ppo_clean_rl(policy: &PolicyConfig) -> Preset {
    Preset {
        name: "cleanrl",
        num_envs: 4,
        policy: policy.clone(),
        algorithm: Algorithm::Ppo(PpoConfig::cleanrl()),
        self_play: None,
    }
}

/// A network with ReLU for vector observations.
fn rectified(observation: usize, action: ActionSpace, hidden: &[usize]) -> PolicyConfig {
    let encoder = MlpEncoderConfig {
        hidden: hidden.to_vec(),
        activation: ActivationFn::Relu,
        ..MlpEncoderConfig::new(observation)
    };
    PolicyConfig::new(EncoderConfig::Mlp(encoder), action)
}

fn dqn_clean_rl(observation: usize, actions: usize) -> Preset {
    Preset {
        name: "cleanrl",
        num_envs: 1,
        policy: rectified(observation, ActionSpace::Discrete(actions), &[120, 84]),
        algorithm: Algorithm::Dqn(DqnConfig::default()),
        self_play: None,
    }
}

fn pqn_clean_rl(observation: usize, actions: usize) -> Preset {
    let encoder = MlpEncoderConfig {
        hidden: vec![120, 84],
        activation: ActivationFn::Relu,
        layer_norm: true,
        ..MlpEncoderConfig::new(observation)
    };
    Preset {
        name: "cleanrl",
        num_envs: 4,
        policy: PolicyConfig::new(EncoderConfig::Mlp(encoder), ActionSpace::Discrete(actions)),
        algorithm: Algorithm::Pqn(PqnConfig::default()),
        self_play: None,
    }
}

fn dqn_zoo(observation: usize, actions: usize, settings: DqnConfig) -> Preset {
    let settings = DqnConfig {
        huber: true,
        max_grad_norm: Some(10.0),
        ..settings
    };
    Preset {
        name: "zoo",
        num_envs: 1,
        policy: rectified(observation, ActionSpace::Discrete(actions), &[256, 256]),
        algorithm: Algorithm::Dqn(settings),
        self_play: None,
    }
}

/// Settings for an environment with one continuous action.
fn bounded(name: &'static str, observation: usize, hidden: &[usize], algorithm: Algorithm) -> Preset {
    Preset {
        name,
        num_envs: 1,
        policy: rectified(observation, ActionSpace::Continuous(1), hidden),
        algorithm,
        self_play: None,
    }
}

/// A single learning rate, equally frequent steps of policy and critics, and an early start.
fn sac_stable_baselines(total_steps: u64, learning_rate: f64) -> SacConfig {
    SacConfig {
        total_steps,
        learning_rate: learning_rate.into(),
        critic_learning_rate: learning_rate.into(),
        learning_starts: 100,
        policy_frequency: 1,
        ..SacConfig::default()
    }
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

pub(super) fn cart_pole() -> Vec<Preset> {
    let zoo = Preset {
        name: "zoo",
        num_envs: 8,
        policy: PolicyConfig::mlp(4, ActionSpace::Discrete(2)),
        algorithm: Algorithm::Ppo(PpoConfig {
            total_steps: 100_000,
            num_steps: 32,
            num_minibatches: 1,
            update_epochs: 20,
            learning_rate: Annealed::Linear(1e-3, 0.0),
            gamma: 0.98,
            gae_lambda: 0.8,
            clip: Annealed::Linear(0.2, 0.0),
            ..stable_baselines()
        }),
        self_play: None,
    };
    let clean_rl = ppo_clean_rl(&zoo.policy);
    vec![
        zoo,
        clean_rl,
        dqn_zoo(
            4,
            2,
            DqnConfig {
                total_steps: 50_000,
                learning_rate: 2.3e-3.into(),
                batch_size: 64,
                buffer_size: 100_000,
                learning_starts: 1000,
                target_frequency: 10,
                train_frequency: 256,
                gradient_steps: 128,
                exploration_fraction: 0.16,
                epsilon: Annealed::Linear(1.0, 0.04),
                ..DqnConfig::default()
            },
        ),
        dqn_clean_rl(4, 2),
        pqn_clean_rl(4, 2),
    ]
}

pub(super) fn acrobot() -> Vec<Preset> {
    let zoo = Preset {
        name: "zoo",
        num_envs: 16,
        policy: PolicyConfig::mlp(6, ActionSpace::Discrete(3)),
        algorithm: Algorithm::Ppo(PpoConfig {
            num_steps: 256,
            num_minibatches: 64,
            update_epochs: 4,
            gae_lambda: 0.94,
            ..normalized()
        }),
        self_play: None,
    };
    let clean_rl = ppo_clean_rl(&zoo.policy);
    vec![
        zoo,
        clean_rl,
        dqn_zoo(
            6,
            3,
            DqnConfig {
                total_steps: 100_000,
                learning_rate: 6.3e-4.into(),
                batch_size: 128,
                buffer_size: 50_000,
                learning_starts: 0,
                target_frequency: 250,
                train_frequency: 4,
                gradient_steps: 4,
                exploration_fraction: 0.12,
                epsilon: Annealed::Linear(1.0, 0.1),
                ..DqnConfig::default()
            },
        ),
        dqn_clean_rl(6, 3),
        pqn_clean_rl(6, 3),
    ]
}

pub(super) fn mountain_car() -> Vec<Preset> {
    let zoo = Preset {
        name: "zoo",
        num_envs: 16,
        policy: PolicyConfig::mlp(2, ActionSpace::Discrete(3)),
        algorithm: Algorithm::Ppo(PpoConfig {
            num_steps: 16,
            num_minibatches: 4,
            update_epochs: 4,
            gae_lambda: 0.98,
            ..normalized()
        }),
        self_play: None,
    };
    let clean_rl = ppo_clean_rl(&zoo.policy);
    vec![
        zoo,
        clean_rl,
        dqn_zoo(
            2,
            3,
            DqnConfig {
                total_steps: 120_000,
                learning_rate: 4e-3.into(),
                batch_size: 128,
                buffer_size: 10_000,
                learning_starts: 1000,
                gamma: 0.98,
                target_frequency: 600,
                train_frequency: 16,
                gradient_steps: 8,
                exploration_fraction: 0.2,
                epsilon: Annealed::Linear(1.0, 0.07),
                ..DqnConfig::default()
            },
        ),
        dqn_clean_rl(2, 3),
        pqn_clean_rl(2, 3),
    ]
}

/// The first presets of SAC and TD3 are our own, with small networks: they only find the goal with noise that is
/// correlated over many steps.
pub(super) fn mountain_car_continuous() -> Vec<Preset> {
    let noise = ExplorationNoise::OrnsteinUhlenbeck(0.5);
    let ppo = Preset {
        name: "zoo",
        num_envs: 1,
        policy: PolicyConfig {
            ortho_init: false,
            ..PolicyConfig::mlp(2, ActionSpace::Continuous(1))
        },
        algorithm: Algorithm::Ppo(PpoConfig {
            total_steps: 20_000,
            num_steps: 8,
            num_minibatches: 1,
            update_epochs: 10,
            learning_rate: 7.77e-5.into(),
            gamma: 0.9999,
            gae_lambda: 0.9,
            clip: 0.1.into(),
            entropy_coefficient: 0.00429.into(),
            value_coefficient: 0.38,
            max_grad_norm: 5.0,
            use_sde: true,
            log_std_init: -3.29,
            ..normalized()
        }),
        self_play: None,
    };
    let sac = SacConfig {
        buffer_size: 50_000,
        train_frequency: 32,
        gradient_steps: 32,
        gamma: 0.9999,
        tau: 0.01,
        temperature: Some(0.1),
        exploration_noise: Some(noise),
        ..sac_stable_baselines(50_000, 3e-4)
    };
    let sac_zoo = SacConfig {
        batch_size: 512,
        learning_starts: 0,
        exploration_noise: None,
        use_sde: true,
        log_std_init: -3.67,
        ..sac.clone()
    };
    let td3_zoo = Td3Config {
        total_steps: 300_000,
        learning_rate: 1e-3.into(),
        learning_starts: 100,
        exploration_noise: noise,
        ..Td3Config::default()
    };
    let td3 = Td3Config {
        buffer_size: 50_000,
        train_frequency: 32,
        gradient_steps: 32,
        ..td3_zoo.clone()
    };
    vec![
        ppo,
        bounded("own", 2, &[64, 64], Algorithm::Sac(sac)),
        bounded("zoo", 2, &[64, 64], Algorithm::Sac(sac_zoo)),
        bounded("own", 2, &[64, 64], Algorithm::Td3(td3)),
        bounded("zoo", 2, &[400, 300], Algorithm::Td3(td3_zoo)),
    ]
}

pub(super) fn pendulum() -> Vec<Preset> {
    let ppo = Preset {
        name: "zoo",
        num_envs: 4,
        policy: PolicyConfig::mlp(3, ActionSpace::Continuous(1)),
        algorithm: Algorithm::Ppo(PpoConfig {
            total_steps: 100_000,
            num_steps: 1024,
            num_minibatches: 64,
            update_epochs: 10,
            learning_rate: 1e-3.into(),
            gamma: 0.9,
            use_sde: true,
            sde_sample_freq: 4,
            ..stable_baselines()
        }),
        self_play: None,
    };
    vec![
        ppo,
        bounded(
            "zoo",
            3,
            &[256, 256],
            Algorithm::Sac(sac_stable_baselines(20_000, 1e-3)),
        ),
        bounded("cleanrl", 3, &[256, 256], Algorithm::Sac(SacConfig::default())),
        bounded(
            "zoo",
            3,
            &[400, 300],
            Algorithm::Td3(Td3Config {
                total_steps: 20_000,
                learning_rate: 1e-3.into(),
                buffer_size: 200_000,
                learning_starts: 10_000,
                gamma: 0.98,
                ..Td3Config::default()
            }),
        ),
        bounded("cleanrl", 3, &[256, 256], Algorithm::Td3(Td3Config::default())),
    ]
}

/// Own settings.
pub(super) fn t_maze() -> Vec<Preset> {
    vec![Preset {
        name: "own",
        num_envs: 32,
        policy: PolicyConfig {
            memory: Some(MemoryConfig::new(MemoryKind::Lstm, 32)),
            shared: true,
            ..PolicyConfig::mlp(3, ActionSpace::Discrete(4))
        },
        algorithm: Algorithm::Ppo(PpoConfig {
            total_steps: 300_000,
            num_steps: 64,
            learning_rate: Annealed::Linear(2e-3, 0.0),
            ..PpoConfig::default()
        }),
        self_play: None,
    }]
}

/// Own settings.
pub(super) fn grid_world() -> Vec<Preset> {
    vec![Preset {
        name: "own",
        num_envs: 16,
        policy: PolicyConfig::mlp(4 * GRID, ActionSpace::Discrete(4)),
        algorithm: Algorithm::Ppo(PpoConfig {
            total_steps: 300_000,
            num_steps: 128,
            learning_rate: Annealed::Linear(1e-3, 0.0),
            ..PpoConfig::default()
        }),
        self_play: None,
    }]
}

/// Own settings.
pub(super) fn tic_tac_toe() -> Vec<Preset> {
    let encoder = MlpEncoderConfig {
        hidden: vec![128; 2],
        ..MlpEncoderConfig::new(19)
    };
    vec![Preset {
        name: "own",
        num_envs: 32,
        policy: PolicyConfig::new(EncoderConfig::Mlp(encoder), ActionSpace::Discrete(9)),
        algorithm: Algorithm::Ppo(PpoConfig {
            total_steps: 1_000_000,
            num_steps: 64,
            gamma: 1.0,
            learning_rate: Annealed::Linear(2e-3, 0.0),
            entropy_coefficient: 0.02.into(),
            ..PpoConfig::default()
        }),
        self_play: Some(SelfPlayConfig {
            snapshots: 4,
            opening: 4,
            ..SelfPlayConfig::default()
        }),
    }]
}

/// Own settings.
pub(super) fn connect_four() -> Vec<Preset> {
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
    vec![Preset {
        name: "own",
        num_envs: 32,
        policy: PolicyConfig {
            shared: true,
            ..PolicyConfig::new(EncoderConfig::Cnn(encoder), ActionSpace::Discrete(7))
        },
        algorithm: Algorithm::Ppo(PpoConfig {
            num_steps: 64,
            learning_rate: Annealed::Linear(1e-3, 0.0),
            ..PpoConfig::default()
        }),
        self_play: Some(SelfPlayConfig::default()),
    }]
}

#[cfg(test)]
mod tests {
    use polygrad_reference::Reference;
    use polygrad_tensor::Device;

    use crate::zoo::{Stepping, all, find};
    use crate::{ActionSpace, VectorEnv};

    #[test]
    fn settings_fit_their_environments() {
        let device = Device::<Reference>::default().into_any();
        for spec in all() {
            for preset in spec.presets() {
                let what = format!("{} {} {}", spec.name, preset.algorithm.name(), preset.name);
                let envs = spec.make(preset.num_envs, Stepping::Serial).unwrap();
                assert_eq!(ActionSpace::from(envs.action_space()), preset.policy.action, "{what}");
                preset.algorithm.check(&preset.policy, envs.rows()).unwrap();
                let agent = preset.algorithm.agent(envs, &preset.policy, &device, None);
                let agent = agent.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(agent.total_steps() > 10 * agent.steps_per_advance(), "{what}");
            }
        }
    }

    #[test]
    fn presets_are_found_by_algorithm_and_name() {
        let acrobot = find("acrobot").unwrap();
        let found = |algorithm, name| {
            let preset = acrobot.preset(algorithm, name).unwrap();
            (preset.algorithm.name(), preset.name)
        };
        assert_eq!(found(None, None), ("ppo", "zoo"));
        assert_eq!(found(Some("dqn"), None), ("dqn", "zoo"));
        assert_eq!(found(None, Some("cleanrl")), ("ppo", "cleanrl"));
        assert_eq!(found(Some("dqn"), Some("cleanrl")), ("dqn", "cleanrl"));
        let error = find("pendulum").unwrap().preset(Some("dqn"), None).unwrap_err();
        assert_eq!(error.message(), "there are no settings of dqn for pendulum");
        assert_eq!(
            error.hint(),
            Some("there are: ppo zoo, sac zoo, sac cleanrl, td3 zoo, td3 cleanrl")
        );
    }

    #[test]
    fn what_there_is_not_is_told() {
        let error = find("cart-pole").err().unwrap();
        assert_eq!(error.message(), "there is no environment \"cart-pole\"");
        assert!(error.hint().unwrap().starts_with("there are cartpole, acrobot, "));
    }
}
