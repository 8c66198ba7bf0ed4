//! Compares the results of iterations of [`Ppo`] with the same computation by hand in f64 with `gae`, `ppo_loss`,
//! `clip_grad_norm` and `Adam`, which tests/all/ppo_values.rs compares with PyTorch's.

use std::sync::{Arc, Mutex};

use polygrad_core::Result;
use polygrad_nn::Module;
use polygrad_nn::distributions::Distribution;
use polygrad_nn::optim::{Adam, AdamConfig, Optimizer, clip_grad_norm};
use polygrad_rl::*;
use polygrad_tensor::{DType, Device, Tensor, manual_seed, no_grad};

const STEPS: usize = 8;
const ROWS: usize = 4;

/// Random observations, rewards, masks and ends.
struct Noise {
    action: Space,
    masked: bool,
    mask: Vec<bool>,
}

impl Noise {
    fn observe(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        observation.fill_with(|| rng.normal().clamp(-3.0, 3.0) as f32);
        self.mask = (0..self.action.flat_len()).map(|_| rng.uniform() < 0.5).collect();
    }
}

impl Env for Noise {
    fn observation_space(&self) -> Space {
        Space::boxed(&[-3.0; 3], &[3.0; 3])
    }

    fn action_space(&self) -> Space {
        self.action.clone()
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.observe(rng, observation);
    }

    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step {
        self.observe(rng, observation);
        Step {
            rewards: [rng.normal() + f64::from(action[0])],
            terminated: rng.uniform() < 0.15,
            truncated: rng.uniform() < 0.15,
        }
    }

    fn has_action_mask(&self) -> bool {
        self.masked
    }

    /// The first of each choice is always allowed.
    fn action_mask(&self, mask: &mut [bool]) {
        mask.copy_from_slice(&self.mask);
        let Space::MultiDiscrete { nvec, .. } = &self.action else {
            return mask[0] = true;
        };
        let mut first = 0;
        for n in nvec {
            mask[first] = true;
            first += n;
        }
    }
}

/// The actions and outputs of an environment, step by step.
#[derive(Default)]
struct Log {
    observations: Vec<Vec<f32>>,
    masks: Vec<Vec<bool>>,
    actions: Vec<Vec<f32>>,
    after: Vec<StepBuffers>,
}

/// Environments that keep a log.
struct Logged<V> {
    envs: V,
    log: Arc<Mutex<Log>>,
}

impl<V: VectorEnv> Logged<V> {
    fn see(&self, observations: &[f32]) {
        let mut log = self.log.lock().unwrap();
        log.observations.push(observations.to_vec());
        log.masks.extend(self.envs.action_masks().map(<[bool]>::to_vec));
    }
}

impl<V: VectorEnv> VectorEnv for Logged<V> {
    fn num_envs(&self) -> usize {
        self.envs.num_envs()
    }

    fn observation_space(&self) -> &Space {
        self.envs.observation_space()
    }

    fn action_space(&self) -> &Space {
        self.envs.action_space()
    }

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.envs.reset(seed, observations)?;
        self.see(observations);
        Ok(())
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        self.envs.step(actions, out)?;
        self.see(out.observations);
        let mut log = self.log.lock().unwrap();
        log.actions.push(actions.to_vec());
        log.after.push(StepBuffers {
            observations: out.observations.to_vec(),
            rewards: out.rewards.to_vec(),
            terminated: out.terminated.to_vec(),
            truncated: out.truncated.to_vec(),
            final_observations: out.final_observations.to_vec(),
        });
        Ok(())
    }

    fn action_masks(&self) -> Option<&[bool]> {
        self.envs.action_masks()
    }
}

/// `[T * N]` numbers of a rollout other than the environments' outputs.
#[derive(Default)]
struct Seen {
    log_probs: Vec<f32>,
    values: Vec<f32>,
    final_values: Vec<f32>,
    last_values: Vec<f32>,
    starts: Vec<f32>,
    ended: Vec<bool>,
    rewards: Vec<f32>,
    /// The states before each segment.
    states: Vec<PolicyState>,
}

/// The same training, step by step and in f64.
struct ByHand {
    policy: ActorCritic,
    adam: Adam,
    state: PolicyState,
    starts: Vec<f32>,
    config: PpoConfig,
    device: Device,
}

