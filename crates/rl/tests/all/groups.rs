//! Groups that step independently: the same numbers, and errors that name the faulty environment.

use crate::common::{Cards, Guess, MaskFlaw, Seen, choose, play};
use polygrad_rl::{
    CartPole, ConnectFour, Env, NormalizeReward, Pendulum, RecordEpisodeStatistics, Rng, Space, Step, StepBuffers,
    TimeLimit, VectorEnv, Vectorized,
};

/// The result of [`play`] with groups that step one or two steps apart from each other, in a random order.
///
/// Actions of a row come from its own generator, so that the order cannot matter; `by_rows` does the same with whole
/// steps.
fn play_apart<V: VectorEnv>(mut envs: V, seed: u64, steps: usize, order: u64) -> Vec<Seen> {
    let (space, width) = (envs.action_space().clone(), envs.observation_space().len());
    let entries = space.flat_len();
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(seed, &mut buffers.observations).unwrap();
    let masks = |envs: &V| envs.action_masks().map(<[bool]>::to_vec);
    let mut seen = vec![(buffers.clone(), masks(&envs)); steps + 1];
    let mut rngs: Vec<Rng> = (0..envs.rows() as u64).map(Rng::new).collect();
    let mut actions = vec![0.0; envs.rows() * space.len()];
    let groups = envs.groups();
    let (mut begun, mut done) = (vec![0; groups], vec![0; groups]);
    let mut chance = Rng::new(order);
    while done.iter().any(|done| *done < steps) {
        let group = chance.below(groups);
        let rows = envs.group_rows(group);
        if begun[group] == done[group] && done[group] < steps {
            for row in rows.clone() {
                let action = &mut actions[row * space.len()..(row + 1) * space.len()];
                match envs.action_masks() {
                    Some(masks) => {
                        space.sample_masked(&masks[row * entries..(row + 1) * entries], &mut rngs[row], action)
                    }
                    None => space.sample(&mut rngs[row], action),
                }
            }
            envs.begin_step(group, &actions[rows.start * space.len()..rows.end * space.len()])
                .unwrap();
            begun[group] += 1;
        } else if begun[group] > done[group] {
            done[group] += 1;
            envs.finish_step(group, &mut buffers.as_mut().rows(rows.clone()))
                .unwrap();
            let (to, to_masks) = &mut seen[done[group]];
            let mut to = to.as_mut();
            let to = to.rows(rows.clone());
            to.rewards.copy_from_slice(&buffers.rewards[rows.clone()]);
            to.terminated.copy_from_slice(&buffers.terminated[rows.clone()]);
            to.truncated.copy_from_slice(&buffers.truncated[rows.clone()]);
            let numbers = rows.start * width..rows.end * width;
            to.observations.copy_from_slice(&buffers.observations[numbers.clone()]);
            to.final_observations
                .copy_from_slice(&buffers.final_observations[numbers]);
            if let (Some(to), Some(from)) = (to_masks, envs.action_masks()) {
                let entries = rows.start * entries..rows.end * entries;
                to[entries.clone()].copy_from_slice(&from[entries]);
            }
        }
    }
    seen
}

/// The same with all rows at once.
fn by_rows<V: VectorEnv>(mut envs: V, seed: u64, steps: usize) -> Vec<Seen> {
    let space = envs.action_space().clone();
    let entries = space.flat_len();
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(seed, &mut buffers.observations).unwrap();
    let mut seen = vec![(buffers.clone(), envs.action_masks().map(<[bool]>::to_vec))];
    let mut rngs: Vec<Rng> = (0..envs.rows() as u64).map(Rng::new).collect();
    let mut actions = vec![0.0; envs.rows() * space.len()];
    for _ in 0..steps {
        for (row, action) in actions.chunks_mut(space.len()).enumerate() {
            match envs.action_masks() {
                Some(masks) => space.sample_masked(&masks[row * entries..(row + 1) * entries], &mut rngs[row], action),
                None => space.sample(&mut rngs[row], action),
            }
        }
        envs.step(&actions, &mut buffers.as_mut()).unwrap();
        seen.push((buffers.clone(), envs.action_masks().map(<[bool]>::to_vec)));
    }
    seen
}

