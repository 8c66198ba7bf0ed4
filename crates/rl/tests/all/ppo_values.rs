//! Compares an update of PPO with PyTorch's: tests/data/ppo, by scripts/make_ppo_values.py, whose head describes the
//! contents.

use std::path::PathBuf;

use polygrad_core::HostTensor;
use polygrad_nn::optim::{Adam, AdamConfig, Optimizer, clip_grad_norm};
use polygrad_nn::{Module, StateDict};
use polygrad_rl::*;
use polygrad_tensor::{Backend, DType, Device, Tensor};
use serde_json::Value;

/// Recorded numbers, with the settings of their case.
struct Case {
    name: &'static str,
    tensors: StateDict,
    settings: Value,
}

impl Case {
    fn load(name: &'static str) -> Self {
        let folder: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into();
        let file = folder.join(format!("tests/data/ppo/{name}.safetensors"));
        let (tensors, metadata) = StateDict::load_with_metadata(file).unwrap();
        let settings = serde_json::from_str(&metadata["settings"]).unwrap();
        Self {
            name,
            tensors,
            settings,
        }
    }

    fn number(&self, name: &str) -> f64 {
        self.settings[name].as_f64().unwrap()
    }

    fn host(&self, name: &str) -> &HostTensor {
        self.tensors
            .get(name)
            .unwrap_or_else(|| panic!("{}: {name}", self.name))
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.host(name).to_f64_vec()
    }

    /// Recorded numbers that f32 represents exactly.
    fn floats(&self, name: &str) -> Vec<f32> {
        self.values(name).into_iter().map(|x| x as f32).collect()
    }

    fn bools(&self, name: &str) -> Vec<bool> {
        self.values(name).into_iter().map(|x| x != 0.0).collect()
    }

    fn tensor<B: Backend>(&self, name: &str, device: &Device<B>) -> Tensor<B> {
        Tensor::from_host(self.host(name).clone(), device).unwrap()
    }

    /// Compares numbers with recorded ones, with a difference of at most `tolerance` times the largest.
    fn is_near(&self, name: &str, found: &[f64], tolerance: f64) {
        let expected = self.values(name);
        assert_eq!(found.len(), expected.len(), "{}: {name}", self.name);
        let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let apart = (found - expected).abs();
            assert!(
                apart <= tolerance * largest,
                "{}: {name}, element {i}: {found} for {expected}",
                self.name
            );
        }
    }

    fn policy<B: Backend>(&self, device: &Device<B>) -> ActorCritic<B> {
        let policy = &self.settings["policy"];
        let size = |value: &Value| value.as_u64().unwrap() as usize;
        let action = match policy["discrete"].as_array().map(Vec::as_slice) {
            None => ActionSpace::Continuous(size(&policy["continuous"])),
            Some([one]) => ActionSpace::Discrete(size(one)),
            Some(several) => ActionSpace::MultiDiscrete(several.iter().map(size).collect()),
        };
        let kind = policy["memory"].as_str().map(|memory| match memory {
            "lstm" => MemoryKind::Lstm,
            "gru" => MemoryKind::Gru,
            "min_gru" => MemoryKind::MinGru,
            other => panic!("{other}"),
        });
        let encoder = MlpEncoderConfig {
            hidden: vec![8, 8],
            ..MlpEncoderConfig::new(4)
        };
        let config = PolicyConfig {
            memory: kind.map(|kind| MemoryConfig::new(kind, 6)),
            shared: policy["shared"].as_bool().unwrap(),
            state_dependent_std: policy["log_std"] == "state",
            ..PolicyConfig::new(EncoderConfig::Mlp(encoder), action)
        };
        let policy = ActorCritic::new(&config, device).unwrap();
        let policy = match self.settings["policy"]["log_std"] == "sde" {
            true => policy.use_sde(0.0).unwrap(),
            false => policy,
        };
        policy.to_dtype(DType::F64).unwrap();
        policy
            .load_state_dict(&self.tensors.with_prefix("weights/"), true)
            .unwrap();
        policy
    }

    /// Calls `f` with the outcomes of the rollout's steps.
    fn with_outcomes<T>(&self, f: impl FnOnce(Outcomes<'_>) -> T) -> T {
        let rollout = |name: &str| format!("rollout/{name}");
        let terminated = self.bools(&rollout("terminated"));
        let (ended, final_values) = match self.tensors.contains(&rollout("truncated")) {
            false => (terminated.clone(), vec![0.0; terminated.len()]),
            true => {
                let truncated = self.bools(&rollout("truncated"));
                let either = terminated.iter().zip(&truncated).map(|(a, b)| *a || *b);
                // An episode with both flags has terminated.
                let values = self.floats(&rollout("final_values")).into_iter().zip(&terminated);
                (
                    either.collect(),
                    values.map(|(value, end)| if *end { 0.0 } else { value }).collect(),
                )
            }
        };
        f(Outcomes {
            rewards: &self.floats(&rollout("rewards")),
            values: &self.floats(&rollout("values")),
            ended: &ended,
            final_values: &final_values,
            last_values: &self.floats(&rollout("last_values")),
        })
    }

    /// Minibatch `k`: some rows, `[n, …]`, or all steps of some environments, `[T, n, …]`.
    fn minibatch<B: Backend>(&self, k: usize, device: &Device<B>) -> PpoBatch<B> {
        let indices = self.tensor(&format!("minibatch.{k}/indices"), device);
        let has_memory = self.tensors.contains("rollout/state_0");
        let of_steps = |name: &str| {
            let x = self.tensor(name, device);
            match has_memory {
                true => x.index_select(1, &indices),
                false => x.flatten(0, 1).and_then(|x| x.index_select(0, &indices)),
            }
            .unwrap()
        };
        let actions = of_steps("rollout/actions").to_dtype(DType::F64).unwrap();
        let state = ["rollout/state_0", "rollout/state_1"].into_iter();
        let state = state.filter(|name| self.tensors.contains(name));
        let state = state.map(|name| self.tensor(name, device).index_select(1, &indices).unwrap());
        let has_masks = self.tensors.contains("rollout/masks");
        PpoBatch {
            observations: of_steps("rollout/observations"),
            actions: if actions.rank() == of_steps("advantages").rank() {
                actions.unsqueeze(-1).unwrap()
            } else {
                actions
            },
            masks: has_masks.then(|| of_steps("rollout/masks").to_dtype(DType::Bool).unwrap()),
            log_probs: of_steps("rollout/log_probs"),
            advantages: of_steps("advantages"),
            returns: of_steps("returns"),
            values: of_steps("rollout/values"),
            sequence: has_memory.then(|| (of_steps("rollout/starts"), PolicyState::new(state.collect()))),
        }
    }

    fn weights<B: Backend>(&self, device: &Device<B>) -> PpoWeights<B> {
        let scalar = |name: &str| Tensor::from_vec(vec![self.number(name)], (), device).unwrap();
        PpoWeights {
            clip: scalar("clip"),
            entropy: scalar("entropy_coefficient"),
            value: self.number("value_coefficient"),
            clip_value: self.settings["clip_value"].as_bool().unwrap(),
            normalize_advantages: self.settings["normalize_advantages"] == "minibatch",
        }
    }
}

