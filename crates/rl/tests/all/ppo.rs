//! PPO: it learns, only the seed determines the result, and training can be stopped anywhere.

use polygrad_nn::{Checkpoint, Module};
use polygrad_rl::*;
use polygrad_tensor::{Device, Result, Tensor, manual_seed};

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

/// Two choices with a mask, for a policy of two heads: the first must be the observed number, the second is never 2.
struct Copycat {
    seen: usize,
    steps: usize,
}

impl Env for Copycat {
    fn observation_space(&self) -> Space {
        Space::discrete(3)
    }

    fn action_space(&self) -> Space {
        Space::multi_discrete(&[3, 3])
    }

    fn has_action_mask(&self) -> bool {
        true
    }

    fn action_mask(&self, mask: &mut [bool]) {
        mask.copy_from_slice(&[true, true, true, true, true, false]);
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.steps = 0;
        self.seen = rng.below(3);
        observation[0] = self.seen as f32;
    }

    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step {
        assert!(action[1] != 2.0, "a masked action was taken");
        let reward = f64::from(action[0] as usize == self.seen);
        self.steps += 1;
        self.seen = rng.below(3);
        observation[0] = self.seen as f32;
        Step {
            truncated: self.steps == 20,
            ..Step::new(reward, false)
        }
    }
}

/// How environments step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Serial,
    Threads(usize),
    Asynchronous(usize),
}

fn vectorized<E: Env<A> + Send + 'static, const A: usize>(
    make: fn() -> E,
    n: usize,
    mode: Mode,
) -> Result<Vectorized<E, A>> {
    match mode {
        Mode::Serial => Vectorized::new(|_| make(), n),
        Mode::Threads(threads) => Vectorized::threaded(|_| make(), n, threads),
        Mode::Asynchronous(threads) => Vectorized::asynchronous(|_| make(), n, threads),
    }
}

const CASES: [&str; 8] = [
    "mlp",
    "lstm",
    "gru",
    "min_gru",
    "masked",
    "two players",
    "continuous",
    "sde",
];

/// A training of each kind with different requirements.
fn training(case: &str, mode: Mode) -> Result<Ppo> {
    let device = device();
    manual_seed(5);
    let config = PpoConfig {
        total_steps: 4 * 16 * 16,
        num_steps: 16,
        update_epochs: 2,
        seed: 7,
        ..PpoConfig::default()
    };
    let memory = |kind| PolicyConfig {
        memory: Some(MemoryConfig::new(kind, 8)),
        shared: true,
        ..PolicyConfig::mlp(3, ActionSpace::Discrete(4))
    };
    let maze = |kind, segment_len| {
        let policy = ActorCritic::new(&memory(kind), &device)?;
        let envs = vectorized(|| TimeLimit::new(TMaze::new(3).unwrap(), 12).unwrap(), 16, mode)?;
        let config = PpoConfig {
            segment_len,
            ..config.clone()
        };
        Ppo::new(envs, policy, config)
    };
    let policy = |observation, action| ActorCritic::new(&PolicyConfig::mlp(observation, action), &device);
    match case {
        "mlp" => Ppo::new(
            vectorized(CartPole::v1, 16, mode)?,
            policy(4, ActionSpace::Discrete(2))?,
            config,
        ),
        "lstm" => maze(MemoryKind::Lstm, None),
        "gru" => maze(MemoryKind::Gru, Some(4)),
        "min_gru" => maze(MemoryKind::MinGru, Some(8)),
        "masked" => Ppo::new(
            vectorized(|| Copycat { seen: 0, steps: 0 }, 16, mode)?,
            policy(3, ActionSpace::MultiDiscrete(vec![3, 3]))?,
            PpoConfig {
                normalize_advantages: AdvantageNorm::Batch,
                target_kl: Some(0.05),
                ..config
            },
        ),
        "two players" => {
            let encoder = CnnEncoderConfig {
                convolutions: vec![ConvLayer {
                    channels: 4,
                    kernel: 3,
                    stride: 1,
                }],
                hidden: vec![8],
                scale: 1.0,
                ..CnnEncoderConfig::new([3, 6, 7])
            };
            let policy = PolicyConfig::new(EncoderConfig::Cnn(encoder), ActionSpace::Discrete(7));
            let envs = vectorized::<_, 2>(ConnectFour::new, 8, mode)?;
            Ppo::new(envs, ActorCritic::new(&policy, &device)?, config)
        }
        "sde" => {
            let policy = PolicyConfig {
                memory: Some(MemoryConfig::new(MemoryKind::MinGru, 8)),
                ..PolicyConfig::mlp(3, ActionSpace::Continuous(1))
            };
            let config = PpoConfig {
                use_sde: true,
                sde_sample_freq: 5,
                ..config
            };
            let policy = ActorCritic::new(&policy, &device)?.use_sde(-1.0)?;
            Ppo::new(vectorized(Pendulum::v1, 16, mode)?, policy, config)
        }
        _ => {
            let policy = PolicyConfig {
                state_dependent_std: true,
                ..PolicyConfig::mlp(3, ActionSpace::Continuous(1))
            };
            let config = PpoConfig {
                normalize_observations: Some(10.0),
                normalize_rewards: Some(10.0),
                ..config
            };
            let envs = vectorized(Pendulum::v1, 16, mode)?;
            Ppo::new(envs, ActorCritic::new(&policy, &device)?, config)
        }
    }
}

