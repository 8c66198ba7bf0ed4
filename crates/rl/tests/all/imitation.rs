//! Behaviour cloning and distillation: losses match PyTorch's, the learned policy balances a pole, and a training can
//! be stopped anywhere.

use std::path::PathBuf;

use polygrad_nn::optim::{Adam, AdamConfig, Optimizer};
use polygrad_nn::{Checkpoint, Module, StateDict};
use polygrad_rl::zoo::{self, Algorithm, Lesson, Stepping};
use polygrad_rl::*;
use polygrad_tensor::{Backend, DType, Device, Result, Tensor, manual_seed};
use polygrad_train::Learner;

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

fn policy(hidden: usize) -> PolicyConfig {
    let encoder = MlpEncoderConfig {
        hidden: vec![hidden],
        ..MlpEncoderConfig::new(4)
    };
    PolicyConfig::new(EncoderConfig::Mlp(encoder), ActionSpace::Discrete(2))
}

fn student(hidden: usize) -> ActorCritic {
    manual_seed(1);
    ActorCritic::actor(&policy(hidden), &device()).unwrap()
}

fn cart_pole(envs: usize) -> Vectorized<TimeLimit<CartPole>> {
    Vectorized::new(|_| CartPole::v1(), envs).unwrap()
}

/// `count` steps of a rule that balances the pole.
fn demonstrations(count: usize) -> Demonstrations {
    let mut envs = cart_pole(1);
    let mut found = Demonstrations::new(envs.observation_space(), envs.action_space());
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(5, &mut buffers.observations).unwrap();
    for _ in 0..count {
        let [x, speed, angle, turning] = buffers.observations[..] else {
            unreachable!()
        };
        let action = f32::from(u8::from(0.05 * x + 0.2 * speed + 2.0 * angle + turning > 0.0));
        found.push(&buffers.observations, &[action]).unwrap();
        envs.step(&[action], &mut buffers.as_mut()).unwrap();
        assert!(!buffers.terminated[0], "the rule lets the pole fall");
    }
    found
}

fn cloning(config: BcConfig, count: usize) -> Result<BehaviorCloning> {
    BehaviorCloning::new(cart_pole(2), student(32), demonstrations(count), config)
}

fn mean(policy: &dyn Policy) -> f64 {
    evaluate(policy, &mut cart_pole(10), &EvaluateConfig::default())
        .unwrap()
        .mean()
}

fn bytes(learner: &dyn Learner) -> Vec<u8> {
    learner.checkpoint().unwrap().to_bytes().unwrap()
}

#[test]
fn recorded_steps_teach_a_policy_and_it_a_smaller_one() {
    let config = BcConfig {
        total_steps: 20_000,
        ..BcConfig::default()
    };
    let mut cloning = cloning(config, 4_000).unwrap();
    assert!(mean(cloning.policy()) < 100.0);
    while !cloning.is_done() {
        cloning.iterate().unwrap();
    }
    let cloned = mean(cloning.policy());
    assert!(cloned >= 475.0, "{cloned}");
    assert_eq!((cloning.refusal(), cloning.algorithm()), (None, "BC"));
    assert!(cloning.mean_return().unwrap() > 100.0);

    let teacher = ActorCritic::actor(&policy(32), &device()).unwrap();
    teacher
        .load_state_dict(&cloning.policy().state_dict().unwrap(), true)
        .unwrap();
    let config = DistillConfig {
        total_steps: 20_000,
        ..DistillConfig::default()
    };
    let mut distillation = Distillation::new(cart_pole(2), student(8), Box::new(teacher), config).unwrap();
    assert!(mean(distillation.policy()) < 100.0);
    let begun = distillation.num_parameters();
    assert!(3 * begun < cloning.num_parameters(), "{begun}");
    while !distillation.is_done() {
        distillation.iterate().unwrap();
    }
    let distilled = mean(distillation.policy());
    assert!(distilled >= 475.0, "{distilled}");
    assert_eq!(distillation.refusal(), None);
}

