//! Policies: shapes, initial values, gradients, and what they remember.

use crate::common::randn;
use polygrad_nn::models::*;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, Result, Tensor, manual_seed};

on_backends!(
    answers_have_their_shapes,
    gradients_reach_all_parameters,
    weights_begin_orthogonal,
    an_lstm_remembers_until_it_is_reset,
    unrolled_steps_are_those_one_by_one,
    bad_input_is_told,
);

fn encoders() -> [(EncoderConfig, Vec<usize>); 2] {
    let mlp = MlpEncoderConfig {
        hidden: vec![8, 6],
        ..MlpEncoderConfig::new(5)
    };
    [
        (EncoderConfig::Mlp(mlp), vec![5]),
        (EncoderConfig::Cnn(small_cnn()), vec![2, 9, 8]),
    ]
}

fn small_cnn() -> CnnEncoderConfig {
    let layer = |channels, kernel, stride| ConvLayer {
        channels,
        kernel,
        stride,
    };
    CnnEncoderConfig {
        convolutions: vec![layer(4, 4, 2), layer(3, 2, 1)],
        hidden: vec![7],
        ..CnnEncoderConfig::new([2, 9, 8])
    }
}

type Case<B> = (String, Box<dyn Policy<B>>, Vec<usize>, ActionSpace);

/// Every kind of policy, with the shape of its observations.
fn policies<B: Backend>(device: &Device<B>) -> Result<Vec<Case<B>>> {
    let mut cases: Vec<Case<B>> = Vec::new();
    for action in [ActionSpace::Discrete(3), ActionSpace::Continuous(2)] {
        for shared in [true, false] {
            let name = |kind: &str| format!("{kind} {action:?} shared: {shared}");
            for (encoder, shape) in encoders() {
                match encoder.clone() {
                    EncoderConfig::Mlp(encoder) => {
                        let config = MlpPolicyConfig {
                            encoder,
                            action,
                            shared,
                        };
                        let policy = Box::new(MlpPolicy::new(&config, device)?);
                        cases.push((name("Mlp"), policy, shape.clone(), action));
                    }
                    EncoderConfig::Cnn(encoder) => {
                        let config = CnnPolicyConfig {
                            encoder,
                            action,
                            shared,
                        };
                        let policy = Box::new(CnnPolicy::new(&config, device)?);
                        cases.push((name("Cnn"), policy, shape.clone(), action));
                    }
                }
                let config = LstmPolicyConfig {
                    hidden_size: 4,
                    num_layers: 2,
                    shared,
                    ..LstmPolicyConfig::new(encoder, action)
                };
                cases.push((name("Lstm"), Box::new(LstmPolicy::new(&config, device)?), shape, action));
            }
        }
    }
    Ok(cases)
}

fn observations<B: Backend>(leading: &[usize], shape: &[usize], device: &Device<B>) -> Tensor<B> {
    randn(&[leading, shape].concat(), device)
}

fn answers_have_their_shapes<B: Backend>(device: &Device<B>) {
    for (name, policy, shape, action) in policies(device).unwrap() {
        let state = policy.initial_state(4).unwrap();
        // Bytes, as images are stored, do as well.
        let bytes = (observations(&[4], &shape, device) * 40.0).unwrap().abs().unwrap();
        for x in [bytes.to_dtype(DType::U8).unwrap(), bytes] {
            let (params, value, next) = policy.forward(&x, &state).unwrap();
            assert_eq!(params.output().dims(), [4, action.size()], "{name}");
            assert_eq!((value.dims(), value.dtype()), (vec![4], DType::F32), "{name}");
            match (params, action) {
                (ActionParams::Logits(_), ActionSpace::Discrete(_)) => {}
                (ActionParams::Gaussian { log_std, .. }, ActionSpace::Continuous(size)) => {
                    assert_eq!(log_std.to_f64_vec().unwrap(), vec![0.0; size], "{name}");
                }
                _ => panic!("{name}: not the distribution of its actions"),
            }
            assert_eq!(next.parts().len(), state.parts().len(), "{name}");
            for (next, before) in next.parts().iter().zip(state.parts()) {
                assert_eq!(next.dims(), before.dims(), "{name}");
                assert_eq!(next.dims(), [2, 4, 4], "{name}");
                assert!(before.to_f64_vec().unwrap().iter().all(|&x| x == 0.0), "{name}");
            }
        }
    }
}