/// Everything in a checkpoint, including the weights.
fn everything(ppo: &Ppo) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    ppo.checkpoint().unwrap().save(file.path()).unwrap();
    std::fs::read(file.path()).unwrap()
}

fn weights(ppo: &Ppo) -> Vec<Vec<u32>> {
    let params = ppo.policy().parameters();
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect();
    params
        .iter()
        .map(|param| bits(param.tensor().to_vec().unwrap()))
        .collect()
}

#[test]
fn threads_change_nothing() {
    for case in CASES {
        let trained = |mode| {
            let mut ppo = training(case, mode).unwrap();
            while !ppo.is_done() {
                ppo.iterate().unwrap();
            }
            assert_eq!(ppo.refusal(), None, "{case}");
            weights(&ppo)
        };
        let expected = trained(Mode::Serial);
        for mode in [Mode::Threads(2), Mode::Asynchronous(1), Mode::Asynchronous(2)] {
            assert!(trained(mode) == expected, "{case}, {mode:?}");
        }
    }
}

#[test]
fn a_training_goes_on_as_if_it_had_not_stopped() {
    for case in CASES {
        let mut whole = training(case, Mode::Serial).unwrap();
        let mut parts = training(case, Mode::Serial).unwrap();
        let mut modes = [Mode::Threads(2), Mode::Asynchronous(2), Mode::Serial]
            .into_iter()
            .cycle();
        while !whole.is_done() {
            let file = tempfile::NamedTempFile::new().unwrap();
            parts.checkpoint().unwrap().save(file.path()).unwrap();
            parts = training(case, modes.next().unwrap()).unwrap();
            parts.restore(&Checkpoint::load(file.path()).unwrap()).unwrap();
            let (a, b) = (whole.iterate().unwrap(), parts.iterate().unwrap());
            assert_eq!(a.episodes, b.episodes, "{case}");
            assert_eq!(a.policy_loss.to_bits(), b.policy_loss.to_bits(), "{case}");
            assert_eq!(whole.mean_return(), parts.mean_return(), "{case}");
        }
        assert!(everything(&whole) == everything(&parts), "{case}");
    }
}

#[test]
fn the_seed_decides() {
    let trained = |seed| {
        let config = PpoConfig {
            total_steps: 128,
            num_steps: 16,
            seed,
            ..PpoConfig::default()
        };
        manual_seed(1);
        let policy = ActorCritic::new(&PolicyConfig::mlp(4, ActionSpace::Discrete(2)), &device()).unwrap();
        let mut ppo = Ppo::new(Vectorized::new(|_| CartPole::v1(), 8).unwrap(), policy, config).unwrap();
        ppo.iterate().unwrap();
        weights(&ppo)
    };
    assert!(trained(0) == trained(0));
    assert!(trained(0) != trained(1));
}

#[test]
fn a_checkpoint_of_something_else_is_refused() {
    let told = |case: &str, other: &str| {
        let mut there = training(case, Mode::Serial).unwrap();
        there.iterate().unwrap();
        let checkpoint = there.checkpoint().unwrap();
        let error = training(other, Mode::Serial).unwrap().restore(&checkpoint).unwrap_err();
        error.to_string()
    };
    assert!(told("mlp", "continuous").contains("normalized"));
    assert!(!told("mlp", "lstm").is_empty());
    assert!(!told("lstm", "gru").is_empty());
    let mut ppo = training("mlp", Mode::Serial).unwrap();
    let other = ppo.checkpoint().unwrap().with_config(serde_json::json!({}));
    assert!(ppo.restore(&other).unwrap_err().to_string().contains("none of PPO"));
}