impl ByHand {
    fn new(policy: &ActorCritic, config: &PpoConfig, device: &Device) -> Self {
        let copy = ActorCritic::new(policy.config(), device).unwrap();
        copy.to_dtype(DType::F64).unwrap();
        copy.load_state_dict(&policy.state_dict().unwrap(), true).unwrap();
        Self {
            adam: AdamConfig::new(1.0).eps(1e-5).build(copy.parameters()).unwrap(),
            state: copy.initial_state(ROWS).unwrap(),
            starts: vec![1.0; ROWS],
            policy: copy,
            config: config.clone(),
            device: device.clone(),
        }
    }

    fn tensor(&self, values: &[f32], shape: &[usize]) -> Tensor {
        let values: Vec<f64> = values.iter().copied().map(f64::from).collect();
        Tensor::from_vec(values, shape, &self.device).unwrap()
    }

    /// `[T * N * width]` numbers as segments: `[segment, segments, width]`.
    fn segments(&self, values: &[f32], width: &[usize]) -> Tensor {
        let len = self.config.segment_len.unwrap_or(STEPS);
        let shape = |first: &[usize]| [first, width].concat();
        let x = self.tensor(values, &shape(&[STEPS / len, len, ROWS]));
        x.transpose(0, 1)
            .unwrap()
            .reshape(shape(&[len, STEPS / len * ROWS]))
            .unwrap()
    }

    fn masks(&self, log: &Log, steps: std::ops::Range<usize>) -> Option<Vec<f32>> {
        (!log.masks.is_empty()).then(|| log.masks[steps].concat().into_iter().map(f32::from).collect())
    }

    fn answer(&self, observations: &[f32], state: &PolicyState) -> PolicyOutput {
        self.policy
            .forward(&self.tensor(observations, &[ROWS, 3]), state)
            .unwrap()
    }

    fn fresh(&self) -> PolicyState {
        self.state.reset(&self.tensor(&self.starts, &[ROWS])).unwrap()
    }

    /// Follows the steps of iteration `k`.
    fn act(&mut self, log: &Log, k: usize) -> Seen {
        let mut seen = Seen::default();
        let values = |x: &Tensor| -> Vec<f32> { x.to_dtype(DType::F32).unwrap().to_vec().unwrap() };
        for step in k * STEPS..(k + 1) * STEPS {
            if step.is_multiple_of(self.config.segment_len.unwrap_or(STEPS)) {
                seen.states.push(self.state.clone());
            }
            seen.starts.extend(&self.starts);
            let answer = self.answer(&log.observations[step], &self.fresh());
            let mask = self.masks(log, step..step + 1);
            let mask = mask.map(|mask| {
                self.tensor(&mask, &answer.action.output().dims())
                    .to_dtype(DType::Bool)
                    .unwrap()
            });
            let actions = self.tensor(&log.actions[step], &[ROWS, log.actions[step].len() / ROWS]);
            let log_probs = answer
                .action
                .distribution(mask.as_ref())
                .unwrap()
                .log_prob(&actions)
                .unwrap();
            seen.log_probs.extend(values(&log_probs));
            seen.values.extend(values(answer.value().unwrap()));
            self.state = answer.state;
            let after = &log.after[step];
            let finals = values(self.answer(&after.final_observations, &self.state).value().unwrap());
            for (row, value) in finals.into_iter().enumerate() {
                let (terminated, truncated) = (after.terminated[row], after.truncated[row]);
                let cut = truncated && !terminated && self.config.bootstrap_truncated;
                seen.final_values.push(if cut { value } else { 0.0 });
                seen.ended.push(terminated || truncated);
                self.starts[row] = f32::from(terminated || truncated);
            }
            seen.rewards.extend(&after.rewards);
        }
        seen.last_values = values(
            self.answer(&log.observations[(k + 1) * STEPS], &self.fresh())
                .value()
                .unwrap(),
        );
        seen
    }