fn gradients_reach_all_parameters<B: Backend>(device: &Device<B>) {
    for (name, policy, shape, _) in policies(device).unwrap() {
        let params = policy.named_parameters();
        let x = observations(&[2, 3], &shape, device);
        let starts = Tensor::zeros([2, 3], device).unwrap();
        let (action, value, _) = policy.unroll(&x, &starts, &policy.initial_state(3).unwrap()).unwrap();
        let mut loss = (action.output().square().unwrap().sum_all().unwrap()
            + value.square().unwrap().sum_all().unwrap())
        .unwrap();
        if let ActionParams::Gaussian { log_std, .. } = &action {
            loss = (loss + log_std.exp().unwrap().sum_all().unwrap()).unwrap();
        }
        let gradients = loss.backward().unwrap();
        for (param_name, param) in &params {
            let gradient = gradients.require(param).unwrap().to_f64_vec().unwrap();
            assert!(gradient.iter().any(|&g| g != 0.0), "{name}: {param_name}");
        }
    }
}

/// `W Wᵀ` or `Wᵀ W`, whichever is smaller, is `gain² 1`.
fn assert_orthogonal<B: Backend>(name: &str, param: &Param<B>, gain: f64) {
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

fn weights_begin_orthogonal<B: Backend>(device: &Device<B>) {
    manual_seed(3);
    for (policy_name, policy, ..) in policies(device).unwrap() {
        for (name, param) in policy.named_parameters() {
            let place = format!("{policy_name}: {name}");
            if param.shape().rank() == 1 {
                assert!(
                    param.tensor().to_f64_vec().unwrap().iter().all(|&x| x == 0.0),
                    "{place}"
                );
                continue;
            }
            let gain = match name.as_str() {
                "actor.weight" => 0.01,
                "critic.weight" => 1.0,
                _ if name.contains("lstm") => 1.0,
                _ => 2f64.sqrt(),
            };
            assert_orthogonal(&place, &param, gain);
        }
    }
}

fn lstm<B: Backend>(device: &Device<B>, shared: bool) -> LstmPolicy<B> {
    let encoder = EncoderConfig::Mlp(MlpEncoderConfig::new(3));
    let config = LstmPolicyConfig {
        hidden_size: 5,
        shared,
        ..LstmPolicyConfig::new(encoder, ActionSpace::Discrete(2))
    };
    let policy = LstmPolicy::new(&config, device).unwrap();
    policy.to_dtype(DType::F64).unwrap();
    policy
}

fn an_lstm_remembers_until_it_is_reset<B: Backend>(device: &Device<B>) {
    for shared in [true, false] {
        let policy = lstm(device, shared);
        let value = |x: &Tensor<B>, state: &PolicyState<B>| policy.forward(x, state).unwrap().1.to_f64_vec().unwrap();
        let fresh = policy.initial_state(2).unwrap();
        let (first, second) = (randn(&[2, 3], device), randn(&[2, 3], device));
        let (_, _, state) = policy.forward(&first, &fresh).unwrap();
        let (remembering, forgetful) = (value(&second, &state), value(&second, &fresh));
        assert!(remembering.iter().zip(&forgetful).all(|(a, b)| a != b));
        for done in [
            Tensor::new([0.0f32, 1.0], device).unwrap(),
            Tensor::new([false, true], device).unwrap(),
        ] {
            let reset = value(&second, &state.reset(&done).unwrap());
            assert_eq!(reset, [remembering[0], forgetful[1]]);
        }
        // The memory is part of the graph until it is cut off.
        let of_first = |state: &PolicyState<B>| {
            let loss = state.parts()[0].sum_all().unwrap();
            loss.backward().map(|gradients| gradients.len())
        };
        assert!(of_first(&state).unwrap() > 0);
        assert!(of_first(&state.detach()).is_err());
    }
}

fn unrolled_steps_are_those_one_by_one<B: Backend>(device: &Device<B>) {
    let policy = lstm(device, false);
    let x = randn(&[4, 2, 3], device);
    let starts = Tensor::new([[0.0f32, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], device).unwrap();
    let mut state = policy.initial_state(2).unwrap();
    let (action, values, last) = policy.unroll(&x, &starts, &state).unwrap();
    assert_eq!((action.output().dims(), values.dims()), (vec![4, 2, 2], vec![4, 2]));
    for step in 0..4 {
        state = state.reset(&starts.select(0, step).unwrap()).unwrap();
        let (one, value, next) = policy.forward(&x.select(0, step).unwrap(), &state).unwrap();
        let at = |all: &Tensor<B>| all.select(0, step).unwrap().to_f64_vec().unwrap();
        assert_eq!(one.output().to_f64_vec().unwrap(), at(action.output()));
        assert_eq!(value.to_f64_vec().unwrap(), at(&values));
        state = next;
    }
    for (one, all) in state.parts().iter().zip(last.parts()) {
        assert_eq!(one.to_f64_vec().unwrap(), all.to_f64_vec().unwrap());
    }
}

fn bad_input_is_told<B: Backend>(device: &Device<B>) {
    let policy = lstm(device, true);
    let state = policy.initial_state(2).unwrap();
    let told = |error: polygrad_tensor::Error, part: &str| {
        let error = error.to_string();
        assert!(error.contains(part), "{error}");
    };
    let x = randn(&[2, 3], device);
    told(
        policy.forward(&randn(&[2, 4], device), &state).err().unwrap(),
        "[N, …] with [3] each",
    );
    told(
        policy.forward(&x, &PolicyState::new(Vec::new())).err().unwrap(),
        "0 tensors, this policy's have 2",
    );
    told(
        policy.forward(&x, &policy.initial_state(3).unwrap()).err().unwrap(),
        "LSTM",
    );
    told(
        state.reset(&Tensor::zeros([3], device).unwrap()).err().unwrap(),
        "one element for each episode",
    );
    told(
        policy
            .unroll(
                &x.unsqueeze(0).unwrap(),
                &Tensor::zeros([2, 1], device).unwrap(),
                &state,
            )
            .err()
            .unwrap(),
        "starts [T, N]",
    );
    let none = MlpPolicyConfig::new(3, ActionSpace::Discrete(0));
    told(MlpPolicy::<B>::new(&none, device).err().unwrap(), "no actions");
    let small = CnnPolicyConfig::new([3, 20, 20], ActionSpace::Discrete(2));
    told(
        CnnPolicy::<B>::new(&small, device).err().unwrap(),
        "convolution 2, 3×3 with stride 1, does not fit its input of 1×1",
    );
}

#[test]
fn configs_are_json() {
    let json = r#"{"encoder": {"cnn": {"observation_shape": [4, 84, 84]}}, "action": {"discrete": 6}}"#;
    let config: LstmPolicyConfig = serde_json::from_str(json).unwrap();
    let encoder = EncoderConfig::Cnn(CnnEncoderConfig::new([4, 84, 84]));
    assert_eq!(config, LstmPolicyConfig::new(encoder, ActionSpace::Discrete(6)));
    let again = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
    assert_eq!(config, again);
    let config: MlpPolicyConfig =
        serde_json::from_str(r#"{"encoder": {"observation_size": 3}, "action": {"continuous": 1}}"#).unwrap();
    assert_eq!(config, MlpPolicyConfig::new(3, ActionSpace::Continuous(1)));
    let misspelt = r#"{"encoder": {"observation_size": 3, "hiden": [4]}, "action": {"continuous": 1}}"#;
    let error = serde_json::from_str::<MlpPolicyConfig>(misspelt)
        .unwrap_err()
        .to_string();
    assert!(error.contains("hiden"), "{error}");
}