#[test]
fn what_is_seen_is_learnt() {
    let device = device();
    manual_seed(0);
    let policy = ActorCritic::new(&PolicyConfig::mlp(3, ActionSpace::MultiDiscrete(vec![3, 3])), &device);
    let config = PpoConfig {
        total_steps: 8_000,
        num_steps: 25,
        learning_rate: 3e-3.into(),
        ..PpoConfig::default()
    };
    let envs = Vectorized::new(|_| Copycat { seen: 0, steps: 0 }, 8).unwrap();
    let mut ppo = Ppo::new(envs, policy.unwrap(), config).unwrap();
    while !ppo.is_done() {
        ppo.iterate().unwrap();
    }
    let mean = ppo.mean_return().unwrap();
    assert!(
        mean > 19.0,
        "20 numbers are copied in an episode, {mean} of them rightly"
    );
}

#[test]
fn options_that_make_no_sense_are_told() {
    let told = |config: PpoConfig, part: &str| {
        let policy = ActorCritic::new(&PolicyConfig::mlp(4, ActionSpace::Discrete(2)), &device()).unwrap();
        let envs = Vectorized::new(|_| CartPole::v1(), 3).unwrap();
        let error = Ppo::new(envs, policy, config).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    let default = PpoConfig::default;
    told(
        PpoConfig {
            num_steps: 0,
            ..default()
        },
        "num_steps is 0",
    );
    told(
        PpoConfig {
            num_steps: 1 << 40,
            ..default()
        },
        "3 times 1099511627776 steps are too many",
    );
    told(
        PpoConfig {
            gamma: 1.5,
            ..default()
        },
        "gamma is not from 0 to 1",
    );
    told(
        PpoConfig {
            num_steps: 9,
            ..default()
        },
        "27 steps cannot be cut into 4",
    );
    told(
        PpoConfig {
            segment_len: Some(3),
            ..default()
        },
        "segments of 3",
    );
    told(
        PpoConfig {
            clip: Annealed::Linear(0.1, f64::NAN),
            ..default()
        },
        "clip",
    );
    told(
        PpoConfig {
            normalize_rewards: Some(0.0),
            ..default()
        },
        "normalize_rewards",
    );
    told(
        PpoConfig {
            learning_rate: (-1.0).into(),
            ..default()
        },
        "learning_rate",
    );
    let (freq, init) = ("sde_sample_freq is neither", "mean nothing without use_sde");
    for (use_sde, sde_sample_freq, log_std_init, part) in [
        (true, 0, 0.0, freq),
        (true, -2, 0.0, freq),
        (false, 4, 0.0, init),
        (false, -1, -2.0, init),
        (true, -1, f64::NAN, "log_std_init is not a number"),
    ] {
        let config = PpoConfig {
            use_sde,
            sde_sample_freq,
            log_std_init,
            ..default()
        };
        told(config, part);
    }
    let rewarded = Vectorized::new(|_| GridWorld::new(4).unwrap(), 4).unwrap();
    let policy = ActorCritic::new(&PolicyConfig::mlp(16, ActionSpace::Discrete(4)), &device()).unwrap();
    let config = PpoConfig {
        normalize_observations: Some(10.0),
        ..default()
    };
    let error = Ppo::new(rewarded, policy, config).err().unwrap().to_string();
    assert!(error.contains("have no mean"), "{error}");
}

/// Where what is seen does not change, actions do not either, until other noise is drawn.
#[test]
fn state_dependent_noise_stays_for_some_steps() {
    /// Keeps what was done.
    #[derive(Clone)]
    struct Still {
        done: std::sync::Arc<std::sync::Mutex<Vec<f32>>>,
    }
    impl Env for Still {
        fn observation_space(&self) -> Space {
            Space::boxed(&[-1.0; 2], &[1.0; 2])
        }
        fn action_space(&self) -> Space {
            Space::boxed(&[-100.0], &[100.0])
        }
        fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
            observation.copy_from_slice(&[0.5, -0.5]);
        }
        fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
            self.done.lock().unwrap().push(action[0]);
            observation.copy_from_slice(&[0.5, -0.5]);
            Step::new(0.0, false)
        }
    }
    let changes = |sde_sample_freq| {
        let config = PpoConfig {
            num_steps: 12,
            use_sde: true,
            sde_sample_freq,
            ..PpoConfig::default()
        };
        let done = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let still = Still { done: done.clone() };
        let policy = ActorCritic::new(&PolicyConfig::mlp(2, ActionSpace::Continuous(1)), &device()).unwrap();
        let envs = Vectorized::new(|_| still.clone(), 2).unwrap();
        let mut ppo = Ppo::new(envs, policy.use_sde(0.0).unwrap(), config).unwrap();
        (0..2).for_each(|_| drop(ppo.iterate().unwrap()));
        let done = done.lock().unwrap().clone();
        assert!(done.chunks(2).all(|rows| rows[0] != rows[1]), "each row has its own");
        let of = |row: usize| {
            let own: Vec<f32> = done.iter().skip(row).step_by(2).copied().collect();
            (1..own.len()).filter(|i| own[*i] != own[i - 1]).collect::<Vec<usize>>()
        };
        assert_eq!(of(0), of(1));
        of(0)
    };
    assert_eq!(changes(-1), [12]);
    assert_eq!(changes(5), [5, 10, 12, 17, 22]);
}