fn each<E: Env<A> + Send + 'static, const A: usize>(
    name: &str,
    make: impl Fn(usize) -> E + Copy,
    n: usize,
    steps: usize,
) {
    let whole = play(Vectorized::new(make, n).unwrap(), 3, steps);
    let rows = by_rows(Vectorized::new(make, n).unwrap(), 3, steps);
    let ends = |seen: &[Seen]| {
        seen.iter()
            .any(|(seen, _)| seen.terminated.contains(&true) || seen.truncated.contains(&true))
    };
    assert!(ends(&whole) && ends(&rows), "{name}");
    for threads in [1, 2, 3, 8] {
        let envs = || Vectorized::asynchronous(make, n, threads).unwrap();
        assert!(envs().groups() > 1, "{name}");
        assert!(play(envs(), 3, steps) == whole, "{name}, {threads} threads");
        assert!(
            play(Vectorized::threaded(make, n, threads).unwrap(), 3, steps) == whole,
            "{name}"
        );
        for order in 0..3 {
            assert!(
                play_apart(envs(), 3, steps, order) == rows,
                "{name}, {threads} threads, order {order}"
            );
        }
    }
}

#[test]
fn groups_change_nothing() {
    each("CartPole", |_| CartPole::v1(), 13, 3000);
    each("Pendulum", |_| TimeLimit::new(Pendulum::new(), 7).unwrap(), 8, 300);
    each("Guess", |_| Guess::default(), 5, 300);
    each("ConnectFour", |_| ConnectFour::new(), 6, 100);
    each("Cards", |_| Cards::new(MaskFlaw::None), 11, 300);
}

#[test]
fn groups_have_four_rows() {
    let groups = |n, threads| {
        let envs = Vectorized::asynchronous(|_| CartPole::v1(), n, threads).unwrap();
        let ranges = (0..envs.groups()).map(|group| envs.group_rows(group));
        ranges.map(|rows| (rows.start, rows.end)).collect::<Vec<_>>()
    };
    assert_eq!(groups(8, 1), [(0, 4), (4, 8)]);
    assert_eq!(groups(7, 4), [(0, 7)]);
    assert_eq!(groups(1, 1), [(0, 1)]);
    assert_eq!(groups(13, 5), [(0, 4), (4, 8), (8, 13)]);
    assert_eq!(groups(64, 4), [(0, 16), (16, 32), (32, 48), (48, 64)]);
    // Two agents make two rows.
    let envs = Vectorized::asynchronous(|_| Guess::default(), 5, 2).unwrap();
    assert_eq!(
        (envs.groups(), envs.group_rows(0), envs.group_rows(1)),
        (2, 0..4, 4..10)
    );
    assert_eq!(envs.group_rows(2), 0..0);
    // Other environments have one group with all rows.
    for threads in [1, 2] {
        let envs = Vectorized::threaded(|_| CartPole::v1(), 8, threads).unwrap();
        assert_eq!((envs.groups(), envs.group_rows(0), envs.group_rows(1)), (1, 0..8, 0..0));
    }
}

#[test]
fn wrong_calls_are_told() {
    let message = |result: polygrad_core::Result<()>| result.unwrap_err().message().to_owned();
    let mut envs = Vectorized::asynchronous(|_| CartPole::v1(), 8, 2).unwrap();
    let mut buffers = StepBuffers::new(&envs);
    let mut half = StepBuffers::new(&Vectorized::new(|_| CartPole::v1(), 4).unwrap());
    assert!(message(envs.begin_step(0, &[0.0; 4])).contains("`begin_step` before `reset`"));
    envs.reset(0, &mut buffers.observations).unwrap();
    assert_eq!(message(envs.begin_step(2, &[0.0; 4])), "there is no group 2 of 2");
    assert_eq!(
        message(envs.finish_step(0, &mut half.as_mut())),
        "group 0 has begun no step"
    );
    assert!(message(envs.begin_step(0, &[0.0; 8])).contains("`actions` has 8 entries"));
    let error = message(envs.begin_step(1, &[0.0, 0.0, 2.0, 0.0]));
    assert!(error.contains("environment 6 was given the action [2.0]"), "{error}");
    envs.begin_step(1, &[0.0; 4]).unwrap();
    assert_eq!(message(envs.begin_step(1, &[0.0; 4])), "group 1 is still stepping");
    assert_eq!(
        message(envs.step(&[0.0; 8], &mut buffers.as_mut())),
        "group 1 is still stepping"
    );
    assert_eq!(message(envs.state().map(drop)), "group 1 is still stepping");
    assert!(message(envs.finish_step(1, &mut buffers.as_mut())).contains("`observations` has 32 entries"));
    // None of these calls has had an effect.
    envs.finish_step(1, &mut half.as_mut()).unwrap();
    // A reset discards a running step, and so does restoring a state.
    envs.begin_step(0, &[0.0; 4]).unwrap();
    envs.reset(0, &mut buffers.observations).unwrap();
    let (state, first) = (envs.state().unwrap(), buffers.observations.clone());
    envs.begin_step(0, &[0.0; 4]).unwrap();
    envs.restore(&state, &mut buffers.observations).unwrap();
    assert_eq!(buffers.observations, first);
    envs.step(&[0.0; 8], &mut buffers.as_mut()).unwrap();

    let mut serial = NormalizeReward::new(Vectorized::new(|_| CartPole::v1(), 8).unwrap(), 0.9).unwrap();
    serial.reset(0, &mut buffers.observations).unwrap();
    assert_eq!(
        message(serial.begin_step(0, &[0.0; 8])),
        "these environments step all at once"
    );
    assert_eq!(
        message(serial.env_mut().begin_step(0, &[0.0; 8])),
        "these environments step all at once"
    );
    assert!(message(serial.env_mut().finish_step(0, &mut buffers.as_mut())).contains("all at once"));
    assert!(Vectorized::asynchronous(|_| CartPole::v1(), 8, 0).is_err());
    assert!(Vectorized::asynchronous(|_| CartPole::v1(), 0, 1).is_err());
}

