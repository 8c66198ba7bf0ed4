//! Compares updates of SAC and TD3 with PyTorch's: tests/data/sac and td3, by scripts/make_actor_critic_values.py,
//! whose head describes the contents.

use std::path::PathBuf;

use polygrad_nn::models::ActivationFn;
use polygrad_nn::{Module, StateDict};
use polygrad_rl::*;
use polygrad_tensor::{DType, Device, Tensor};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// For sums of some dozens of terms in f64, after four steps of Adam, which divides small numbers by small ones.
const EXACT: f64 = 1e-10;
const UPDATES: u64 = 4;

/// Recorded numbers, with the settings of their case, on a device.
struct Case<'a> {
    name: &'a str,
    tensors: StateDict,
    settings: Value,
    device: &'a Device,
}

impl<'a> Case<'a> {
    fn load(name: &'a str, device: &'a Device) -> Self {
        let folder: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into();
        let file = folder.join(format!("tests/data/{name}.safetensors"));
        let (tensors, metadata) = StateDict::load_with_metadata(file).unwrap();
        Self {
            name,
            tensors,
            settings: serde_json::from_str(&metadata["settings"]).unwrap(),
            device,
        }
    }

    fn config<C: DeserializeOwned>(&self) -> C {
        serde_json::from_value(self.settings.clone()).unwrap()
    }

    /// The networks before the updates, with the recorded bounds.
    fn networks(&self, temperature: Option<f64>) -> ActorCritics {
        let encoder = MlpEncoderConfig {
            hidden: vec![8, 8],
            activation: ActivationFn::Relu,
            ..MlpEncoderConfig::new(3)
        };
        let bounds: (&[f32], &[f32]) = (&[-2.0, -1.0], &[2.0, 4.0]);
        let mut networks = ActorCritics::new(&encoder, bounds, temperature, self.device).unwrap();
        if self.settings["use_sde"] == true {
            networks = networks.use_sde(-3.0).unwrap();
        }
        networks.to_dtype(DType::F64).unwrap();
        for (buffer, name) in [(&networks.actor.scale, "scale"), (&networks.actor.middle, "middle")] {
            self.near(&format!("before/actor.{name}"), &buffer.tensor().to_f64_vec().unwrap());
        }
        let before = self.tensors.with_prefix("before/");
        networks.load_state_dict(&before, true).unwrap();
        networks
    }

    fn get(&self, name: &str) -> Tensor {
        Tensor::from_host(self.tensors.get(name).unwrap().clone(), self.device).unwrap()
    }

    fn batch(&self, k: u64) -> [Tensor; 5] {
        ["observations", "actions", "rewards", "discounts", "next_observations"]
            .map(|name| self.get(&format!("update.{k}/{name}")))
    }

    /// The recorded noise of an update, one tensor after another.
    fn noise(&self, k: u64) -> impl FnMut() -> polygrad_tensor::Result<Tensor> + '_ {
        let mut drawn = 0;
        move || {
            drawn += 1;
            Ok(self.get(&format!("update.{k}/noise.{}", drawn - 1)))
        }
    }

    fn near(&self, name: &str, found: &[f64]) {
        let expected = self.tensors.get(name).unwrap().to_f64_vec();
        assert_eq!(found.len(), expected.len(), "{}: {name}", self.name);
        let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let near = (found - expected).abs() <= EXACT * largest;
            assert!(near, "{}: {name}, element {i}: {found} for {expected}", self.name);
        }
    }

    /// Compares the results of an update, and all weights after it.
    fn agrees(&self, k: u64, told: &[(&str, Option<f64>)], networks: &ActorCritics) {
        for (name, found) in told {
            let name = format!("update.{k}/{name}");
            match found {
                Some(found) => self.near(&name, &[*found]),
                None => assert!(self.tensors.get(&name).is_none(), "{}: {name}", self.name),
            }
        }
        let state = networks.state_dict().unwrap();
        assert_eq!(state.len(), self.tensors.with_prefix("before/").len());
        for (name, value) in state.iter() {
            self.near(&format!("update.{k}/after/{name}"), &value.to_f64_vec());
        }
    }
}

fn devices() -> [Device; 2] {
    [
        Device::<polygrad_cpu::Cpu>::default().into_any(),
        Device::<polygrad_reference::Reference>::default().into_any(),
    ]
}

/// The last updates replay the captured first ones.
#[test]
fn updates_of_sac_are_pytorchs() {
    for device in &devices() {
        for name in ["sac/learnt", "sac/fixed", "sac/sde"] {
            let case = Case::load(name, device);
            let config: SacConfig = case.config();
            let networks = case.networks(Some(config.temperature.unwrap_or(1.0)));
            let mut step = SacStep::new(networks, config).unwrap();
            for k in 0..UPDATES {
                let found = step.update(case.batch(k), k, case.noise(k)).unwrap();
                let told = [
                    ("critics", Some(found.critics)),
                    ("value", Some(found.value)),
                    ("entropy", Some(found.entropy)),
                    ("actor", found.actor),
                    ("temperature", found.temperature),
                ];
                case.agrees(k, &told, step.networks());
            }
        }
    }
}

#[test]
fn updates_of_td3_are_pytorchs() {
    for device in &devices() {
        for name in ["td3/default", "td3/clipped"] {
            let case = Case::load(name, device);
            let mut step = Td3Step::new(case.networks(None), case.config()).unwrap();
            for k in 0..UPDATES {
                let found = step.update(case.batch(k), k, case.noise(k)().unwrap()).unwrap();
                let told = [
                    ("critics", Some(found.critics)),
                    ("value", Some(found.value)),
                    ("actor", found.actor),
                ];
                case.agrees(k, &told, step.networks());
            }
        }
    }
}

/// The networks of each algorithm are rejected by the other.
#[test]
fn networks_of_the_other_are_told() {
    let [device, _] = &devices();
    let networks = |temperature| {
        let bounds: (&[f32], &[f32]) = (&[-1.0], &[1.0]);
        ActorCritics::new(&MlpEncoderConfig::new(3), bounds, temperature, device)
    };
    let error = SacStep::new(networks(None).unwrap(), SacConfig::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("no temperature"), "{error}");
    let error = Td3Step::new(networks(Some(1.0)).unwrap(), Td3Config::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("no policy that follows"), "{error}");
    let error = SacStep::new(
        networks(Some(1.0)).unwrap().use_sde(-3.0).unwrap(),
        SacConfig::default(),
    )
    .err()
    .unwrap();
    assert!(
        error.to_string().contains("use_sde is not what the networks"),
        "{error}"
    );
    let error = networks(Some(0.0)).err().unwrap();
    assert!(error.to_string().contains("temperature is not above 0"), "{error}");
}
