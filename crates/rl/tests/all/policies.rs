//! Policies: shapes, initial values, gradients, and state.

use polygrad_nn::distributions::Distribution as _;
use polygrad_nn::{Module, Param};
use polygrad_rl::*;
use polygrad_tensor::{DType, Device, Error, Result, Tensor, manual_seed};
use polygrad_testing::on_backends;

on_backends!(
    answers_have_their_shapes,
    gradients_reach_all_parameters,
    weights_begin_orthogonal,
    weights_begin_as_the_layers_own_without_ortho_init,
    a_memory_lasts_until_it_is_reset,
    unrolled_steps_are_those_one_by_one,
    distributions_fit_their_actions,
    observations_are_normalized,
    actions_have_values,
    bad_input_is_told,
);

fn randn(shape: &[usize], device: &Device) -> Tensor {
    let normal = polygrad_tensor::Distribution::Normal { mean: 0.0, std: 1.0 };
    Tensor::random(shape, normal, (device, DType::F64)).unwrap()
}

fn encoders() -> [(EncoderConfig, Vec<usize>); 2] {
    let mlp = MlpEncoderConfig {
        hidden: vec![8, 6],
        ..MlpEncoderConfig::new(5)
    };
    let layer = |channels, kernel, stride| ConvLayer {
        channels,
        kernel,
        stride,
    };
    let cnn = CnnEncoderConfig {
        convolutions: vec![layer(4, 4, 2), layer(3, 2, 1)],
        hidden: vec![7],
        ..CnnEncoderConfig::new([2, 9, 8])
    };
    [
        (EncoderConfig::Mlp(mlp), vec![5]),
        (EncoderConfig::Cnn(cnn), vec![2, 9, 8]),
    ]
}

fn memories() -> Vec<Option<MemoryConfig>> {
    let memory = |kind| {
        Some(MemoryConfig {
            num_layers: 2,
            ..MemoryConfig::new(kind, 4)
        })
    };
    vec![
        None,
        memory(MemoryKind::Lstm),
        memory(MemoryKind::Gru),
        memory(MemoryKind::MinGru),
    ]
}

fn actions() -> [ActionSpace; 4] {
    [
        ActionSpace::Discrete(3),
        ActionSpace::MultiDiscrete(vec![3, 2]),
        ActionSpace::MultiBinary(3),
        ActionSpace::Continuous(2),
    ]
}

/// Policies of every kind, with the shape of their observations.
fn policies(device: &Device) -> Result<Vec<(String, ActorCritic, Vec<usize>)>> {
    let mut cases = Vec::new();
    for (encoder, shape) in encoders() {
        for memory in memories() {
            for action in actions() {
                for (shared, state_dependent_std) in [(true, true), (false, false)] {
                    let config = PolicyConfig {
                        memory,
                        shared,
                        state_dependent_std: state_dependent_std && matches!(action, ActionSpace::Continuous(_)),
                        ..PolicyConfig::new(encoder.clone(), action.clone())
                    };
                    let name = format!("{shape:?}, {memory:?}, {action:?}, shared: {shared}");
                    cases.push((name, ActorCritic::new(&config, device)?, shape.clone()));
                }
            }
        }
    }
    Ok(cases)
}

