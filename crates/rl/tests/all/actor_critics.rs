//! SAC and TD3: they learn, only the seed determines the result, and training can be stopped anywhere.

use polygrad_nn::Checkpoint;
use polygrad_nn::models::ActivationFn;
use polygrad_rl::zoo::Algorithm;
use polygrad_rl::*;
use polygrad_tensor::{Device, Result, manual_seed};

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

fn policy(hidden: &[usize]) -> PolicyConfig {
    let encoder = MlpEncoderConfig {
        hidden: hidden.to_vec(),
        activation: ActivationFn::Relu,
        ..MlpEncoderConfig::new(3)
    };
    PolicyConfig::new(EncoderConfig::Mlp(encoder), ActionSpace::Continuous(1))
}

fn in_pendulum(algorithm: &Algorithm, hidden: &[usize], envs: usize) -> Result<Box<dyn Agent>> {
    manual_seed(1);
    let envs = Box::new(Vectorized::new(|_| Pendulum::v1(), envs)?);
    algorithm.agent(envs, &policy(hidden), &device(), None)
}

fn sac(change: impl FnOnce(&mut SacConfig)) -> Algorithm {
    let mut config = SacConfig {
        seed: 3,
        total_steps: 8_000,
        learning_rate: 2e-3.into(),
        critic_learning_rate: 2e-3.into(),
        buffer_size: 10_000,
        batch_size: 64,
        learning_starts: 500,
        ..SacConfig::default()
    };
    change(&mut config);
    Algorithm::Sac(config)
}

fn td3(change: impl FnOnce(&mut Td3Config)) -> Algorithm {
    let mut config = Td3Config {
        seed: 3,
        total_steps: 8_000,
        learning_rate: 2e-3.into(),
        buffer_size: 10_000,
        batch_size: 64,
        learning_starts: 500,
        gamma: 0.98,
        ..Td3Config::default()
    };
    change(&mut config);
    Algorithm::Td3(config)
}

/// Random actions reach −1,200, and bad policies −1,600.
#[test]
fn pendulums_are_swung_up() {
    for algorithm in [sac(|_| ()), td3(|_| ())] {
        let started = std::time::Instant::now();
        let mut agent = in_pendulum(&algorithm, &[64, 64], 1).unwrap();
        while !agent.is_done() {
            agent.advance().unwrap();
        }
        let name = agent.algorithm();
        let mut envs = Vectorized::new(|_| Pendulum::v1(), 10).unwrap();
        let policy = agent.trained_policy().unwrap();
        let config = EvaluateConfig {
            episodes: 50,
            ..EvaluateConfig::default()
        };
        let found = evaluate(&*policy, &mut envs, &config).unwrap();
        println!("{name}: {:.1} after {:.1?}", found.mean(), started.elapsed());
        assert!(found.mean() > -200.0, "{name}: {:.1}", found.mean());
    }
}

/// Short trainings that learn most of the time.
fn variants() -> Vec<(&'static str, Algorithm)> {
    let short = |change: fn(&mut SacConfig)| {
        sac(|config| {
            (config.total_steps, config.learning_starts, config.batch_size) = (120, 20, 16);
            change(config);
        })
    };
    let short_td3 = |change: fn(&mut Td3Config)| {
        td3(|config| {
            (config.total_steps, config.learning_starts, config.batch_size) = (120, 20, 16);
            change(config);
        })
    };
    let walk = ExplorationNoise::OrnsteinUhlenbeck(0.5);
    vec![
        ("td3", short_td3(|_| ())),
        (
            "td3 with a walk",
            short_td3(|x| x.exploration_noise = ExplorationNoise::OrnsteinUhlenbeck(0.5)),
        ),
        (
            "three steps",
            short_td3(|x| (x.gradient_steps, x.policy_frequency) = (3, 2)),
        ),
        (
            "sac with a walk",
            sac(|x| {
                (x.total_steps, x.learning_starts, x.batch_size) = (120, 20, 16);
                x.exploration_noise = Some(walk);
            }),
        ),
        (
            "state-dependent exploration",
            short(|x| (x.use_sde, x.train_frequency, x.sde_sample_freq) = (true, 3, 2)),
        ),
        ("sac", short(|_| ())),
        ("a fixed temperature", short(|x| x.temperature = Some(0.2))),
        ("two steps", short(|x| (x.train_frequency, x.gradient_steps) = (2, 3))),
        ("a small buffer", short(|x| x.buffer_size = 50)),
    ]
}