#[test]
fn numbers_are_learnt_from_a_policy_that_draws_and_from_one_that_does_not() {
    let pendulum = || Vectorized::new(|_| Pendulum::v1(), 2).unwrap();
    let config = PolicyConfig::mlp(3, ActionSpace::Continuous(1));
    manual_seed(2);
    let encoder = MlpEncoderConfig::new(3);
    let fixed = BoundedPolicy::new(&encoder, 1, false, &device()).unwrap();
    fixed.set_bounds(&[-2.0], &[2.0]).unwrap();
    let drawn = ActorCritic::new(&config, &device()).unwrap();
    for teacher in [Box::new(fixed) as Box<dyn Policy>, Box::new(drawn)] {
        let settings = DistillConfig {
            total_steps: 4_000,
            ..DistillConfig::default()
        };
        let policy = ActorCritic::actor(&config, &device()).unwrap();
        let mut training = Distillation::new(pendulum(), policy, teacher, settings).unwrap();
        let mut losses = Vec::new();
        while !training.is_done() {
            losses.push(training.iterate().unwrap().loss);
        }
        let known: Vec<f64> = losses.into_iter().filter(|loss| loss.is_finite()).collect();
        assert!(known[known.len() - 1] < known[0], "{known:?}");
    }
}

#[test]
fn a_stopped_training_ends_in_the_same_bytes() {
    let config = BcConfig {
        seed: 3,
        total_steps: 2_000,
        learning_rate: Annealed::Linear(1e-2, 0.0),
        train_frequency: 20,
        gradient_steps: 5,
        l2_weight: 1e-4,
        ..BcConfig::default()
    };
    stops(|| cloning(config.clone(), 500).unwrap());
    let config = DistillConfig {
        seed: 3,
        total_steps: 2_000,
        learning_starts: 300,
        train_frequency: 20,
        gradient_steps: 5,
        ..DistillConfig::default()
    };
    stops(|| {
        let teacher = student(16);
        Distillation::new(cart_pole(2), student(4), Box::new(teacher), config.clone()).unwrap()
    });
}

fn stops<L: Learner>(make: impl Fn() -> L) {
    let finish = |learner: &mut L| {
        while !learner.is_done() {
            learner.advance().unwrap();
        }
    };
    let mut whole = make();
    finish(&mut whole);
    let mut part = make();
    for stop in [0, 280, 1_200] {
        while part.steps() < stop {
            part.advance().unwrap();
        }
        let saved = Checkpoint::from_bytes(&bytes(&part)).unwrap();
        manual_seed(99);
        part = make();
        part.advance().unwrap();
        part.restore(&saved).unwrap();
    }
    finish(&mut part);
    assert!(bytes(&part) == bytes(&whole));
}

#[test]
fn what_does_not_fit_is_told() {
    let told = |result: Result<()>, part: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let bc = |config: BcConfig, count: usize| cloning(config, count).map(drop);
    told(bc(BcConfig::default(), 0), "there are no demonstrations");
    let with = |change: fn(&mut BcConfig)| {
        let mut config = BcConfig::default();
        change(&mut config);
        config
    };
    told(bc(with(|x| x.batch_size = 0), 5), "batch_size is not at least 1");
    told(bc(with(|x| x.gradient_steps = 0), 5), "gradient_steps is 0");
    told(bc(with(|x| x.ent_weight = -1.0), 5), "ent_weight is not at least 0");
    told(bc(with(|x| x.l2_weight = f64::NAN), 5), "l2_weight is not at least 0");

    let acrobot = Vectorized::new(|_| Acrobot::v1(), 1).unwrap();
    let other = BehaviorCloning::new(acrobot, student(4), demonstrations(5), BcConfig::default());
    told(other.map(drop), "an environment with other observations or actions");
    let mut one = demonstrations(1);
    told(one.push(&[0.0; 4], &[2.0]), "the action [2.0] is not in its space");
    told(one.push(&[0.0; 3], &[1.0]), "observation");

    let distill = |policy: ActorCritic, teacher: Box<dyn Policy>, config: DistillConfig| {
        Distillation::new(cart_pole(1), policy, teacher, config).map(drop)
    };
    let config = DistillConfig::default;
    let hot = DistillConfig {
        temperature: 0.0,
        ..config()
    };
    told(
        distill(student(4), Box::new(student(4)), hot),
        "temperature is not above 0",
    );
    let beta = DistillConfig {
        beta: 2.0.into(),
        ..config()
    };
    told(
        distill(student(4), Box::new(student(4)), beta),
        "beta is not from 0 to 1",
    );
    let remembers = PolicyConfig {
        memory: Some(MemoryConfig::new(MemoryKind::Gru, 4)),
        ..policy(4)
    };
    let remembers = || ActorCritic::actor(&remembers, &device()).unwrap();
    told(
        distill(student(4), Box::new(remembers()), config()),
        "the teacher remembers",
    );
    told(
        distill(remembers(), Box::new(student(4)), config()),
        "the policy remembers",
    );
    let three = PolicyConfig {
        action: ActionSpace::Discrete(3),
        ..policy(4)
    };
    let three = || ActorCritic::actor(&three, &device()).unwrap();
    told(
        distill(three(), Box::new(student(4)), config()),
        "the policy chooses among Discrete(3)",
    );
    let mut late = Distillation::new(cart_pole(1), student(4), Box::new(three()), config()).unwrap();
    told(late.iterate().map(drop), "the policy chooses among Discrete(3)");

    let game = zoo::find("tic-tac-toe").unwrap();
    let envs = game.make(1, Stepping::Serial).unwrap();
    let lesson = Demonstrations::new(envs.observation_space(), envs.action_space());
    let bc = game.preset(Some("bc"), None).unwrap();
    let taught = bc
        .algorithm
        .taught(envs, &bc.policy, &device(), Lesson::Demonstrations(lesson));
    told(taught.map(drop), "there are no demonstrations");
    let envs = game.make(1, Stepping::Serial).unwrap();
    told(
        bc.algorithm.agent(envs, &bc.policy, &device(), None).map(drop),
        "it learns from others",
    );
    let wrong = Algorithm::Distill(config());
    let envs = game.make(1, Stepping::Serial).unwrap();
    let lesson = Demonstrations::new(envs.observation_space(), envs.action_space());
    let taught = wrong.taught(envs, &bc.policy, &device(), Lesson::Demonstrations(lesson));
    told(taught.map(drop), "distill does not learn from that");

    // A checkpoint of other demonstrations.
    let saved = cloning(BcConfig::default(), 500).unwrap().checkpoint().unwrap();
    let mut other = cloning(BcConfig::default(), 400).unwrap();
    told(other.restore(&saved).map(drop), "by other demonstrations");
}

