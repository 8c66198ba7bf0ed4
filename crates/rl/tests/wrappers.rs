//! What is put around environments.

use polygrad_rl::{
    ActionRepeat, CartPole, Env, FrameStack, NormalizeObservation, NormalizeReward, NormalizeRewardState, Pendulum,
    Rng, RunningMeanStd, Space, Step, StepBuffers, TMaze, TimeLimit, VectorEnv, Vectorized, check_env,
};

/// Two agents who see the step's number, the second one more by 100, and get it as a reward.
#[derive(Default)]
struct Count {
    steps: usize,
}

impl Count {
    fn show(&self, observation: &mut [f32]) {
        let now = self.steps as f32;
        observation.copy_from_slice(&[now, -now, 100.0 + now, -now]);
    }
}

impl Env<2> for Count {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0, -10.0], &[200.0, 0.0])
    }
    fn action_space(&self) -> Space {
        Space::discrete(2)
    }
    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        self.steps = 0;
        self.show(observation);
    }
    fn step(&mut self, _action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step<2> {
        self.steps += 1;
        self.show(observation);
        let reward = self.steps as f64;
        Step {
            rewards: [reward, -reward],
            terminated: self.steps >= 5,
            truncated: false,
        }
    }
}

#[test]
fn frames_are_stacked_for_each_agent() {
    let mut env = FrameStack::new(Count::default(), 3).unwrap();
    let Space::Box { low, shape, .. } = env.observation_space() else {
        panic!("no box");
    };
    assert_eq!((shape, low), (vec![3, 2], vec![0.0, -10.0, 0.0, -10.0, 0.0, -10.0]));
    let mut rng = Rng::new(0);
    let mut seen = [9.0; 12];
    env.reset(&mut rng, &mut seen);
    assert_eq!(seen, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 100.0, 0.0, 100.0, 0.0, 100.0, 0.0]);
    env.step(&[0.0, 0.0], &mut rng, &mut seen);
    env.step(&[0.0, 0.0], &mut rng, &mut seen);
    assert_eq!(
        seen,
        [0.0, 0.0, 1.0, -1.0, 2.0, -2.0, 100.0, 0.0, 101.0, -1.0, 102.0, -2.0]
    );
    check_env(&mut env).unwrap();
    check_env(&mut FrameStack::new(TMaze::new(3).unwrap(), 4).unwrap()).unwrap();
    assert!(FrameStack::new(CartPole::new(), 0).is_err());
}

#[test]
fn rewards_of_repeated_actions_add_up() {
    let mut env = ActionRepeat::new(Count::default(), 3).unwrap();
    let mut rng = Rng::new(0);
    let mut seen = [0.0; 4];
    env.reset(&mut rng, &mut seen);
    let step = env.step(&[0.0, 0.0], &mut rng, &mut seen);
    assert_eq!((step.rewards, step.ended(), seen[0]), ([6.0, -6.0], false, 3.0));
    // The episode ends after two more.
    let step = env.step(&[0.0, 0.0], &mut rng, &mut seen);
    assert_eq!((step.rewards, step.terminated, seen[0]), ([9.0, -9.0], true, 5.0));
    assert!(ActionRepeat::new(CartPole::new(), 0).is_err());
}

#[test]
fn a_limit_counts_from_the_reset() {
    let mut env = TimeLimit::new(Count::default(), 5);
    let mut rng = Rng::new(0);
    let mut seen = [0.0; 4];
    for _ in 0..2 {
        env.reset(&mut rng, &mut seen);
        let ends: Vec<_> = (0..5).map(|_| env.step(&[0.0, 0.0], &mut rng, &mut seen)).collect();
        assert!(ends[..4].iter().all(|step| !step.ended()));
        assert!(ends[4].terminated && ends[4].truncated);
    }
}

fn rollout<V: VectorEnv>(envs: &mut V, steps: usize, mut look: impl FnMut(&V, &StepBuffers)) {
    let mut buffers = StepBuffers::new(envs);
    let mut rng = Rng::new(2);
    let mut actions = vec![0.0; envs.rows() * envs.action_space().len()];
    envs.reset(5, &mut buffers.observations).unwrap();
    look(envs, &buffers);
    for _ in 0..steps {
        for action in actions.chunks_mut(envs.action_space().len()) {
            envs.action_space().sample(&mut rng, action);
        }
        envs.step(&actions, &mut buffers.as_mut()).unwrap();
        look(envs, &buffers);
    }
}