    /// Iteration `k`: the mean losses as in [`Iteration`].
    fn iterate(&mut self, log: &Log, k: usize, iterations: u64) -> [f64; 5] {
        let progress = k as f64 / iterations as f64;
        self.adam.set_lr(self.config.learning_rate.at(progress));
        let seen = no_grad(|| self.act(log, k));
        let (gamma, lambda) = (self.config.gamma, self.config.gae_lambda);
        let (advantages, returns) = gae(outcomes(&seen), gamma, lambda).unwrap();
        let mut means = [0.0; 5];
        for _ in 0..self.config.update_epochs {
            let batch = self.batch(log, k, &seen, &advantages, &returns);
            let scalar = |x: f64| Tensor::from_vec(vec![x], (), &self.device).unwrap();
            let weights = PpoWeights {
                clip: scalar(self.config.clip.at(progress)),
                entropy: scalar(self.config.entropy_coefficient.at(progress)),
                value: self.config.value_coefficient,
                clip_value: self.config.clip_value,
                // All rows are in one minibatch.
                normalize_advantages: self.config.normalize_advantages != AdvantageNorm::None,
            };
            let losses = ppo_loss(&self.policy, &batch, &weights).unwrap();
            let parts = [
                &losses.policy,
                &losses.value,
                &losses.entropy,
                &losses.approx_kl,
                &losses.clip_fraction,
            ];
            for (i, (mean, part)) in means.iter_mut().zip(parts).enumerate() {
                let part = part.item().unwrap();
                // Only the last estimate of the divergence is reported.
                *mean = if i == 3 {
                    part
                } else {
                    *mean + part / self.config.update_epochs as f64
                };
            }
            let mut gradients = losses.loss.backward().unwrap();
            clip_grad_norm(&mut gradients, self.config.max_grad_norm).unwrap();
            self.adam.step(&gradients).unwrap();
        }
        means
    }

    fn batch(&self, log: &Log, k: usize, seen: &Seen, advantages: &[f32], returns: &[f32]) -> PpoBatch {
        let steps = k * STEPS..(k + 1) * STEPS;
        let of = |all: &[Vec<f32>]| (all[steps.clone()].concat(), all[0].len() / ROWS);
        let (observations, width) = of(&log.observations);
        let (actions, len) = of(&log.actions);
        let parts = (0..self.state.parts().len()).map(|part| {
            let parts: Vec<&Tensor> = seen.states.iter().map(|state| &state.parts()[part]).collect();
            Tensor::cat(&parts, 1).unwrap()
        });
        let masks = self.masks(log, steps.clone()).map(|masks| {
            let width = masks.len() / (STEPS * ROWS);
            self.segments(&masks, &[width]).to_dtype(DType::Bool).unwrap()
        });
        PpoBatch {
            observations: self.segments(&observations, &[width]),
            actions: self.segments(&actions, &[len]),
            masks,
            log_probs: self.segments(&seen.log_probs, &[]),
            advantages: self.segments(advantages, &[]),
            returns: self.segments(returns, &[]),
            values: self.segments(&seen.values, &[]),
            sequence: Some((self.segments(&seen.starts, &[]), PolicyState::new(parts.collect()))),
        }
    }
}

fn outcomes(seen: &Seen) -> Outcomes<'_> {
    Outcomes {
        rewards: &seen.rewards,
        values: &seen.values,
        ended: &seen.ended,
        final_values: &seen.final_values,
        last_values: &seen.last_values,
    }
}

