//! DQN: it learns, only the seed determines the result, and training can be stopped anywhere.

use polygrad_nn::Checkpoint;
use polygrad_nn::models::ActivationFn;
use polygrad_rl::*;
use polygrad_tensor::{Device, Result, Tensor, manual_seed};
use polygrad_train::Learner;

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

fn network(observation: usize, actions: usize, dueling: bool) -> impl Fn() -> Result<QNetwork> {
    let encoder = EncoderConfig::Mlp(MlpEncoderConfig {
        hidden: vec![16],
        activation: ActivationFn::Relu,
        ..MlpEncoderConfig::new(observation)
    });
    move || QNetwork::new(&encoder, actions, dueling, &device())
}

/// A corridor of five fields, with a reward at its right end after at least four steps, and a limit of ten steps.
#[derive(Clone, Default)]
struct Corridor {
    field: usize,
    steps: usize,
}

impl Env for Corridor {
    fn observation_space(&self) -> Space {
        Space::discrete(5)
    }

    fn action_space(&self) -> Space {
        Space::Discrete { n: 2, start: 3 }
    }

    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        *self = Self::default();
        observation[0] = 0.0;
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        self.field = match action[0] as usize {
            3 => self.field.saturating_sub(1),
            _ => self.field + 1,
        };
        self.steps += 1;
        observation[0] = self.field as f32;
        let arrived = self.field == 4;
        Step {
            truncated: !arrived && self.steps == 10,
            ..Step::new(f64::from(u8::from(arrived)), arrived)
        }
    }
}

fn short() -> DqnConfig {
    DqnConfig {
        seed: 3,
        total_steps: 3_000,
        learning_rate: 3e-3.into(),
        buffer_size: 500,
        batch_size: 32,
        learning_starts: 100,
        train_frequency: 2,
        target_frequency: 60,
        gamma: 0.9,
        ..DqnConfig::default()
    }
}

fn in_corridor(config: DqnConfig, envs: usize) -> Result<Dqn> {
    manual_seed(1);
    let dueling = config.dueling;
    Dqn::new(
        Vectorized::new(|_| Corridor::default(), envs)?,
        network(5, 2, dueling),
        config,
    )
}