/// Fails in its third step, either by a panic or otherwise.
struct Failing {
    steps: usize,
    panics: Option<bool>,
}

impl Env for Failing {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0], &[100.0])
    }
    fn action_space(&self) -> Space {
        Space::discrete(2)
    }
    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        self.steps = 0;
        observation[0] = 0.0;
    }
    fn step(&mut self, _action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        self.steps += 1;
        assert!(self.panics != Some(true) || self.steps < 3, "the bridge broke");
        let fails = self.panics == Some(false) && self.steps == 3;
        observation[0] = if fails { f32::NAN } else { self.steps as f32 };
        Step::new(0.0, false)
    }
}

#[test]
fn who_fails_in_a_group_is_named() {
    for (panics, what) in [
        (true, "panicked: the bridge broke"),
        (false, "gave an observation whose number 0 is NaN"),
    ] {
        for threads in [1, 2] {
            let make = |index| Failing {
                steps: 0,
                panics: (index == 6).then_some(panics),
            };
            let mut envs = Vectorized::asynchronous(make, 8, threads).unwrap();
            let mut buffers = StepBuffers::new(&envs);
            envs.reset(9, &mut buffers.observations).unwrap();
            for step in 1..=3 {
                envs.begin_step(1, &[0.0; 4]).unwrap();
                envs.begin_step(0, &[0.0; 4]).unwrap();
                envs.finish_step(0, &mut buffers.as_mut().rows(0..4)).unwrap();
                assert_eq!(buffers.observations[..4], [step as f32; 4]);
                let outcome = envs.finish_step(1, &mut buffers.as_mut().rows(4..8));
                assert_eq!(outcome.is_err(), step == 3);
                if let Err(error) = outcome {
                    assert_eq!(
                        error.message(),
                        format!("environment 6 {what} (seed 9, episode 0, step 3)")
                    );
                }
            }
            let error = envs.begin_step(0, &[0.0; 4]).unwrap_err();
            assert!(error.message().contains("after a step that failed"), "{error}");
            envs.reset(9, &mut buffers.observations).unwrap();
            envs.step(&[0.0; 8], &mut buffers.as_mut()).unwrap();
        }
    }
}

#[test]
fn episodes_of_groups_are_recorded() {
    let mut whole = RecordEpisodeStatistics::new(Vectorized::new(|_| CartPole::v1(), 8).unwrap());
    let mut apart = RecordEpisodeStatistics::new(Vectorized::asynchronous(|_| CartPole::v1(), 8, 1).unwrap());
    let mut buffers = StepBuffers::new(&whole);
    let mut rng = Rng::new(2);
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    whole.reset(0, &mut buffers.observations).unwrap();
    apart.reset(0, &mut buffers.observations).unwrap();
    let mut actions = [0.0; 8];
    for _ in 0..300 {
        choose(&whole, &mut rng, &mut actions);
        whole.step(&actions, &mut buffers.as_mut()).unwrap();
        expected.extend_from_slice(whole.finished());
        for group in 0..2 {
            apart.begin_step(group, &actions[apart.group_rows(group)]).unwrap();
        }
        for group in 0..2 {
            let rows = apart.group_rows(group);
            apart.finish_step(group, &mut buffers.as_mut().rows(rows)).unwrap();
            found.extend_from_slice(apart.finished());
        }
    }
    assert!(expected == found && expected.len() > 50, "{}", expected.len());
    assert_eq!(whole.state().unwrap(), apart.state().unwrap());
}