/// The bytes of a training's checkpoint, including the replay buffer.
fn bytes(agent: &dyn Agent) -> Vec<u8> {
    agent.checkpoint().unwrap().to_bytes().unwrap()
}

#[test]
fn a_stopped_training_ends_in_the_same_bytes() {
    for (name, algorithm) in variants() {
        let begin = |algorithm: &Algorithm| in_pendulum(algorithm, &[16], 2).unwrap();
        let mut whole = begin(&algorithm);
        let mut told = Vec::new();
        while !whole.is_done() {
            told.push(whole.advance().unwrap().metrics);
        }
        // Before the first step, before the training starts, and between steps of the policy.
        let mut part = begin(&algorithm);
        let mut again = Vec::new();
        for stop in [0, 6, 36, 58] {
            while part.steps() < stop {
                again.push(part.advance().unwrap().metrics);
            }
            let saved = Checkpoint::from_bytes(&bytes(&*part)).unwrap();
            manual_seed(99);
            part = begin(&algorithm);
            (0..3).for_each(|_| drop(part.advance().unwrap()));
            part.restore(&saved).unwrap();
        }
        while !part.is_done() {
            again.push(part.advance().unwrap().metrics);
        }
        assert!(bytes(&*part) == bytes(&*whole), "{name}");
        assert_eq!(format!("{again:?}"), format!("{told:?}"), "{name}");
        let mut other = algorithm.clone();
        *other.seed_mut() = 4;
        let mut other = begin(&other);
        while !other.is_done() {
            other.advance().unwrap();
        }
        assert!(bytes(&*other) != bytes(&*whole), "{name}");
    }
}

#[test]
fn every_step_is_replayed_and_every_action_within_bounds() {
    let (Algorithm::Sac(sac), Algorithm::Td3(td3)) = (
        sac(|config| (config.total_steps, config.learning_starts) = (60, 20)),
        td3(|config| (config.total_steps, config.learning_starts) = (60, 20)),
    ) else {
        panic!("other algorithms");
    };
    let EncoderConfig::Mlp(encoder) = policy(&[16]).encoder else {
        panic!("another encoder");
    };
    let envs = || Vectorized::new(|_| Pendulum::v1(), 1).unwrap();
    let mut sac = Sac::new(envs(), &encoder, sac, &device()).unwrap();
    let mut td3 = Td3::new(envs(), &encoder, td3, &device()).unwrap();
    for _ in 0..60 {
        sac.iterate().unwrap();
        td3.iterate().unwrap();
    }
    assert_eq!((sac.steps(), sac.refusal()), (60, None));
    assert_eq!((td3.steps(), td3.refusal()), (60, None));
    for replay in [sac.replay(), td3.replay()] {
        let actions: Vec<f32> = (0..replay.len()).map(|i| replay.get(i).unwrap().action[0]).collect();
        assert!(actions.iter().all(|x| x.abs() <= 2.0) && actions.iter().any(|x| x.abs() < 1.0));
        assert!(actions.iter().any(|x| x.abs() > 1.0), "{actions:?}");
    }
}

