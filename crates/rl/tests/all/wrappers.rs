//! Wrappers around environments.

use polygrad_rl::{
    ActionRepeat, CartPole, Env, EpisodeStatistics, FrameStack, NormalizeObservation, NormalizeReward,
    ObservationNormalizer, Pendulum, RewardNormalizer, Rng, RunningMeanStd, Space, Step, StepBuffers, TMaze, TimeLimit,
    VectorEnv, Vectorized, check_env,
};

/// Two agents that observe the step's number, the second one plus 100, and get it as a reward.
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
    let mut env = TimeLimit::new(Count::default(), 5).unwrap();
    let mut rng = Rng::new(0);
    let mut seen = [0.0; 4];
    for _ in 0..2 {
        env.reset(&mut rng, &mut seen);
        let ends: Vec<_> = (0..5).map(|_| env.step(&[0.0, 0.0], &mut rng, &mut seen)).collect();
        assert!(ends[..4].iter().all(|step| !step.ended()));
        assert!(ends[4].terminated && ends[4].truncated);
    }
    assert!(TimeLimit::new(CartPole::new(), 0).is_err());
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
        let (mean, var) = (
            envs.normalizer().statistics().mean(),
            envs.normalizer().statistics().var(),
        );
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
    assert!((envs.normalizer().statistics().count() - rows).abs() < 0.01);
    for (i, (mean, var)) in envs
        .normalizer()
        .statistics()
        .mean()
        .iter()
        .zip(envs.normalizer().statistics().var())
        .enumerate()
    {
        let column = || {
            raw.iter()
                .flat_map(|step| step.observations.iter().skip(i).step_by(4))
                .map(|x| f64::from(*x))
        };
        let expected = column().sum::<f64>() / rows;
        let spread = column().map(|x| (x - expected) * (x - expected)).sum::<f64>() / rows;
        // The initial statistics weigh as much as 1e-4 of a row.
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
    let of_rewards = serde_json::to_string(envs.normalizer()).unwrap();
    let of_observations = serde_json::to_string(envs.env().normalizer()).unwrap();
    let of_rewards: RewardNormalizer = serde_json::from_str(&of_rewards).unwrap();
    let of_observations: ObservationNormalizer = serde_json::from_str(&of_observations).unwrap();
    assert_eq!(
        (&of_rewards, &of_observations),
        (envs.normalizer(), envs.env().normalizer())
    );

    let mut observations = NormalizeObservation::new(plain()).unwrap();
    observations.set_normalizer(of_observations.clone()).unwrap();
    assert_eq!(observations.observation_space(), &Space::boxed_in(-0.5, 0.5, &[3]));
    observations.freeze(true);
    let mut rewards = NormalizeReward::new(observations, 0.99).unwrap();
    rewards.set_normalizer(of_rewards.clone()).unwrap();
    let mut rewards = rewards.clip(1e-3).unwrap();
    rewards.freeze(true);
    rollout(&mut rewards, 50, |_, seen| {
        assert!(seen.rewards.iter().all(|x| x.abs() <= 1e-3))
    });
    assert_eq!(rewards.env().normalizer(), &of_observations);
    assert_eq!(rewards.normalizer().statistics(), of_rewards.statistics());

    let other = RewardNormalizer::new(3, 0.99).unwrap();
    let error = rewards.set_normalizer(other).unwrap_err();
    assert_eq!(error.message(), "the normalizer is of 3 rows, the environments have 4");
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
    assert!(envs.set_normalizer(ObservationNormalizer::new(3)).is_err());
    let read = |text: &str| {
        serde_json::from_str::<ObservationNormalizer>(text)
            .unwrap_err()
            .to_string()
    };
    for (damaged, message) in [
        (
            r#"{"mean":[0],"var":[-1],"count":5}"#,
            "a variance that no numbers have",
        ),
        (r#"{"mean":[0],"var":[1],"count":0}"#, "a variance that no numbers have"),
        (r#"{"mean":[0],"var":[1,1],"count":5}"#, "1 means and 2 variances"),
    ] {
        let error = read(&format!(r#"{{"statistics":{damaged},"clip":null}}"#));
        assert!(error.contains(message), "{error}");
    }
    let error = read(r#"{"statistics":{"mean":[0],"var":[1],"count":5},"clip":-1}"#);
    assert!(error.contains("cut off at -1"), "{error}");
    assert!(RunningMeanStd::new(3).update(&[0.0; 4]).is_err());
}

#[test]
fn wide_rows_are_as_each_of_their_columns() {
    let (width, rows) = (37, 5);
    let mut rng = Rng::new(3);
    let mut seen: Vec<f32> = (0..width * rows).map(|_| 3.0 + rng.normal() as f32).collect();
    let mut all = ObservationNormalizer::new(width);
    all.update(&seen).unwrap();
    let columns: Vec<Vec<f32>> = (0..width)
        .map(|column| {
            let mut own: Vec<f32> = seen.iter().skip(column).step_by(width).copied().collect();
            let mut alone = ObservationNormalizer::new(1);
            alone.update(&own).unwrap();
            assert_eq!(
                (alone.mean()[0], alone.var()[0]),
                (all.mean()[column], all.var()[column])
            );
            alone.normalize(&mut own).unwrap();
            own
        })
        .collect();
    all.normalize(&mut seen).unwrap();
    for (i, x) in seen.iter().enumerate() {
        assert_eq!(*x, columns[i % width][i / width]);
    }
    assert!(all.normalize(&mut [0.0; 38]).is_err() && all.update(&[0.0; 36]).is_err());
}

#[test]
fn rows_of_episodes_are_added_in_parts() {
    let mut statistics = EpisodeStatistics::new(4);
    let mut finished = Vec::new();
    statistics
        .add(2..4, &[1.0, 2.0], &[false; 2], &[false; 2], &mut finished)
        .unwrap();
    statistics
        .add(0..2, &[5.0, 6.0], &[true, false], &[false, true], &mut finished)
        .unwrap();
    statistics
        .add(2..4, &[0.5, 0.25], &[false; 2], &[false, true], &mut finished)
        .unwrap();
    let ended: Vec<_> = finished
        .iter()
        .map(|episode| (episode.row, episode.total_reward, episode.length))
        .collect();
    assert_eq!(ended, [(0, 5.0, 1), (1, 6.0, 1), (3, 2.25, 2)]);
    assert_eq!(
        (statistics.totals(), statistics.lengths()),
        (&[0.0, 0.0, 1.5, 0.0][..], &[0, 0, 2, 0][..])
    );
    let saved = serde_json::to_string(&statistics).unwrap();
    assert_eq!(serde_json::from_str::<EpisodeStatistics>(&saved).unwrap(), statistics);
    assert!(
        statistics
            .add(3..5, &[0.0; 2], &[false; 2], &[false; 2], &mut finished)
            .is_err()
    );
    assert!(
        statistics
            .add(0..2, &[0.0; 3], &[false; 2], &[false; 2], &mut finished)
            .is_err()
    );
    statistics.reset();
    assert_eq!(statistics, EpisodeStatistics::new(4));
}
