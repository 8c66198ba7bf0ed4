//! PPO on every backend: steps on recorded rollouts, compared with the CPU's.

use std::path::Path;

use polygrad::nn::{Module, StateDict, TrainStep};
use polygrad::optim::AdamConfig;
use polygrad::prelude::*;
use polygrad::rl::*;

use crate::devices;

const STEPS: usize = 20;

/// Files in crates/rl/tests/data/ppo, with the config of each policy.
fn cases() -> [(&'static str, PolicyConfig); 4] {
    let encoder = MlpEncoderConfig {
        hidden: vec![8, 8],
        ..MlpEncoderConfig::new(4)
    };
    let policy = |action| PolicyConfig::new(EncoderConfig::Mlp(encoder.clone()), action);
    let remembering = |kind| PolicyConfig {
        memory: Some(MemoryConfig::new(kind, 6)),
        shared: true,
        ..policy(ActionSpace::Discrete(2))
    };
    [
        ("masked", policy(ActionSpace::Discrete(4))),
        ("continuous", policy(ActionSpace::Continuous(2))),
        ("lstm", remembering(MemoryKind::Lstm)),
        ("min_gru", remembering(MemoryKind::MinGru)),
    ]
}

/// The whole rollout in f32: `[T * N, …]`; for a policy with memory `[T, N, …]`, and its first state.
fn batch(recorded: &StateDict, device: &Device) -> Result<PpoBatch> {
    let has_memory = recorded.contains("rollout/state_0");
    let whole = |name: &str| {
        let host = recorded.get(name).ok_or_else(|| Error::invalid(name.to_owned()))?;
        Tensor::from_host(host.cast(DType::F32), device)
    };
    let steps = |name: &str| match has_memory {
        true => whole(name),
        false => whole(name)?.flatten(0, 1),
    };
    let actions = steps("rollout/actions")?;
    let log_probs = steps("rollout/log_probs")?;
    let states = ["rollout/state_0", "rollout/state_1"].into_iter();
    let states = states.filter(|name| recorded.contains(name)).map(whole);
    let masks = recorded
        .contains("rollout/masks")
        .then(|| steps("rollout/masks")?.to_dtype(DType::Bool));
    Ok(PpoBatch {
        observations: steps("rollout/observations")?,
        actions: if actions.rank() == log_probs.rank() {
            actions.unsqueeze(-1)?
        } else {
            actions
        },
        masks: masks.transpose()?,
        advantages: steps("advantages")?,
        returns: steps("returns")?,
        values: steps("rollout/values")?,
        sequence: match has_memory {
            true => Some((
                steps("rollout/starts")?,
                PolicyState::new(states.collect::<Result<_>>()?),
            )),
            false => None,
        },
        log_probs,
    })
}

/// The losses of captured steps, and the final weights.
fn trained(recorded: &StateDict, config: &PolicyConfig, device: &Device) -> Result<(Vec<f64>, Vec<f64>)> {
    let policy: ActorCritic = ActorCritic::new(config, device)?;
    policy.load_state_dict(&recorded.with_prefix("weights/"), true)?;
    let weights = PpoWeights {
        clip: Tensor::from_vec(vec![0.2f32], (), device)?,
        entropy: Tensor::from_vec(vec![0.01f32], (), device)?,
        value: 0.5,
        clip_value: true,
        normalize_advantages: true,
    };
    let batch = batch(recorded, device)?;
    let optimizer = AdamConfig::new(1e-3).eps(1e-5).build(policy.parameters())?;
    let observations = batch.observations.clone();
    let loss = move |policy: &ActorCritic, _: &[Tensor]| Ok(ppo_loss(policy, &batch, &weights)?.loss);
    let mut step = TrainStep::new(policy, optimizer, loss).clip_grad_norm(0.5).captured();
    let inputs = [observations];
    let losses = (0..STEPS).map(|_| step.step(&inputs)?.item()).collect::<Result<_>>()?;
    assert_eq!(step.refusal(), None);
    let mut all = Vec::new();
    for param in step.model().parameters() {
        all.extend(param.tensor().to_f64_vec()?);
    }
    Ok((losses, all))
}

#[test]
fn steps_of_ppo_come_to_the_same_on_all_backends() {
    for (name, config) in cases() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rl/tests/data/ppo");
        let recorded = StateDict::load(folder.join(format!("{name}.safetensors"))).unwrap();
        let mut expected = None;
        for (spec, device) in devices().unwrap() {
            let found = trained(&recorded, &config, &device).unwrap();
            let (losses, weights) = expected.get_or_insert_with(|| found.clone());
            assert!(losses[STEPS - 1] < losses[0], "{name}: {losses:?}");
            let pairs = found.0.iter().chain(&found.1).zip(losses.iter().chain(weights.iter()));
            for (found, expected) in pairs {
                let apart = (found - expected).abs();
                assert!(
                    apart <= 1e-4 * (1.0 + expected.abs()),
                    "{name} on {spec}: {found} for {expected}"
                );
            }
        }
    }
}