/// Without learning, the differences from the policy's actions are the noise: independent numbers, or a walk whose
/// steps have 0.1 times its size, and which restarts with each episode.
#[test]
fn noise_is_of_its_kind() {
    let steps = |noise| {
        let config = Td3Config {
            total_steps: 2_000,
            learning_starts: 1,
            batch_size: 2,
            learning_rate: 0.0.into(),
            exploration_noise: noise,
            ..Td3Config::default()
        };
        let mut td3 = Td3::new(
            Vectorized::new(|_| Pendulum::v1(), 1).unwrap(),
            &MlpEncoderConfig {
                hidden: vec![4],
                ..MlpEncoderConfig::new(3)
            },
            config,
            &device(),
        )
        .unwrap();
        while !td3.is_done() {
            td3.iterate().unwrap();
        }
        let (replay, policy) = (td3.replay(), &td3.networks().actor);
        let noise = |i: usize| {
            let seen = replay.get(i).unwrap();
            let observation = polygrad_tensor::Tensor::from_vec(seen.observation.to_vec(), [1, 3], &device()).unwrap();
            let own = policy.action(&observation).unwrap().to_vec::<f32>().unwrap()[0];
            f64::from(seen.action[0] - own) / 2.0
        };
        (1..2_000).map(noise).collect::<Vec<f64>>()
    };
    let std = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
    let apart = |x: &[f64]| x.windows(2).map(|x| x[1] - x[0]).collect::<Vec<f64>>();
    let gaussian = steps(ExplorationNoise::Gaussian(0.1));
    assert!((std(&gaussian) - 0.1).abs() < 0.01, "{}", std(&gaussian));
    assert!((std(&apart(&gaussian)) - 0.1 * 2.0_f64.sqrt()).abs() < 0.015);
    let walk = steps(ExplorationNoise::OrnsteinUhlenbeck(0.1));
    // The first steps of episodes of 200; the first episode began before there was noise.
    let firsts: Vec<f64> = walk.iter().skip(199).step_by(200).copied().collect();
    assert!(firsts.iter().all(|x| x.abs() < 0.04), "{firsts:?}");
    let within: Vec<f64> = walk[199..].chunks(200).flat_map(apart).collect();
    assert!((std(&within) - 0.01).abs() < 0.001, "{}", std(&within));
    assert!(std(&walk) > 0.05, "{}", std(&walk));
}

#[test]
fn bad_options_and_environments_are_told() {
    let told = |result: Result<Box<dyn Agent>>, part: &str| {
        let error = result.err().unwrap();
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.to_string().contains("SAC"), "{error}");
    };
    let with = |change: fn(&mut SacConfig)| in_pendulum(&sac(change), &[16], 1);
    told(with(|x| x.policy_frequency = 0), "policy_frequency is not at least 1");
    told(with(|x| x.tau = 1.5), "tau is not from 0 to 1");
    told(with(|x| x.temperature = Some(0.0)), "temperature is not above 0");
    told(
        with(|x| x.target_entropy = Some(f64::NAN)),
        "target_entropy is not a number",
    );
    told(
        with(|x| x.critic_learning_rate = (-1.0).into()),
        "critic_learning_rate is not at least 0",
    );
    told(with(|x| x.batch_size = 0), "batch_size is 0");
    told(with(|x| x.log_std_init = -2.0), "mean nothing without use_sde");
    told(
        with(|x| (x.use_sde, x.sde_sample_freq) = (true, 0)),
        "sde_sample_freq is neither at least 1 nor -1",
    );
    told(
        with(|x| (x.use_sde, x.log_std_init) = (true, f64::INFINITY)),
        "log_std_init is not a number",
    );
    told(
        with(|x| x.exploration_noise = Some(ExplorationNoise::Gaussian(-1.0))),
        "exploration_noise is not at least 0",
    );
    for (change, part) in [
        (
            (|x| x.policy_noise = -1.0) as fn(&mut Td3Config),
            "policy_noise is not at least 0",
        ),
        (|x| x.noise_clip = f64::NAN, "noise_clip is not at least 0"),
        (|x| x.policy_frequency = 0, "policy_frequency is not at least 1"),
        (|x| x.tau = -0.1, "tau is not from 0 to 1"),
        (
            |x| x.exploration_noise = ExplorationNoise::Gaussian(f64::NAN),
            "exploration_noise is not",
        ),
    ] {
        let error = in_pendulum(&td3(change), &[16], 1).err().unwrap().to_string();
        assert!(error.contains(part) && error.contains("TD3"), "{error}");
    }
    told(with(|x| x.total_steps = 500), "nothing would be learnt");
    let cart_pole = || Box::new(Vectorized::new(|_| CartPole::v1(), 1).unwrap());
    let algorithm = sac(|_| ());
    told(
        algorithm.agent(cart_pole(), &policy(&[16]), &device(), None),
        "numbers within bounds",
    );
    let discrete = PolicyConfig {
        action: ActionSpace::Discrete(2),
        ..policy(&[16])
    };
    told(
        algorithm.agent(cart_pole(), &discrete, &device(), None),
        "numbers within bounds",
    );
    let memory = PolicyConfig {
        memory: Some(MemoryConfig::new(MemoryKind::Gru, 4)),
        ..policy(&[16])
    };
    told(
        algorithm.agent(cart_pole(), &memory, &device(), None),
        "remembers nothing",
    );
    let images = PolicyConfig::new(
        EncoderConfig::Cnn(CnnEncoderConfig::new([1, 84, 84])),
        ActionSpace::Continuous(1),
    );
    told(algorithm.agent(cart_pole(), &images, &device(), None), "no images");
    // A checkpoint of other networks, and one of another algorithm.
    let mut agent = in_pendulum(&algorithm, &[16], 1).unwrap();
    let other = in_pendulum(&algorithm, &[8], 1).unwrap().checkpoint().unwrap();
    assert!(agent.restore(&other).is_err());
    let Algorithm::Ppo(config) = zoo::find("pendulum").unwrap().preset(None, None).unwrap().algorithm else {
        panic!("another algorithm");
    };
    let envs = Vectorized::new(|_| Pendulum::v1(), 4).unwrap();
    let ppo = Ppo::new(envs, ActorCritic::new(&policy(&[16]), &device()).unwrap(), config).unwrap();
    let error = agent.restore(&Ppo::checkpoint(&ppo).unwrap()).unwrap_err().to_string();
    assert!(error.contains("it is none of SAC"), "{error}");
}