fn answers_have_their_shapes(device: &Device) {
    for (name, policy, shape) in policies(device).unwrap() {
        let (config, state) = (policy.config(), policy.initial_state(4).unwrap());
        let size = config.action.outputs();
        // Bytes, the storage format of images, work as well.
        let bytes = (randn(&[&[4], &shape[..]].concat(), device) * 40.0)
            .unwrap()
            .abs()
            .unwrap();
        for x in [bytes.to_dtype(DType::U8).unwrap(), bytes] {
            let output = policy.forward(&x, &state).unwrap();
            assert_eq!(output.action.output().dims(), [4, size], "{name}");
            assert_eq!(
                (output.value().unwrap().dims(), output.value().unwrap().dtype()),
                (vec![4], DType::F32),
                "{name}"
            );
            let std = output.action.log_std().map(|log_std| log_std.dims());
            let expected = match (&config.action, config.state_dependent_std) {
                (ActionSpace::Continuous(_), true) => Some(vec![4, size]),
                (ActionSpace::Continuous(_), false) => Some(vec![size]),
                _ => None,
            };
            assert_eq!(std, expected, "{name}");
            assert_eq!(output.state.parts().len(), state.parts().len(), "{name}");
            for (next, before) in output.state.parts().iter().zip(state.parts()) {
                assert_eq!((next.dims(), before.dims()), (vec![2, 4, 4], vec![2, 4, 4]), "{name}");
                assert!(before.to_f64_vec().unwrap().iter().all(|&x| x == 0.0), "{name}");
            }
        }
    }
}

fn gradients_reach_all_parameters(device: &Device) {
    for (name, policy, shape) in policies(device).unwrap() {
        let x = randn(&[&[2, 3], &shape[..]].concat(), device);
        let starts = Tensor::zeros([2, 3], device).unwrap();
        let output = policy.unroll(&x, &starts, &policy.initial_state(3).unwrap()).unwrap();
        let sum = |x: &Tensor| x.square().unwrap().sum(()).unwrap();
        let mut loss = (sum(output.action.output()) + sum(output.value().unwrap())).unwrap();
        if let Some(log_std) = output.action.log_std() {
            loss = (loss + sum(&log_std.exp().unwrap())).unwrap();
        }
        let gradients = loss.backward().unwrap();
        for (param_name, param) in &policy.named_parameters() {
            let gradient = gradients.require(param).unwrap().to_f64_vec().unwrap();
            assert!(gradient.iter().any(|&g| g != 0.0), "{name}: {param_name}");
        }
    }
}

/// `W Wᵀ` or `Wᵀ W`, whichever is smaller, is `gain² 1`.
fn assert_orthogonal(name: &str, param: &Param, gain: f64) {
    let weight = param
        .tensor()
        .detach()
        .to_dtype(DType::F64)
        .unwrap()
        .flatten(1, -1)
        .unwrap();
    let (rows, columns) = (weight.dims()[0], weight.dims()[1]);
    let product = match rows <= columns {
        true => weight.matmul(&weight.t().unwrap()),
        false => weight.t().unwrap().matmul(&weight),
    };
    let product = product.unwrap();
    let size = rows.min(columns);
    for (i, found) in product.to_f64_vec().unwrap().into_iter().enumerate() {
        let expected = if i % (size + 1) == 0 { gain * gain } else { 0.0 };
        assert!((found - expected).abs() < 1e-6, "{name}: {found}, not {expected}");
    }
}

fn weights_begin_orthogonal(device: &Device) {
    manual_seed(3);
    for (policy_name, policy, ..) in policies(device).unwrap() {
        for (name, param) in policy.named_parameters() {
            let place = format!("{policy_name}: {name}");
            if param.shape().rank() == 1 {
                let values = param.tensor().to_f64_vec().unwrap();
                assert!(values.iter().all(|&x| x == 0.0), "{place}");
                continue;
            }
            let gain = match name.as_str() {
                "actor.weight" => 0.01,
                "critic.weight" => 1.0,
                _ if name.contains("memory") => 1.0,
                _ => 2f64.sqrt(),
            };
            assert_orthogonal(&place, &param, gain);
        }
    }
}

