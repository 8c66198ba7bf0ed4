//! Compares updates of DQN with PyTorch's: tests/data/dqn, by scripts/make_dqn_values.py, whose head describes the
//! contents.

use std::path::PathBuf;

use polygrad_nn::models::ActivationFn;
use polygrad_nn::optim::{Adam, AdamConfig, Optimizer, clip_grad_norm};
use polygrad_nn::{Module, StateDict};
use polygrad_rl::*;
use polygrad_tensor::{Backend, DType, Device, Tensor};
use serde_json::Value;

/// For sums of some dozens of terms in f64.
const EXACT: f64 = 1e-12;

/// Recorded numbers, with the settings of their case.
struct Case {
    name: &'static str,
    tensors: StateDict,
    settings: Value,
}

impl Case {
    fn load(name: &'static str) -> Self {
        let folder: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into();
        let file = folder.join(format!("tests/data/dqn/{name}.safetensors"));
        let (tensors, metadata) = StateDict::load_with_metadata(file).unwrap();
        let settings = serde_json::from_str(&metadata["settings"]).unwrap();
        Self {
            name,
            tensors,
            settings,
        }
    }

    fn is(&self, name: &str) -> bool {
        self.settings[name].as_bool().unwrap()
    }

    fn network<B: Backend>(&self, prefix: &str, device: &Device<B>) -> QNetwork<B> {
        let encoder = MlpEncoderConfig {
            hidden: vec![8, 8],
            activation: ActivationFn::Relu,
            ..MlpEncoderConfig::new(4)
        };
        let network = QNetwork::new(&EncoderConfig::Mlp(encoder), 3, self.is("dueling"), device).unwrap();
        network.to_dtype(DType::F64).unwrap();
        network
            .load_state_dict(&self.tensors.with_prefix(prefix), true)
            .unwrap();
        network
    }

    fn near<B: Backend>(&self, name: &str, found: &Tensor<B>) {
        let expected = self.tensors.get(name).unwrap().to_f64_vec();
        let found = found.to_f64_vec().unwrap();
        assert_eq!(found.len(), expected.len(), "{}: {name}", self.name);
        let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let near = (found - expected).abs() <= EXACT * largest;
            assert!(near, "{}: {name}, element {i}: {found} for {expected}", self.name);
        }
    }

    fn batch<B: Backend>(&self, k: usize, device: &Device<B>) -> DqnBatch<B> {
        let get = |name: &str| {
            let host = self.tensors.get(&format!("update.{k}/{name}")).unwrap().clone();
            Tensor::from_host(host, device).unwrap()
        };
        DqnBatch {
            observations: get("observations"),
            actions: get("actions"),
            rewards: get("rewards"),
            discounts: get("discounts"),
            next_observations: get("next_observations"),
            weights: get("weights"),
        }
    }

    /// Losses, gradients, and weights after each of three steps of the optimizer.
    fn updates_are_pytorchs<B: Backend>(&self, device: &Device<B>) {
        let (online, target) = (self.network("online/", device), self.network("target/", device));
        let rate = self.settings["learning_rate"].as_f64().unwrap();
        let mut adam: Adam<B> = AdamConfig::new(rate).build(online.parameters()).unwrap();
        let variant = DqnVariant {
            double: self.is("double"),
            huber: self.is("huber"),
        };
        for k in 0..3 {
            if k == 2 {
                target.load_state_dict(&online.state_dict().unwrap(), true).unwrap();
            }
            let near = |name: &str, found: &Tensor<B>| self.near(&format!("update.{k}/{name}"), found);
            let losses = dqn_loss(&online, &target, &self.batch(k, device), variant).unwrap();
            near("loss", &losses.loss);
            near("errors", &losses.errors);
            near("value", &losses.value);
            let mut gradients = losses.loss.backward().unwrap();
            for (name, param) in online.named_parameters() {
                near(&format!("gradients/{name}"), gradients.require(&param).unwrap());
            }
            for (name, param) in target.named_parameters() {
                assert!(gradients.get(&param).is_none(), "{}: {name} of the target", self.name);
            }
            if let Some(norm) = self.settings["max_grad_norm"].as_f64() {
                clip_grad_norm(&mut gradients, norm).unwrap();
            }
            adam.step(&gradients).unwrap();
            for (name, param) in online.named_parameters() {
                near(&format!("online/{name}"), &param.tensor());
            }
        }
    }
}

#[test]
fn updates_are_pytorchs() {
    for case in ["plain", "double", "all"].map(Case::load) {
        case.updates_are_pytorchs(&Device::<polygrad_cpu::Cpu>::default());
        case.updates_are_pytorchs(&Device::<polygrad_reference::Reference>::default());
    }
}