/// Rows explore by matrices of their own, and means are clipped.
#[test]
fn a_policy_explores_by_the_state() {
    let policy = BoundedPolicy::new(&MlpEncoderConfig::new(3), 2, true, &device()).unwrap();
    let policy = policy.use_sde(-0.5).unwrap();
    assert_eq!(policy.noise_shape(7), [64, 2]);
    policy.set_bounds(&[-1.0, 0.0], &[1.0, 4.0]).unwrap();
    manual_seed(2);
    let randn = |shape: &[usize]| polygrad_tensor::Tensor::randn(shape.to_vec(), &device()).unwrap();
    let (seen, normal) = (randn(&[3, 3]), randn(&[3, 64, 2]));
    let matrices = policy.noise_matrices(&normal, 3).unwrap();
    let explored = policy.explore(&seen, &matrices).unwrap();
    for row in 0..3 {
        let own = normal.narrow(0, row, 1).unwrap().squeeze(0).unwrap();
        let (drawn, _) = policy.draw(&seen, &own).unwrap();
        let apart = drawn.sub(&explored).unwrap().narrow(0, row, 1).unwrap();
        assert!(apart.abs().unwrap().to_vec::<f32>().unwrap().iter().all(|x| *x < 1e-5));
    }
    policy
        .mean
        .bias
        .as_ref()
        .unwrap()
        .set(&polygrad_tensor::Tensor::full([2], 50.0, &device()).unwrap())
        .unwrap();
    let most = 2.0_f32.tanh();
    for action in policy.action(&seen).unwrap().to_vec::<f32>().unwrap().chunks(2) {
        assert!((action[0] - most).abs() < 1e-5 && (action[1] - 2.0 * most - 2.0).abs() < 1e-5);
    }
}

/// Of an action without bounds, and a policy that draws nothing.
#[test]
fn a_policy_within_bounds_says_what_it_cannot() {
    let encoder = MlpEncoderConfig::new(3);
    let policy = BoundedPolicy::new(&encoder, 2, false, &device()).unwrap();
    let error = policy
        .set_bounds(&[0.0, f32::NEG_INFINITY], &[1.0, 1.0])
        .unwrap_err()
        .to_string();
    assert!(error.contains("an action has no bounds"), "{error}");
    assert!(policy.set_bounds(&[0.0], &[1.0]).is_err());
    assert!(BoundedPolicy::new(&encoder, 0, true, &device()).is_err());
    let seen = polygrad_tensor::Tensor::ones([1, 3], &device()).unwrap();
    assert!(policy.draw(&seen, &policy.action(&seen).unwrap()).is_err());
    assert!(policy.noise_matrices(&seen, 1).is_err());
    let output = policy.forward(&seen, &policy.initial_state(1).unwrap()).unwrap();
    let error = output.action.distribution(None).unwrap_err().to_string();
    assert!(error.contains("draws no actions"), "{error}");
}