/// PyTorch's defaults: uniform, up to one over the root of the number of inputs.
fn weights_begin_as_the_layers_own_without_ortho_init(device: &Device) {
    manual_seed(3);
    let config = PolicyConfig {
        ortho_init: false,
        ..PolicyConfig::mlp(5, ActionSpace::Continuous(2))
    };
    let policy = ActorCritic::new(&config, device).unwrap();
    let params: std::collections::BTreeMap<String, Param> = policy.named_parameters().into_iter().collect();
    let greatest = |param: &Param| {
        param
            .tensor()
            .to_f64_vec()
            .unwrap()
            .iter()
            .fold(0.0f64, |a, x| a.max(x.abs()))
    };
    let weights = params.iter().filter(|(name, _)| name.ends_with(".weight"));
    assert_eq!(weights.clone().count(), 6);
    for (name, weight) in weights {
        let bound = 1.0 / (weight.shape()[1] as f64).sqrt();
        let found = greatest(weight);
        assert!(found > 0.8 * bound && found <= bound + 1e-6, "{name}: {found}");
        let found = greatest(&params[&name.replace(".weight", ".bias")]);
        assert!(found > 0.0 && found <= bound + 1e-6, "the bias of {name}: {found}");
    }
    // A saved configuration says so, and one without it means orthogonal weights.
    let text = serde_json::to_string(&config).unwrap();
    assert!(text.contains("\"ortho_init\":false"), "{text}");
    assert_eq!(serde_json::from_str::<PolicyConfig>(&text).unwrap(), config);
    let text = serde_json::to_string(&PolicyConfig::mlp(5, ActionSpace::Discrete(2))).unwrap();
    assert!(!text.contains("ortho_init") && serde_json::from_str::<PolicyConfig>(&text).unwrap().ortho_init);
}

fn remembering(kind: MemoryKind, shared: bool, device: &Device) -> ActorCritic {
    let config = PolicyConfig {
        memory: Some(MemoryConfig::new(kind, 5)),
        shared,
        ..PolicyConfig::mlp(3, ActionSpace::Discrete(2))
    };
    let policy = ActorCritic::new(&config, device).unwrap();
    policy.to_dtype(DType::F64).unwrap();
    policy
}

const KINDS: [MemoryKind; 3] = [MemoryKind::Lstm, MemoryKind::Gru, MemoryKind::MinGru];

fn a_memory_lasts_until_it_is_reset(device: &Device) {
    for (kind, shared) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let policy = remembering(kind, shared, device);
        let value =
            |x: &Tensor, state: &PolicyState| policy.forward(x, state).unwrap().value().unwrap().to_f64_vec().unwrap();
        let fresh = policy.initial_state(2).unwrap();
        let (first, second) = (randn(&[2, 3], device), randn(&[2, 3], device));
        let state = policy.forward(&first, &fresh).unwrap().state;
        let (remembering, forgetful) = (value(&second, &state), value(&second, &fresh));
        assert!(remembering.iter().zip(&forgetful).all(|(a, b)| a != b));
        for done in [
            Tensor::new([0.0f32, 1.0], device).unwrap(),
            Tensor::new([false, true], device).unwrap(),
        ] {
            let reset = value(&second, &state.reset(&done).unwrap());
            assert_eq!(reset, [remembering[0], forgetful[1]]);
        }
        // The state is part of the graph until it is detached.
        let of_first = |state: &PolicyState| {
            let loss = state.parts()[0].sum(()).unwrap();
            loss.backward().map(|gradients| gradients.len())
        };
        assert!(of_first(&state).unwrap() > 0);
        assert!(of_first(&state.detach()).is_err());
    }
}

fn assert_close(a: &Tensor, b: &Tensor, what: &str) {
    let (a, b) = (a.to_f64_vec().unwrap(), b.to_f64_vec().unwrap());
    assert!(
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12),
        "{what}: {a:?}, {b:?}"
    );
}