fn variants() -> [(&'static str, DqnConfig); 5] {
    let with = |change: fn(&mut DqnConfig)| {
        let mut config = short();
        change(&mut config);
        config
    };
    [
        ("plain", short()),
        ("double", with(|x| (x.double, x.huber) = (true, true))),
        ("dueling", with(|x| (x.dueling, x.max_grad_norm) = (true, Some(1.0)))),
        ("three steps", with(|x| x.n_step = 3)),
        ("prioritized", with(|x| x.prioritized = Some(PriorityConfig::default()))),
    ]
}

/// The values of the fields on the way to the right, by the steps that are left: 0.9³, 0.9², 0.9 and 1.
#[test]
fn every_variant_learns_what_actions_are_worth() {
    for (name, config) in variants() {
        let mut dqn = in_corridor(config, 1).unwrap();
        while !dqn.is_done() {
            dqn.iterate().unwrap();
        }
        assert_eq!((dqn.steps(), dqn.refusal()), (3_000, None), "{name}");
        let fields: Vec<f32> = (0..25).map(|i| f32::from(u8::from(i % 6 == 0))).collect();
        let fields = Tensor::from_vec(fields, [5, 5], &device()).unwrap();
        let values = dqn.network().values(&fields).unwrap().to_vec::<f32>().unwrap();
        for field in 0..4 {
            let [left, right] = [values[2 * field], values[2 * field + 1]];
            let expected = 0.9_f32.powi(3 - field as i32);
            assert!(
                (right - expected).abs() < 0.08,
                "{name}, field {field}: {right} for {expected}"
            );
            // Back and forth again: two steps more.
            let expected = 0.9_f32.powi(5 - field as i32 - i32::from(field == 0));
            assert!(
                (left - expected).abs() < 0.12,
                "{name}, field {field}: {left} for {expected}"
            );
        }
        let mut envs = Vectorized::new(|_| Corridor::default(), 2).unwrap();
        let policy = dqn.trained_policy().unwrap();
        let found = evaluate(&*policy, &mut envs, &EvaluateConfig::default()).unwrap();
        assert_eq!((found.mean(), found.mean_length()), (1.0, 4.0), "{name}");
    }
}

/// The bytes of a training's checkpoint, including the replay buffer.
fn bytes(dqn: &Dqn) -> Vec<u8> {
    dqn.checkpoint().unwrap().to_bytes().unwrap()
}

#[test]
fn a_stopped_training_ends_in_the_same_bytes() {
    for (name, config) in variants() {
        let config = DqnConfig {
            total_steps: 600,
            ..config
        };
        let mut whole = in_corridor(config.clone(), 3).unwrap();
        while !whole.is_done() {
            whole.advance().unwrap();
        }
        // Before the first step, before the training starts, and in the middle of an episode.
        let mut part = in_corridor(config.clone(), 3).unwrap();
        for stop in [0, 7, 50] {
            while part.steps() < stop * part.steps_per_iteration() {
                part.advance().unwrap();
            }
            let saved = Checkpoint::from_bytes(&bytes(&part)).unwrap();
            manual_seed(99);
            part = in_corridor(config.clone(), 3).unwrap();
            (0..3).for_each(|_| drop(part.advance().unwrap()));
            part.restore(&saved).unwrap();
        }
        while !part.is_done() {
            part.advance().unwrap();
        }
        assert!(bytes(&part) == bytes(&whole), "{name}");
        assert_eq!(part.mean_return(), whole.mean_return(), "{name}");
        // Another seed gives another training.
        let mut other = in_corridor(DqnConfig { seed: 4, ..config }, 3).unwrap();
        while !other.is_done() {
            other.advance().unwrap();
        }
        assert!(bytes(&other) != bytes(&whole), "{name}");
    }
}

/// Compares the buffer after some steps with a count by hand.
#[test]
fn transitions_end_with_episodes() {
    for n_step in [1, 3] {
        let config = DqnConfig {
            n_step,
            epsilon: 1.0.into(),
            ..short()
        };
        let mut dqn = in_corridor(config, 1).unwrap();
        for _ in 0..100 {
            dqn.iterate().unwrap();
        }
        let replay = dqn.replay();
        assert!((200 - n_step..=200).contains(&replay.len()), "{}", replay.len());
        let field = |x: &[f32]| x.iter().position(|x| *x == 1.0).unwrap();
        let (mut arrived, mut cut) = (0, 0);
        for i in 0..replay.len() {
            let (now, next) = (replay.get(i).unwrap(), replay.get(i + 1));
            let goes_on = next.is_some_and(|next| n_step == 1 && next.observation == now.next_observation);
            if field(now.next_observation) == 4 {
                // The reward belongs to the last of the steps.
                let rewards: Vec<f32> = (0..n_step).map(|k| 0.9_f64.powi(k as i32) as f32).collect();
                assert!(now.discount == 0.0 && rewards.contains(&now.reward), "{now:?}");
                arrived += 1;
            } else {
                let discounts: Vec<f32> = (1..=n_step).map(|k| 0.9_f64.powi(k as i32) as f32).collect();
                assert!(now.reward == 0.0 && discounts.contains(&now.discount), "{now:?}");
                cut += usize::from(!goes_on);
            }
        }
        assert!(arrived > 5 && cut > 5, "{arrived} and {cut}");
    }
}

#[test]
fn bad_options_and_environments_are_told() {
    let told = |result: Result<Dqn>, part: &str| {
        let error = result.err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    for (config, part) in [
        (
            DqnConfig {
                batch_size: 0,
                ..short()
            },
            "batch_size is 0",
        ),
        (DqnConfig { n_step: 0, ..short() }, "n_step is 0"),
        (DqnConfig { gamma: 1.5, ..short() }, "gamma is not from 0 to 1"),
        (
            DqnConfig {
                epsilon: f64::NAN.into(),
                ..short()
            },
            "epsilon is not from 0 to 1",
        ),
        (
            DqnConfig {
                max_grad_norm: Some(0.0),
                ..short()
            },
            "max_grad_norm is not above 0",
        ),
        (
            DqnConfig {
                buffer_size: usize::MAX,
                ..short()
            },
            "transitions are too many",
        ),
    ] {
        told(in_corridor(config, 1), part);
    }
    let pendulum = Vectorized::new(|_| Pendulum::v1(), 1).unwrap();
    told(
        Dqn::new(pendulum, network(3, 1, false), short()),
        "one of several actions",
    );
    let game = Vectorized::<_, 2>::new(|_| ConnectFour::new(), 1).unwrap();
    told(
        Dqn::new(game, network(126, 7, false), short()),
        "not all actions are always allowed",
    );
    // A checkpoint of other environments, and of another algorithm.
    let mut dqn = in_corridor(short(), 1).unwrap();
    let other = in_corridor(short(), 2).unwrap().checkpoint().unwrap();
    assert!(dqn.restore(&other).is_err());
    let config = PpoConfig {
        total_steps: 64,
        num_steps: 8,
        ..PpoConfig::default()
    };
    let policy = ActorCritic::new(&PolicyConfig::mlp(5, ActionSpace::Discrete(2)), &device()).unwrap();
    let ppo = Ppo::new(Vectorized::new(|_| Corridor::default(), 4).unwrap(), policy, config).unwrap();
    let error = dqn.restore(&Ppo::checkpoint(&ppo).unwrap()).unwrap_err().to_string();
    assert!(error.contains("it is none of DQN"), "{error}");
}
