//! Compares updates of PQN with PyTorch's: tests/data/pqn, by scripts/make_pqn_values.py, whose head describes the
//! contents.

use std::path::PathBuf;

use polygrad_nn::models::ActivationFn;
use polygrad_nn::optim::{Optimizer, RAdam, RAdamConfig, clip_grad_norm};
use polygrad_nn::{Module, StateDict};
use polygrad_rl::*;
use polygrad_tensor::{Backend, DType, Device, Tensor};
use serde_json::Value;

/// For sums of some dozens of terms in f64.
const EXACT: f64 = 1e-12;
/// For numbers that were rounded to f32.
const ROUNDED: f64 = 1e-6;

fn near(name: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = (found - expected).abs() <= tolerance * largest;
        assert!(near, "{name}, element {i}: {found} for {expected}");
    }
}

struct Case {
    tensors: StateDict,
    settings: Value,
}

impl Case {
    fn load() -> Self {
        let folder: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into();
        let file = folder.join("tests/data/pqn/update.safetensors");
        let (tensors, metadata) = StateDict::load_with_metadata(file).unwrap();
        let settings = serde_json::from_str(&metadata["settings"]).unwrap();
        Self { tensors, settings }
    }

    fn number(&self, name: &str) -> f64 {
        self.settings[name].as_f64().unwrap()
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.tensors.get(name).unwrap().to_f64_vec()
    }

    fn network<B: Backend>(&self, device: &Device<B>) -> QNetwork<B> {
        let encoder = MlpEncoderConfig {
            hidden: vec![8, 8],
            activation: ActivationFn::Relu,
            layer_norm: true,
            ..MlpEncoderConfig::new(4)
        };
        let network = QNetwork::orthogonal(&EncoderConfig::Mlp(encoder), 3, device).unwrap();
        network.to_dtype(DType::F64).unwrap();
        let weights = self.tensors.with_prefix("network/");
        network.load_state_dict(&weights, true).unwrap();
        network
    }

    /// The targets of the rollout, from the values of the next observations.
    fn targets<B: Backend>(&self, network: &QNetwork<B>, device: &Device<B>) -> Vec<f32> {
        let host = self.tensors.get("rollout/next_observations").unwrap().clone();
        let next = Tensor::from_host(host, device).unwrap().reshape([24, 4]).unwrap();
        let best = network.values(&next).unwrap().amax(1).unwrap().to_f64_vec().unwrap();
        near("values", &best, &self.numbers("rollout/values"), EXACT);
        let best: Vec<f32> = best.into_iter().map(|x| x as f32).collect();
        let flags = |name: &str| self.numbers(name).into_iter().map(|x| x != 0.0).collect::<Vec<bool>>();
        let (ended, terminated) = (flags("rollout/ended"), flags("rollout/terminated"));
        let cut = (0..24).map(|i| if ended[i] && !terminated[i] { best[i] } else { 0.0 });
        let rewards: Vec<f32> = self.numbers("rollout/rewards").into_iter().map(|x| x as f32).collect();
        let outcomes = Outcomes {
            rewards: &rewards,
            values: &[&[0.0; 4], &best[..20]].concat(),
            ended: &ended,
            final_values: &cut.collect::<Vec<f32>>(),
            last_values: &best[20..],
        };
        q_lambda(outcomes, self.number("gamma"), self.number("q_lambda")).unwrap()
    }

    fn updates_are_pytorchs<B: Backend>(&self, device: &Device<B>) {
        let network = self.network(device);
        let targets = self.targets(&network, device);
        let found: Vec<f64> = targets.into_iter().map(f64::from).collect();
        let expected = self.numbers("rollout/targets");
        near("targets", &found, &expected, ROUNDED);
        let rounded: Vec<f64> = expected.into_iter().map(|x| f64::from(x as f32)).collect();
        let rate = self.number("learning_rate");
        let mut optimizer: RAdam<B> = RAdamConfig::new(rate).build(network.parameters()).unwrap();
        for k in 0..7 {
            let name = |what: &str| format!("update.{k}/{what}");
            let places = self.numbers(&name("places"));
            let rows = |all: &[f64], width: usize| -> Tensor<B> {
                let own = places.iter().flat_map(|place| &all[*place as usize * width..][..width]);
                let dims = [places.len(), width];
                Tensor::from_vec(own.copied().collect::<Vec<f64>>(), dims, device).unwrap()
            };
            let observations = rows(&self.numbers("rollout/observations"), 4);
            let actions = rows(&self.numbers("rollout/actions"), 1);
            let wanted = rows(&rounded, 1).squeeze(1).unwrap();
            let (loss, value) = pqn_loss(&network, &observations, &actions, &wanted).unwrap();
            let one = |what: &str, found: &Tensor<B>| {
                near(
                    &name(what),
                    &found.to_f64_vec().unwrap(),
                    &self.numbers(&name(what)),
                    EXACT,
                );
            };
            one("loss", &loss);
            one("value", &value);
            let mut gradients = loss.backward().unwrap();
            for (which, param) in network.named_parameters() {
                one(&format!("gradients/{which}"), gradients.require(&param).unwrap());
            }
            clip_grad_norm(&mut gradients, self.number("max_grad_norm")).unwrap();
            optimizer.step(&gradients).unwrap();
            for (which, param) in network.named_parameters() {
                one(&format!("network/{which}"), &param.tensor());
            }
        }
    }
}

#[test]
fn updates_are_pytorchs() {
    let case = Case::load();
    case.updates_are_pytorchs(&Device::<polygrad_cpu::Cpu>::default());
    case.updates_are_pytorchs(&Device::<polygrad_reference::Reference>::default());
}
