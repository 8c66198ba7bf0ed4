//! SAC: that it learns, that nothing but the seed decides how, and that it can be stopped anywhere.

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

/// By actions of chance −1,200 is reached, and −1,600 by bad policies.
#[test]
fn pendulums_are_swung_up() {
    for algorithm in [sac(|_| ())] {
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

/// Short ones, that learn most of the time.
fn variants() -> Vec<(&'static str, Algorithm)> {
    let short = |change: fn(&mut SacConfig)| {
        sac(|config| {
            (config.total_steps, config.learning_starts, config.batch_size) = (120, 20, 16);
            change(config);
        })
    };
    vec![
        ("sac", short(|_| ())),
        ("a fixed temperature", short(|x| x.temperature = Some(0.2))),
        ("two steps", short(|x| (x.train_frequency, x.gradient_steps) = (2, 3))),
        ("a small buffer", short(|x| x.buffer_size = 50)),
    ]
}

/// The bytes of a training's checkpoint, the replay buffer among them.
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
        // Before the first step, before learning, and between steps of the policy.
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
fn every_step_is_replayed() {
    let Algorithm::Sac(config) = sac(|config| (config.total_steps, config.learning_starts) = (60, 20)) else {
        panic!("another algorithm");
    };
    let EncoderConfig::Mlp(encoder) = policy(&[16]).encoder else {
        panic!("another encoder");
    };
    let envs = Vectorized::new(|_| Pendulum::v1(), 1).unwrap();
    let mut sac = Sac::new(envs, &encoder, config, &device()).unwrap();
    while !sac.is_done() {
        sac.iterate().unwrap();
    }
    assert_eq!((sac.steps(), sac.refusal()), (60, None));
    // Actions are within their bounds, and not at them alone.
    let replay = sac.replay();
    let actions: Vec<f32> = (0..replay.len()).map(|i| replay.get(i).unwrap().action[0]).collect();
    assert!(actions.iter().all(|x| x.abs() <= 2.0) && actions.iter().any(|x| x.abs() < 1.0));
    assert!(actions.iter().any(|x| x.abs() > 1.0), "{actions:?}");
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
    let output = policy.forward(&seen, &policy.initial_state(1).unwrap()).unwrap();
    let error = output.action.distribution(None).unwrap_err().to_string();
    assert!(error.contains("draws no actions"), "{error}");
}
