//! PettingZoo's parallel environments in Python processes: agents are rows.

use std::path::Path;

use polygrad_rl::gym::{self, GymConfig};
use polygrad_rl::zoo::{Algorithm, EnvSpec, Stepping};
use polygrad_rl::*;
use polygrad_tensor::{Device, Result, manual_seed};
use serde_json::{Value, json};

use crate::gym::is_set_up;

fn pair(args: Value) -> Result<&'static EnvSpec> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/gym_cases.py");
    let config = GymConfig {
        args: args.as_object().unwrap().clone(),
        timeout: 30.0,
        ..GymConfig::default()
    };
    gym::find(&format!("{}:Pair", file.display()), &config)
}

#[test]
fn agents_are_rows_that_end_together() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let spec = pair(json!({ "length": 4, "leaves": 2 }))?;
    for stepping in [Stepping::Serial, Stepping::Threaded(2)] {
        let mut envs = spec.make(3, stepping)?;
        assert_eq!((envs.num_envs(), envs.agents(), envs.rows()), (3, 2, 6));
        let mut buffers = StepBuffers::new(&envs);
        envs.reset(3, &mut buffers.observations)?;
        let first = buffers.observations.clone();
        for env in 0..3 {
            let seed = first[4 * env];
            assert_eq!(first[4 * env..][..4], [seed, 0.0, seed + 0.5, 0.0]);
        }
        assert!(first[0] != first[4]);
        for step in 1..=4 {
            let before = buffers.final_observations.clone();
            envs.step(&[1.0, 0.0, 1.0, 1.0, 0.0, 1.0], &mut buffers.as_mut())?;
            let gone = f32::from(u8::from(step <= 2));
            let rewards = [1.0, 10.0 * gone, 1.0, 11.0 * gone, 0.0, 11.0 * gone];
            assert_eq!(buffers.rewards, rewards, "step {step}");
            let over = step == 4;
            assert_eq!(buffers.terminated, [false, over, false, over, false, over]);
            assert_eq!(buffers.truncated, [over, false, over, false, over, false]);
            let seed = first[0];
            let seen = [seed, step as f32, (seed + 0.5) * gone, step as f32 * gone];
            match over {
                false => {
                    assert_eq!(buffers.observations[..4], seen, "step {step}");
                    assert_eq!(buffers.final_observations, before);
                }
                true => {
                    assert_eq!(buffers.final_observations[..4], seen);
                    let next = buffers.observations[0];
                    assert_eq!(buffers.observations[..4], [next, 0.0, next + 0.5, 0.0]);
                    assert!(next != seed);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_policy_of_all_agents_learns_and_plays() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    let spec = pair(json!({ "length": 10, "bonus": 0 }))?;
    let mut preset = spec.preset(Some("ppo"), None)?;
    *preset.algorithm.total_steps_mut() = 16_384;
    *preset.algorithm.learning_rate_mut() = Annealed::Linear(3e-3, 0.0);
    // The observations are seeds, numbers up to 1000.
    let Algorithm::Ppo(config) = &mut preset.algorithm else {
        panic!("another algorithm");
    };
    config.normalize_observations = Some(10.0);
    config.gamma = 0.5;
    manual_seed(1);
    let mut agent = preset
        .algorithm
        .agent(spec.make(4, Stepping::Serial)?, &preset.policy, &device, None)?;
    while !agent.is_done() {
        agent.advance()?;
    }
    // The best return is 10, and random actions reach 5.
    let learnt = agent.mean_return().unwrap_or_default();
    assert!(learnt > 6.5, "{learnt}");
    let policy = agent.trained_policy()?;
    let config = EvaluateConfig {
        episodes: 6,
        ..EvaluateConfig::default()
    };
    let found = evaluate(&*policy, &mut spec.make(2, Stepping::Serial)?, &config)?;
    assert_eq!(found.lengths, [10; 6]);
    assert!(found.mean() > 9.0, "{}", found.mean());
    let mut play = spec.play(&*policy, 0)?;
    play.reset()?;
    while !play.step()? {}
    let returns = play.returns();
    assert_eq!((returns.len(), play.steps()), (2, 10));
    assert!(returns.iter().all(|sum| (9.0..=10.0).contains(sum)), "{returns:?}");
    Ok(())
}

#[test]
fn agents_that_differ_are_told() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let error = pair(json!({ "differ": true })).err().unwrap();
    assert!(
        error
            .message()
            .contains("agents differ in their spaces, and learn one policy"),
        "{error}"
    );
    let error = pair(json!({ "nobody": true })).err().unwrap();
    assert!(error.message().contains("the environment has no agents"), "{error}");
    let error = gym::find("none.of_this:parallel_env", &GymConfig::default())
        .err()
        .unwrap();
    assert!(error.message().contains("none"), "{error}");
    Ok(())
}