const CASES: [&str; 9] = [
    "mlp",
    "masked",
    "multi_discrete",
    "continuous",
    "continuous_state_std",
    "lstm",
    "gru",
    "min_gru",
    "sde",
];

/// Half a step of f32: results are computed in f64 and rounded once.
const ROUNDED: f64 = 6e-8;

/// For sums of some hundred terms in f64.
const EXACT: f64 = 1e-12;

fn as_f64(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

#[test]
fn advantages_are_pytorchs() {
    for case in CASES.map(Case::load) {
        let (gamma, lambda) = (case.number("gamma"), case.number("gae_lambda"));
        let (advantages, returns) = case.with_outcomes(|outcomes| gae(outcomes, gamma, lambda)).unwrap();
        case.is_near("advantages", &as_f64(&advantages), ROUNDED);
        case.is_near("returns", &as_f64(&returns), ROUNDED);
    }
}

/// Losses, gradients, and weights after each of two steps of the optimizer.
fn updates_are_pytorchs<B: Backend>(device: &Device<B>) {
    for case in CASES.map(Case::load) {
        let policy = case.policy(device);
        let adam = AdamConfig::new(case.number("learning_rate")).eps(case.number("adam_eps"));
        let mut adam: Adam<B> = adam.build(policy.parameters()).unwrap();
        for k in 0..2 {
            let near = |name: &str, found: &Tensor<B>| {
                case.is_near(&format!("minibatch.{k}/{name}"), &found.to_f64_vec().unwrap(), EXACT);
            };
            let losses = ppo_loss(&policy, &case.minibatch(k, device), &case.weights(device)).unwrap();
            near("loss", &losses.loss);
            near("policy_loss", &losses.policy);
            near("value_loss", &losses.value);
            near("entropy", &losses.entropy);
            near("approx_kl", &losses.approx_kl);
            near("clip_fraction", &losses.clip_fraction);
            let mut gradients = losses.loss.backward().unwrap();
            for (name, param) in policy.named_parameters() {
                near(&format!("gradients/{name}"), gradients.require(&param).unwrap());
            }
            let norm = clip_grad_norm(&mut gradients, case.number("max_grad_norm")).unwrap();
            case.is_near(&format!("minibatch.{k}/grad_norm"), &[norm], EXACT);
            adam.step(&gradients).unwrap();
            for (name, param) in policy.named_parameters() {
                near(&format!("weights/{name}"), &param.tensor());
            }
        }
    }
}

/// By recorded matrices, one for each environment; actions were rounded to f32.
#[test]
fn state_dependent_actions_are_stable_baselines3s() {
    let (case, device) = (Case::load("sde"), Device::<polygrad_cpu::Cpu>::default());
    let (policy, noise) = (case.policy(&device), case.tensor("rollout/noise", &device));
    let mut found = Vec::new();
    for step in case.tensor("rollout/observations", &device).unbind(0).unwrap() {
        let answer = policy.forward(&step, &policy.initial_state(4).unwrap()).unwrap();
        let own = answer.noise.unwrap();
        let matrices = (own.log_std.exp().unwrap() * &noise).unwrap();
        let apart = own.features.unsqueeze(1).unwrap().matmul(&matrices).unwrap();
        let actions = (answer.action.output() + apart.squeeze(1).unwrap()).unwrap();
        found.extend(actions.to_f64_vec().unwrap());
        // The same matrix for all rows.
        let one = noise.narrow(0, 2, 1).unwrap().squeeze(0).unwrap();
        let alone = own.noise(&one).unwrap().narrow(0, 2, 1).unwrap();
        let row = apart.narrow(0, 2, 1).unwrap().squeeze(1).unwrap();
        assert!((alone - row).unwrap().abs().unwrap().amax(1).unwrap().item().unwrap() < 1e-12);
    }
    case.is_near("rollout/actions", &found, ROUNDED);
}

#[test]
fn updates_on_the_cpu_are_pytorchs() {
    updates_are_pytorchs(&Device::<polygrad_cpu::Cpu>::default());
}

#[test]
fn updates_by_the_reference_are_pytorchs() {
    updates_are_pytorchs(&Device::<polygrad_reference::Reference>::default());
}