#[test]
fn observations_are_normalized_by_what_all_rows_have_seen() {
    let plain = || Vectorized::new(|_| CartPole::v1(), 8).unwrap();
    let mut raw = Vec::new();
    rollout(&mut plain(), 400, |_, buffers| raw.push(buffers.clone()));
    let mut envs = NormalizeObservation::new(plain()).unwrap();
    let (mut number, mut ended) = (0, 0);
    rollout(&mut envs, 400, |envs, seen| {
        let (mean, var) = (envs.statistics().mean(), envs.statistics().var());
        let expected = |x: f32, i: usize| ((f64::from(x) - mean[i]) / (var[i] + 1e-8).sqrt()) as f32;
        for (i, x) in seen.observations.iter().enumerate() {
            assert_eq!(*x, expected(raw[number].observations[i], i % 4));
        }
        for row in (0..8).filter(|row| seen.terminated[*row]) {
            ended += 1;
            for i in row * 4..(row + 1) * 4 {
                assert_eq!(
                    seen.final_observations[i],
                    expected(raw[number].final_observations[i], i % 4)
                );
            }
        }
        number += 1;
    });
    assert!(ended > 50 && number == 401);
    let rows = 8.0 * 401.0;
    assert!((envs.statistics().count() - rows).abs() < 0.01);
    for (i, (mean, var)) in envs.statistics().mean().iter().zip(envs.statistics().var()).enumerate() {
        let column = || {
            raw.iter()
                .flat_map(|step| step.observations.iter().skip(i).step_by(4))
                .map(|x| f64::from(*x))
        };
        let expected = column().sum::<f64>() / rows;
        let spread = column().map(|x| (x - expected) * (x - expected)).sum::<f64>() / rows;
        // What counts as seen in the beginning weighs 1e-4 of a row.
        assert!(
            (mean - expected).abs() < 1e-6 && (var - spread).abs() < 1e-6,
            "{mean} {expected}, {var} {spread}"
        );
    }
}

#[test]
fn statistics_are_saved_and_stay_when_frozen() {
    let plain = || Vectorized::new(|_| Pendulum::v1(), 4).unwrap();
    let mut envs = NormalizeReward::new(NormalizeObservation::new(plain()).unwrap().clip(0.5).unwrap(), 0.99).unwrap();
    let mut cut = 0;
    rollout(&mut envs, 50, |_, seen| {
        assert!(seen.observations.iter().all(|x| x.abs() <= 0.5));
        cut += seen.observations.iter().filter(|x| x.abs() == 0.5).count();
    });
    assert!(cut > 0);
    let saved = serde_json::to_string(envs.state()).unwrap();
    let of_observations = serde_json::to_string(envs.env().statistics()).unwrap();
    let state: NormalizeRewardState = serde_json::from_str(&saved).unwrap();
    let statistics: RunningMeanStd = serde_json::from_str(&of_observations).unwrap();
    assert_eq!((&state, &statistics), (envs.state(), envs.env().statistics()));

    let mut observations = NormalizeObservation::new(plain()).unwrap();
    observations.set_statistics(statistics.clone()).unwrap();
    observations.freeze(true);
    let mut rewards = NormalizeReward::new(observations, 0.99).unwrap().clip(1e-3).unwrap();
    rewards.set_state(state.clone()).unwrap();
    rewards.freeze(true);
    rollout(&mut rewards, 50, |_, seen| {
        assert!(seen.rewards.iter().all(|x| x.abs() <= 1e-3))
    });
    assert_eq!(rewards.env().statistics(), &statistics);
    assert_eq!(rewards.state().statistics, state.statistics);

    let error = rewards
        .set_state(NormalizeRewardState {
            returns: vec![0.0; 3],
            ..state
        })
        .unwrap_err();
    assert_eq!(error.message(), "the state is of 3 rows, the environments have 4");
}

#[test]
fn what_cannot_be_normalized_is_refused() {
    let mazes = Vectorized::new(|_| TMaze::new(2).unwrap(), 2).unwrap();
    let error = NormalizeObservation::new(mazes).err().unwrap();
    assert!(
        error.to_string().contains("only a `Space::Box` can be normalized"),
        "{error}"
    );
    let poles = || Vectorized::new(|_| CartPole::v1(), 2).unwrap();
    assert!(NormalizeReward::new(poles(), 1.1).is_err());
    assert!(NormalizeReward::new(poles(), f64::NAN).is_err());
    assert!(NormalizeObservation::new(poles()).unwrap().clip(0.0).is_err());
    let mut envs = NormalizeObservation::new(poles()).unwrap();
    assert!(envs.set_statistics(RunningMeanStd::new(3)).is_err());
    let broken = r#"{"mean":[0,0,0,0],"var":[1,1,-1,1],"count":5}"#;
    let error = envs.set_statistics(serde_json::from_str(broken).unwrap()).unwrap_err();
    assert!(error.message().contains("a variance that no numbers have"), "{error}");
    assert!(RunningMeanStd::new(3).update(&[0.0; 4]).is_err());
}
