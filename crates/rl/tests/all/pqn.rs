//! PQN: it learns, and training can be stopped anywhere.

use polygrad_nn::Checkpoint;
use polygrad_nn::models::ActivationFn;
use polygrad_rl::*;
use polygrad_tensor::{Device, Result, Tensor, manual_seed};
use polygrad_train::Learner;

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

/// A corridor of five fields, a reward at its right end, and a limit of ten steps.
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
        Space::discrete(2)
    }

    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        *self = Self::default();
        observation[0] = 0.0;
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        self.field = match action[0] == 0.0 {
            true => self.field.saturating_sub(1),
            false => self.field + 1,
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

fn short() -> PqnConfig {
    PqnConfig {
        seed: 3,
        total_steps: 12_000,
        num_steps: 10,
        learning_rate: Annealed::Linear(5e-3, 0.0),
        gamma: 0.9,
        ..PqnConfig::default()
    }
}

fn network(outputs: usize) -> QNetwork {
    let encoder = EncoderConfig::Mlp(MlpEncoderConfig {
        hidden: vec![16],
        activation: ActivationFn::Relu,
        layer_norm: true,
        ..MlpEncoderConfig::new(5)
    });
    QNetwork::orthogonal(&encoder, outputs, &device()).unwrap()
}

fn in_corridor(config: PqnConfig) -> Result<Pqn> {
    manual_seed(1);
    Pqn::new(Vectorized::new(|_| Corridor::default(), 6)?, network(2), config)
}

/// The values of the fields on the way to the right, by the steps that are left: 0.9³, 0.9², 0.9 and 1. An episode that
/// is cut short still has a value; otherwise those of the first fields would be less.
#[test]
fn it_learns_what_actions_are_worth() {
    let config = PqnConfig {
        q_lambda: 0.3,
        epsilon: 1.0.into(),
        ..short()
    };
    let mut pqn = in_corridor(config).unwrap();
    while !pqn.is_done() {
        pqn.iterate().unwrap();
    }
    assert_eq!((pqn.steps(), pqn.refusal()), (12_000, None));
    let mut greedy = in_corridor(short()).unwrap();
    while !greedy.is_done() {
        greedy.iterate().unwrap();
    }
    let fields: Vec<f32> = (0..25).map(|i| f32::from(u8::from(i % 6 == 0))).collect();
    let fields = Tensor::from_vec(fields, [5, 5], &device()).unwrap();
    let values = greedy.network().values(&fields).unwrap().to_vec::<f32>().unwrap();
    for field in 0..4 {
        let (found, expected) = (values[2 * field + 1], 0.9_f32.powi(3 - field as i32));
        assert!((found - expected).abs() < 0.1, "field {field}: {found} for {expected}");
    }
    for trained in [pqn, greedy] {
        let mut envs = Vectorized::new(|_| Corridor::default(), 2).unwrap();
        let policy = trained.trained_policy().unwrap();
        let found = evaluate(&*policy, &mut envs, &EvaluateConfig::default()).unwrap();
        assert_eq!((found.mean(), found.mean_length()), (1.0, 4.0));
    }
}

#[test]
fn a_training_goes_on_bit_for_bit() {
    let bytes = |checkpoint: &Checkpoint| {
        let file = tempfile::NamedTempFile::new().unwrap();
        checkpoint.save(file.path()).unwrap();
        std::fs::read(file.path()).unwrap()
    };
    let config = PqnConfig {
        total_steps: 1_800,
        ..short()
    };
    let mut whole = in_corridor(config.clone()).unwrap();
    let mut parts = in_corridor(config.clone()).unwrap();
    let mut rates = Vec::new();
    for iteration in 0..30 {
        rates.push(whole.advance().unwrap().learning_rate);
        parts.advance().unwrap();
        if iteration % 7 == 3 {
            let checkpoint = parts.checkpoint().unwrap();
            parts = in_corridor(config.clone()).unwrap();
            parts.restore(&checkpoint).unwrap();
        }
    }
    assert!(whole.is_done() && parts.is_done());
    assert!(bytes(&whole.checkpoint().unwrap()) == bytes(&parts.checkpoint().unwrap()));
    // As in CleanRL: the full rate first, and a rest at the end.
    assert_eq!(rates[0], 5e-3);
    assert!((rates[29] - 5e-3 / 30.0).abs() < 1e-12);
}

#[test]
fn what_cannot_be_learnt_is_told() {
    let refused = |change: fn(&mut PqnConfig)| {
        let mut config = short();
        change(&mut config);
        in_corridor(config).err().unwrap().to_string()
    };
    assert!(refused(|config| config.q_lambda = 1.5).contains("q_lambda is not from 0 to 1"));
    assert!(refused(|config| config.num_steps = 0).contains("num_steps is not at least 1"));
    assert!(refused(|config| config.num_steps = 1 << 40).contains("steps are too many"));
    assert!(refused(|config| config.num_minibatches = 7).contains("60 steps cannot be cut into 7 equal minibatches"));
    let envs = || Vectorized::new(|_| Corridor::default(), 6).unwrap();
    let error = Pqn::new(envs(), network(3), short()).err().unwrap().to_string();
    assert!(
        error.contains("PQN: the network chooses among 3 actions, the environments have 2"),
        "{error}"
    );
    let game = Vectorized::<_, 2>::new(|_| TicTacToe::new(), 3).unwrap();
    let error = Pqn::new(game, network(9), short()).err().unwrap().to_string();
    assert!(error.contains("not all actions are always allowed"), "{error}");
    let error = Pqn::new(Vectorized::new(|_| Pendulum::v1(), 6).unwrap(), network(2), short());
    assert!(
        error
            .err()
            .unwrap()
            .to_string()
            .contains("it chooses one of several actions")
    );
}