fn unrolled_steps_are_those_one_by_one(device: &Device) {
    for kind in KINDS {
        let policy = remembering(kind, false, device);
        let x = randn(&[4, 2, 3], device);
        let starts = Tensor::new([[0.0f32, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], device).unwrap();
        let mut state = policy.initial_state(2).unwrap();
        let all = policy.unroll(&x, &starts, &state).unwrap();
        assert_eq!(
            (all.action.output().dims(), all.value().unwrap().dims()),
            (vec![4, 2, 2], vec![4, 2])
        );
        for step in 0..4 {
            state = state.reset(&starts.select(0, step).unwrap()).unwrap();
            let one = policy.forward(&x.select(0, step).unwrap(), &state).unwrap();
            assert_close(
                one.action.output(),
                &all.action.output().select(0, step).unwrap(),
                "output",
            );
            assert_close(
                one.value().unwrap(),
                &all.value().unwrap().select(0, step).unwrap(),
                "value",
            );
            state = one.state;
        }
        for (one, all) in state.parts().iter().zip(all.state.parts()) {
            assert_close(one, all, "state");
        }
    }
}

fn distributions_fit_their_actions(device: &Device) {
    for (name, policy, shape) in policies(device).unwrap() {
        let x = randn(&[&[3, 2], &shape[..]].concat(), device);
        let starts = Tensor::zeros([3, 2], device).unwrap();
        let output = policy.unroll(&x, &starts, &policy.initial_state(2).unwrap()).unwrap();
        let distribution = output.action.distribution(None).unwrap();
        for actions in [distribution.sample().unwrap(), distribution.mode().unwrap()] {
            assert_eq!(actions.dims(), [3, 2, policy.config().action.len()], "{name}");
            assert_eq!(distribution.log_prob(&actions).unwrap().dims(), [3, 2], "{name}");
        }
        assert_eq!(distribution.entropy().unwrap().dims(), [3, 2], "{name}");
        let none = distribution.kl_divergence(&distribution).unwrap().to_f64_vec().unwrap();
        assert!(none.iter().all(|x| x.abs() < 1e-6), "{name}: {none:?}");
        let mask = output.action.output().detach().ne(f64::INFINITY).unwrap();
        match policy.config().action {
            ActionSpace::Discrete(_) | ActionSpace::MultiDiscrete(_) => {
                let masked = output.action.distribution(Some(&mask)).unwrap();
                assert_close(&masked.entropy().unwrap(), &distribution.entropy().unwrap(), &name);
            }
            _ => assert!(output.action.distribution(Some(&mask)).is_err(), "{name}"),
        }
    }
}

fn observations_are_normalized(device: &Device) {
    let inner = || ActorCritic::new(&PolicyConfig::mlp(2, ActionSpace::Discrete(2)), device).unwrap();
    let normalizer = Normalizer::new(2, Some(1.5), device).unwrap();
    normalizer.set(&[1.0, -2.0], &[4.0, 0.25]).unwrap();
    assert!(normalizer.set(&[1.0], &[1.0]).is_err());
    let x = Tensor::new([[3.0f32, -2.0], [1.0, 8.0]], device).unwrap();
    let seen = normalizer.forward(&x).unwrap();
    let expected = [1.0, 0.0, 0.0, 1.5];
    let found = seen.to_f64_vec().unwrap();
    assert!(
        found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6),
        "{found:?}"
    );
    let policy = NormalizedPolicy {
        normalizer,
        policy: inner(),
    };
    let state = policy.initial_state(2).unwrap();
    let value = |output: Result<PolicyOutput>| output.unwrap().value().unwrap().to_f64_vec().unwrap();
    assert_eq!(
        value(policy.forward(&x, &state)),
        value(policy.policy.forward(&seen, &state))
    );
    let names: Vec<String> = policy.state_dict().unwrap().keys().map(str::to_owned).collect();
    assert!(names.contains(&"normalizer.mean".to_owned()), "{names:?}");
}