type Case = (&'static str, PolicyConfig, Space, bool, PpoConfig);

fn cases() -> Vec<Case> {
    let config = PpoConfig {
        total_steps: (4 * STEPS * ROWS) as u64,
        num_steps: STEPS,
        num_minibatches: 1,
        update_epochs: 3,
        learning_rate: Annealed::Linear(1e-2, 0.0),
        clip: Annealed::Linear(0.03, 0.0),
        ..PpoConfig::default()
    };
    let encoder = MlpEncoderConfig {
        hidden: vec![8],
        ..MlpEncoderConfig::new(3)
    };
    let policy = |space: &Space, memory: Option<MemoryKind>| PolicyConfig {
        memory: memory.map(|kind| MemoryConfig::new(kind, 5)),
        shared: memory.is_some(),
        ..PolicyConfig::new(EncoderConfig::Mlp(encoder.clone()), ActionSpace::from(space))
    };
    let case = |name, space: Space, memory, masked, config| (name, policy(&space, memory), space, masked, config);
    let (three, several) = (Space::discrete(3), Space::multi_discrete(&[3, 2]));
    let plane = Space::boxed(&[-100.0; 2], &[100.0; 2]);
    let of_batch = PpoConfig {
        normalize_advantages: AdvantageNorm::Batch,
        clip_value: false,
        ..config.clone()
    };
    let cut = PpoConfig {
        segment_len: Some(STEPS / 2),
        ..config.clone()
    };
    let as_cleanrl = PpoConfig {
        bootstrap_truncated: false,
        ..config.clone()
    };
    let mut cases = vec![
        case("discrete", three.clone(), None, false, config.clone()),
        case(
            "by CleanRL's rule of truncation",
            three.clone(),
            None,
            false,
            as_cleanrl,
        ),
        case("normalized over the rollout", three.clone(), None, false, of_batch),
        case("masked", three.clone(), None, true, config.clone()),
        case("several choices", several.clone(), None, true, config.clone()),
        case("binary", Space::MultiBinary { n: 3 }, None, false, config.clone()),
        case("continuous", plane.clone(), None, false, config.clone()),
        case("LSTM", several, Some(MemoryKind::Lstm), true, config.clone()),
        case(
            "LSTM in segments",
            three.clone(),
            Some(MemoryKind::Lstm),
            false,
            cut.clone(),
        ),
        case("GRU", three.clone(), Some(MemoryKind::Gru), false, config.clone()),
        case(
            "MinGRU in segments",
            plane.clone(),
            Some(MemoryKind::MinGru),
            false,
            cut,
        ),
    ];
    cases.push(case("standard deviations by state", plane, None, false, config));
    cases.last_mut().unwrap().1.state_dependent_std = true;
    cases
}

fn trainer(case: &Case, device: &Device) -> (Ppo, ActorCritic, Arc<Mutex<Log>>) {
    let (_, policy, space, masked, config) = case;
    manual_seed(1);
    let policy = ActorCritic::new(policy, device).unwrap();
    // The actor's last layer starts so small that all actions are equally likely.
    policy
        .actor
        .weight
        .set(&(policy.actor.weight.tensor().detach() * 50.0).unwrap())
        .unwrap();
    let make = |_| Noise {
        action: space.clone(),
        masked: *masked,
        mask: Vec::new(),
    };
    let log = Arc::new(Mutex::new(Log::default()));
    let envs = Logged {
        envs: Vectorized::new(make, ROWS).unwrap(),
        log: log.clone(),
    };
    let copy = ActorCritic::new(policy.config(), device).unwrap();
    copy.load_state_dict(&policy.state_dict().unwrap(), true).unwrap();
    (Ppo::new(envs, policy, config.clone()).unwrap(), copy, log)
}

fn losses(iteration: &Iteration) -> [f64; 5] {
    [
        iteration.policy_loss,
        iteration.value_loss,
        iteration.entropy,
        iteration.approx_kl,
        iteration.clip_fraction,
    ]
}

fn are_near(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let far = |(a, b): (&f64, &f64)| (a - b).abs() > tolerance * (1.0 + b.abs());
    assert!(
        !found.iter().zip(expected).any(far),
        "{what}: {found:?} for {expected:?}"
    );
}

#[test]
fn iterations_are_those_by_hand() {
    let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    for case in cases() {
        let name = case.0;
        let (mut ppo, policy, log) = trainer(&case, &device);
        let mut by_hand = ByHand::new(&policy, &case.4, &device);
        let mut clipped = 0.0;
        for k in 0..3 {
            let found = losses(&ppo.iterate().unwrap());
            let expected = by_hand.iterate(&log.lock().unwrap(), k, ppo.iterations());
            are_near(&format!("{name}, iteration {k}"), &found, &expected, 1e-5);
            for ((param, found), (_, expected)) in ppo
                .policy()
                .named_parameters()
                .iter()
                .zip(by_hand.policy.named_parameters())
            {
                let values = |x: &Tensor| x.to_f64_vec().unwrap();
                let what = format!("{name}, iteration {k}, {param}");
                are_near(&what, &values(&found.tensor()), &values(&expected.tensor()), 1e-5);
            }
            clipped += expected[4];
        }
        // A run without clipping would not test it.
        assert!(clipped > 0.0, "{name}");
        assert_eq!(ppo.refusal(), None, "{name}");
    }
}

#[test]
fn minibatches_are_together_the_rollout() {
    let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    for mut case in cases() {
        case.4 = PpoConfig {
            learning_rate: Annealed::Constant(0.0),
            normalize_advantages: AdvantageNorm::None,
            ..case.4
        };
        let (_, policy, _) = trainer(&case, &device);
        let mut by_hand = ByHand::new(&policy, &case.4, &device);
        case.4.num_minibatches = 4;
        let (mut ppo, _, log) = trainer(&case, &device);
        let found = losses(&ppo.iterate().unwrap());
        let expected = by_hand.iterate(&log.lock().unwrap(), 0, ppo.iterations());
        are_near(case.0, &found, &expected, 1e-5);
    }
}