#[test]
fn policies_without_state_dependent_noise_are_told() {
    let config = PpoConfig {
        use_sde: true,
        ..PpoConfig::default()
    };
    let policy = |config: &PolicyConfig| ActorCritic::new(config, &device()).unwrap();
    let continuous = PolicyConfig::mlp(3, ActionSpace::Continuous(1));
    let envs = Vectorized::new(|_| Pendulum::v1(), 4).unwrap();
    let error = Ppo::new(envs, policy(&continuous), config)
        .unwrap()
        .iterate()
        .unwrap_err();
    assert!(error.to_string().contains("make it by ActorCritic::use_sde"), "{error}");
    let by_state = PolicyConfig {
        state_dependent_std: true,
        ..continuous
    };
    for other in [by_state, PolicyConfig::mlp(3, ActionSpace::Discrete(2))] {
        let error = policy(&other).use_sde(0.0).err().unwrap().to_string();
        assert!(
            error.contains("for continuous actions without state_dependent_std"),
            "{error}"
        );
    }
}

#[test]
fn a_policy_for_other_actions_or_observations_is_told() {
    let told = |policy: PolicyConfig, part: &str| {
        let policy = ActorCritic::new(&policy, &device()).unwrap();
        let envs = Vectorized::new(|_| Pendulum::v1(), 4).unwrap();
        let error = Ppo::new(envs, policy, PpoConfig::default())
            .unwrap()
            .iterate()
            .unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    told(
        PolicyConfig::mlp(3, ActionSpace::Continuous(2)),
        "among Continuous(2), the environments have Continuous(1)",
    );
    told(
        PolicyConfig::mlp(3, ActionSpace::Discrete(1)),
        "among Discrete(1), the environments have Continuous(1)",
    );
    told(PolicyConfig::mlp(4, ActionSpace::Continuous(1)), "[N, …] with [4] each");
    let policy = ActorCritic::new(&PolicyConfig::mlp(3, ActionSpace::Continuous(1)), &device()).unwrap();
    let (fine, upside_down) = (Space::boxed(&[-1.0; 3], &[1.0; 3]), Space::boxed(&[1.0], &[-1.0]));
    let error = Player::new(&policy, &fine, &upside_down, 1).err().unwrap().to_string();
    assert!(
        error.contains("action_space") && error.contains("between which nothing is"),
        "{error}"
    );
    let nothing = Space::multi_discrete(&[]);
    let error = Player::new(&policy, &nothing, &fine, 1).err().unwrap().to_string();
    assert!(error.contains("the observation_space has no numbers"), "{error}");
}

#[test]
fn the_trained_policy_normalizes_as_the_training_did() {
    let mut ppo = training("continuous", Mode::Serial).unwrap();
    ppo.iterate().unwrap();
    let found = ppo.normalizer().unwrap();
    let mut seen = [0.3, -0.8, 40.0];
    let raw = Tensor::new([seen], &device()).unwrap();
    found.normalize(&mut seen).unwrap();
    let state = PolicyState::new(Vec::new());
    let value = |output: Result<PolicyOutput>| output.unwrap().value().unwrap().to_vec::<f32>().unwrap()[0];
    let inner = value(ppo.policy().forward(&Tensor::new([seen], &device()).unwrap(), &state));
    let whole = value(ppo.trained_policy().unwrap().forward(&raw, &state));
    assert_eq!(seen[2], 10.0, "it is clipped");
    assert!((inner - whole).abs() < 1e-5, "{inner}, {whole}");
    let file = tempfile::NamedTempFile::new().unwrap();
    ppo.save_policy(file.path()).unwrap();
    let names = polygrad_nn::StateDict::load(file.path()).unwrap();
    assert!(
        names.contains("normalizer.mean") && names.contains("policy.actor.weight"),
        "{names:?}"
    );
}

#[test]
fn a_rate_that_is_too_high_ends_in_an_error() {
    let policy = ActorCritic::new(&PolicyConfig::mlp(3, ActionSpace::Continuous(1)), &device()).unwrap();
    let config = PpoConfig {
        learning_rate: 1e30.into(),
        num_steps: 16,
        ..PpoConfig::default()
    };
    let mut ppo = Ppo::new(Vectorized::new(|_| Pendulum::v1(), 4).unwrap(), policy, config).unwrap();
    let error = (0..5).find_map(|_| ppo.iterate().err()).unwrap().to_string();
    assert!(
        error.contains("learning rate") || error.contains("not finite"),
        "{error}"
    );
}