/// For sums of some dozens of terms in f64.
const EXACT: f64 = 1e-12;

fn near(name: &str, found: &Tensor<impl Backend>, expected: &[f64]) {
    let found = found.to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() <= EXACT * largest,
            "{name}: {found} for {expected}"
        );
    }
}

/// Recorded by scripts/make_imitation_values.py, whose head describes the contents.
#[test]
fn updates_are_pytorchs() {
    let folder: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into();
    let case = StateDict::load(folder.join("tests/data/imitation/updates.safetensors")).unwrap();
    let device = Device::<polygrad_cpu::Cpu>::default();
    let tensor = |name: &str| Tensor::from_host(case.get(name).unwrap().clone(), &device).unwrap();
    let numbers = |name: &str| case.get(name).unwrap().to_f64_vec();
    for (space, key) in [
        (ActionSpace::Discrete(3), "discrete"),
        (ActionSpace::Continuous(2), "continuous"),
    ] {
        let encoder = MlpEncoderConfig {
            hidden: vec![5],
            ..MlpEncoderConfig::new(4)
        };
        let config = PolicyConfig::new(EncoderConfig::Mlp(encoder), space);
        for what in ["bc", "distill"] {
            let policy = ActorCritic::actor(&config, &device).unwrap();
            policy.to_dtype(DType::F64).unwrap();
            policy
                .load_state_dict(&case.with_prefix(&format!("{key}/policy/")), true)
                .unwrap();
            let observations = tensor(&format!("{key}/observations"));
            let name = |part: &str| format!("{key}/{what}/{part}");
            let loss = if what == "bc" {
                let actions = tensor(&format!("{key}/actions"));
                let found = bc_loss(&policy, &observations, &actions, 1e-2, 1e-3).unwrap();
                near(&name("entropy"), &found.entropy, &numbers(&name("entropy")));
                near(
                    &name("prob_true_act"),
                    &found.prob_true_act,
                    &numbers(&name("prob_true_act")),
                );
                found.loss
            } else {
                let output = tensor(&format!("{key}/teacher/output"));
                let teacher = match &config.action {
                    ActionSpace::Discrete(_) => ActionParams::Categorical(output),
                    _ => ActionParams::Normal {
                        mean: output,
                        log_std: tensor(&format!("{key}/teacher/log_std")),
                    },
                };
                distillation_loss(&policy, &observations, &teacher).unwrap()
            };
            near(&name("loss"), &loss, &numbers(&name("loss")));
            let mut optimizer: Adam<_> = AdamConfig::new(1e-2).build(policy.parameters()).unwrap();
            optimizer.step(&loss.backward().unwrap()).unwrap();
            for (which, param) in policy.named_parameters() {
                near(&name(&which), &param.tensor(), &numbers(&name(&which)));
            }
        }
    }
}