fn actions_have_values(device: &Device) {
    for (encoder, shape) in encoders() {
        for dueling in [false, true] {
            let network = QNetwork::new(&encoder, 3, dueling, device).unwrap();
            let x = randn(&[&[4], &shape[..]].concat(), device);
            let q = network.values(&x).unwrap();
            assert_eq!(q.dims(), [4, 3]);
            // As a policy it gives the same numbers, and no value of the state.
            let answer = network.forward(&x, &network.initial_state(4).unwrap()).unwrap();
            assert_eq!(answer.action.output().to_f64_vec().unwrap(), q.to_f64_vec().unwrap());
            assert!(answer.value().is_err());
            let gradients = q.square().unwrap().sum(()).unwrap().backward().unwrap();
            for (name, param) in &network.named_parameters() {
                assert!(gradients.require(param).is_ok(), "{name}");
            }
            if dueling {
                let value = network.value.as_ref().unwrap();
                value.weight.set(&value.weight.tensor().zeros_like().unwrap()).unwrap();
                let bias = value.bias.as_ref().unwrap();
                bias.set(&Tensor::new([10.0f32], device).unwrap()).unwrap();
                let higher = network
                    .values(&Tensor::zeros([&[1], &shape[..]].concat(), device).unwrap())
                    .unwrap();
                let mean = higher.mean(()).unwrap().to_f64_vec().unwrap()[0];
                assert!(
                    (mean - 10.0).abs() < 1e-5,
                    "the mean of all actions is the state's value, not {mean}"
                );
            }
        }
    }
    assert!(QNetwork::new(&encoders()[0].0, 0, false, device).is_err());
}

fn bad_input_is_told(device: &Device) {
    let told = |error: Option<Error>, part: &str| {
        let error = error.unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    for kind in KINDS {
        let policy = remembering(kind, true, device);
        let state = policy.initial_state(2).unwrap();
        let x = randn(&[2, 3], device);
        told(
            policy.forward(&randn(&[2, 4], device), &state).err(),
            "[N, …] with [3] each",
        );
        let none = PolicyState::new(Vec::new());
        told(policy.forward(&x, &none).err(), "0 tensors, this policy's have");
        assert!(policy.forward(&x, &policy.initial_state(3).unwrap()).is_err());
        let three = Tensor::zeros([3], device).unwrap();
        told(state.reset(&three).err(), "one element for each episode");
        let starts = Tensor::zeros([2, 1], device).unwrap();
        told(
            policy.unroll(&x.unsqueeze(0).unwrap(), &starts, &state).err(),
            "starts [T, N]",
        );
    }
    for action in [
        ActionSpace::Discrete(0),
        ActionSpace::MultiDiscrete(vec![]),
        ActionSpace::MultiDiscrete(vec![2, 0]),
        ActionSpace::Continuous(0),
    ] {
        told(
            ActorCritic::new(&PolicyConfig::mlp(3, action), device).err(),
            "no actions",
        );
    }
    let without_std = PolicyConfig {
        state_dependent_std: true,
        ..PolicyConfig::mlp(3, ActionSpace::Discrete(2))
    };
    told(ActorCritic::new(&without_std, device).err(), "only continuous actions");
    let small = PolicyConfig::cnn([3, 20, 20], ActionSpace::Discrete(2));
    told(
        ActorCritic::new(&small, device).err(),
        "convolution 2, 3×3 with stride 1, does not fit its input of 1×1",
    );
}

#[test]
fn configs_are_json() {
    let json = r#"{"encoder": {"cnn": {"observation_shape": [4, 84, 84]}}, "action": {"discrete": 6}, "shared": true,
        "memory": {"kind": "lstm"}}"#;
    let config: PolicyConfig = serde_json::from_str(json).unwrap();
    let expected = PolicyConfig {
        memory: Some(MemoryConfig::new(MemoryKind::Lstm, 128)),
        ..PolicyConfig::cnn([4, 84, 84], ActionSpace::Discrete(6))
    };
    assert_eq!(config, expected);
    let again = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
    assert_eq!(config, again);
    let misspelt = r#"{"encoder": {"mlp": {"observation_size": 3, "hiden": [4]}}, "action": {"continuous": 1}}"#;
    let error = serde_json::from_str::<PolicyConfig>(misspelt).unwrap_err().to_string();
    assert!(error.contains("hiden"), "{error}");
}
